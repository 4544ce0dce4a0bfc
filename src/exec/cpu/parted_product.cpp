#include "exec/cpu/parted_product.h"

#include <cstring>

#include "exec/cpu/narrow.h"

namespace tessera {
namespace {

DType sums_of(DType dtype) {
  return dtype == DType::BF16 ? DType::F32 : dtype;
}

// Of sums in f32 that become bf16.
std::int64_t sum_bytes(DType dtype, std::int64_t elements) {
  return dtype == DType::BF16 ? (elements * 4 + 63) / 64 * 64 : 0;
}

}  // namespace

std::int64_t PartedProduct::workspace(const Type& a, const Type& b, const Type& c, int threads) {
  const auto within = [&](const Type& type) {  // c's sizes where it has the dimension
    std::vector<Dim> dims = type.shape.dims();
    for (Dim& dim : dims)
      if (c.shape.has(dim.name)) dim.size = c.shape.size(dim.name);
    return Type{Shape(std::move(dims)), type.dtype};
  };
  const Type sums{c.shape, sums_of(c.dtype)};
  return sum_bytes(c.dtype, c.shape.elements()) +
         MatrixProduct::workspace(plan_contraction(within(a), within(b), sums), threads);
}

PartedProduct::PartedProduct(const std::vector<Part>& parts, const View& c, int threads)
    : dtype_(c.dtype), elements_(c.elements()) {
  View sums = c;
  sums.dtype = sums_of(c.dtype);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    if (part.a.elements() == 0 || part.b.elements() == 0) continue;
    Contraction contraction = plan_contraction(part.a, part.b, sums);
    contraction.accumulate = !terms_.empty();
    const auto bytes = [&](const View& view, std::int64_t begin) {
      return begin * static_cast<std::int64_t>(size_of(view.dtype));
    };
    terms_.push_back({i, contraction.swapped, bytes(part.a, part.a_begin), bytes(part.b, part.b_begin),
                      MatrixProduct(contraction, threads)});
  }
}

void PartedProduct::run(std::span<const void* const> inputs, void* c, void* scratch) const {
  const std::int64_t own = sum_bytes(dtype_, elements_);
  void* sums = own > 0 ? scratch : c;
  if (terms_.empty()) std::memset(c, 0, static_cast<std::size_t>(elements_) * size_of(dtype_));
  for (const Term& term : terms_) {
    const auto* rank = static_cast<const char* const*>(inputs[term.part]);
    const char *a = rank[0] + term.a_begin, *b = rank[1] + term.b_begin;
    term.product.run(term.swapped ? b : a, term.swapped ? a : b, sums, static_cast<char*>(scratch) + own);
  }
  if (own > 0 && !terms_.empty())
    narrow_sums(static_cast<const float*>(sums), static_cast<bf16*>(c), elements_);
}

}  // namespace tessera
