// Sorts the dimensions of a contraction into groups and merges neighbours.
#include "exec/cpu/contraction.h"

#include <algorithm>

#include "lang/reference.h"

namespace tessera {
namespace {

std::int64_t stride_of(const View& view, const std::string& dim) {
  const int d = view.shape.find(dim);
  return d < 0 ? 0 : view.stride[static_cast<std::size_t>(d)];
}

void merge(ContractionDims& dims) {
  ContractionDims merged;
  for (const ContractionDim& dim : dims) {
    if (!merged.empty()) {
      ContractionDim& outer = merged.back();
      if (outer.a == dim.a * dim.count && outer.b == dim.b * dim.count && outer.c == dim.c * dim.count) {
        outer = {outer.count * dim.count, dim.a, dim.b, dim.c};
        continue;
      }
    }
    merged.push_back(dim);
  }
  dims = std::move(merged);
}

// Summed dimensions in the order of either input; the one that leaves fewer loops after merging.
void order_sum(ContractionDims& dims) {
  const auto sorted = [&](std::int64_t ContractionDim::*first, std::int64_t ContractionDim::*second) {
    ContractionDims result = dims;
    std::stable_sort(result.begin(), result.end(), [&](const ContractionDim& x, const ContractionDim& y) {
      return x.*first != y.*first ? x.*first > y.*first : x.*second > y.*second;
    });
    merge(result);
    return result;
  };
  ContractionDims by_a = sorted(&ContractionDim::a, &ContractionDim::b);
  ContractionDims by_b = sorted(&ContractionDim::b, &ContractionDim::a);
  dims = by_b.size() < by_a.size() ? std::move(by_b) : std::move(by_a);
}

void swap_inputs(Contraction& contraction) {
  std::swap(contraction.m, contraction.n);
  for (ContractionDims* group : {&contraction.batch, &contraction.m, &contraction.n, &contraction.k}) {
    for (ContractionDim& dim : *group) std::swap(dim.a, dim.b);
  }
  contraction.swapped = !contraction.swapped;
}

}  // namespace

std::int64_t size_of(const ContractionDims& dims) {
  std::int64_t product = 1;
  for (const ContractionDim& dim : dims) product *= dim.count;
  return product;
}

Contraction plan_contraction(const Type& a, const Type& b, const Type& c) {
  return plan_contraction(make_view(nullptr, a), make_view(nullptr, b), make_view(nullptr, c));
}

Contraction plan_contraction(const View& a, const View& b, const View& c) {
  Contraction plan;
  plan.dtype = a.dtype;
  plan.result = c.dtype;
  const auto strides = [&](const Dim& dim) {
    return ContractionDim{dim.size, stride_of(a, dim.name), stride_of(b, dim.name), stride_of(c, dim.name)};
  };
  for (const Dim& dim : c.shape) {
    if (dim.size == 1) continue;
    const bool both = a.shape.has(dim.name) && b.shape.has(dim.name);
    (both ? plan.batch : a.shape.has(dim.name) ? plan.m : plan.n).push_back(strides(dim));
  }
  for (const Dim& dim : a.shape) {
    if (dim.size != 1 && !c.shape.has(dim.name)) plan.k.push_back(strides(dim));
  }
  for (const Dim& dim : b.shape) {
    if (dim.size != 1 && !c.shape.has(dim.name) && !a.shape.has(dim.name)) plan.k.push_back(strides(dim));
  }
  merge(plan.batch);
  merge(plan.m);
  merge(plan.n);
  order_sum(plan.k);
  const bool rows_last = !plan.m.empty() && plan.m.back().c == 1;
  const bool columns_last = !plan.n.empty() && plan.n.back().c == 1;
  if (rows_last || (!columns_last && size_of(plan.m) > size_of(plan.n))) swap_inputs(plan);
  return plan;
}

GemmIndex index_of(const ContractionDims& dims, std::int64_t ContractionDim::*stride) {
  if (dims.size() == 1) return {dims[0].count, dims[0].*stride};
  std::vector<std::int64_t> offsets = {0};
  for (const ContractionDim& dim : dims) {
    std::vector<std::int64_t> next;
    next.reserve(offsets.size() * static_cast<std::size_t>(dim.count));
    for (std::int64_t outer : offsets) {
      for (std::int64_t i = 0; i < dim.count; ++i) next.push_back(outer + i * (dim.*stride));
    }
    offsets = std::move(next);
  }
  return GemmIndex(std::move(offsets));
}

}  // namespace tessera
