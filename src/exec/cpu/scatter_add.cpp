// Adding rows by index (the gradient of an embedding): updates are sorted by row with a counting sort, then
// every row is summed in index order and written once.
#include <algorithm>
#include <cstring>

#include "base/simd.h"
#include "exec/cpu/records.h"
#include "exec/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/scatter_add.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "exec/cpu/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
constexpr std::int64_t kBlock = 512;

template <class T, class Acc>
void add_row(const std::int32_t* sources, std::int64_t count, const T* updates, std::int64_t width, T* out) {
  const hn::ScalableTag<Acc> d;
  constexpr auto kLanes = static_cast<std::int64_t>(HWY_LANES(Acc));
  alignas(64) Acc sums[kBlock];
  for (std::int64_t c0 = 0; c0 < width; c0 += kBlock) {
    const std::int64_t n = std::min(kBlock, width - c0);
    std::memset(sums, 0, sizeof(sums));
    for (std::int64_t s = 0; s < count; ++s) {
      const T* row = updates + sources[s] * width + c0;
      for (std::int64_t i = 0; i < n; i += kLanes) {
        hn::Store(hn::Add(hn::Load(d, sums + i), read(d, row, i, n)), d, sums + i);
      }
    }
    for (std::int64_t i = 0; i < n; i += kLanes) write(d, hn::Load(d, sums + i), out + c0, i, n);
  }
}

}  // namespace

// Row r of the output is the sum of updates order[first[r]] .. order[first[r + 1] - 1].
void scatter_rows(DType dtype, const std::int32_t* first, const std::int32_t* order, const void* updates,
                  std::int64_t width, void* out, std::int64_t begin, std::int64_t end) {
  const auto go = [&]<class T, class Acc>(T, Acc) {
    for (std::int64_t r = begin; r < end; ++r) {
      add_row<T, Acc>(order + first[r], first[r + 1] - first[r], static_cast<const T*>(updates), width,
                      static_cast<T*>(out) + r * width);
    }
  };
  switch (dtype) {
    case DType::F32:
      return go(float(), float());
    case DType::BF16:
      return go(bf16(), float());
    case DType::F64:
      return go(double(), double());
    default:
      return go(std::uint32_t(), std::uint32_t());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <limits>

namespace tessera {

HWY_EXPORT(scatter_rows);

namespace {

// Whole rows: no dimension of the indices in the output, updates [indices, row], output [dim, row].
bool supports(const KernelSite& site) {
  const Shape &indices = site.in[0].shape, &updates = site.in[1].shape, &out = site.out[0].shape;
  if (out[0].name != site.call.attrs.text("dim") || updates.count() + 1 != indices.count() + out.count())
    return false;
  if (indices.elements() >= std::numeric_limits<std::int32_t>::max()) return false;
  for (std::size_t d = 0; d < indices.count(); ++d) {
    if (updates[d] != indices[d] || out.has(indices[d].name)) return false;
  }
  for (std::size_t d = 1; d < out.count(); ++d) {
    if (updates[indices.count() + d - 1] != out[d]) return false;
  }
  return true;
}

std::int64_t workspace(const Call& call, const std::vector<Type>& in, const std::vector<Type>& out, int) {
  return (out[0].shape.size(call.attrs.text("dim")) + 2 + in[0].shape.elements()) * 4;
}

PreparedKernel prepare(const KernelSite& site) {
  const std::int64_t rows = site.out[0].shape[0].size, count = site.in[0].elements();
  const std::int64_t width = site.out[0].elements() / rows;
  return [rows, count, width, threads = site.threads](const KernelContext& c, void* scratch) {
    const auto* index = c.in[0].as<std::int32_t>();
    auto* first = static_cast<std::int32_t*>(scratch);
    std::int32_t* order = first + rows + 2;
    const std::int64_t start = c.out[0].start[0];
    const auto local = [&](std::int64_t i) {
      const std::int64_t row = index[i] - start;
      return row >= 0 && row < rows ? row : -1;
    };
    // Counts two places up, so that after the second pass first[r] is where row r begins.
    std::fill_n(first, rows + 2, 0);
    for (std::int64_t i = 0; i < count; ++i) {
      if (const std::int64_t row = local(i); row >= 0) ++first[row + 2];
    }
    for (std::int64_t r = 2; r < rows + 2; ++r) first[r] += first[r - 1];
    for (std::int64_t i = 0; i < count; ++i) {
      if (const std::int64_t row = local(i); row >= 0) order[first[row + 1]++] = static_cast<std::int32_t>(i);
    }
    over_rows(rows, threads, [&](std::int64_t begin, std::int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(scatter_rows)
      (c.out[0].dtype, first, order, c.in[1].data, width, c.out[0].data, begin, end);
    });
  };
}

}  // namespace

const CpuKernel kScatterAddKernel = {
    .op = "scatter_add", .supports = supports, .workspace = workspace, .prepare = prepare};

}  // namespace tessera
#endif
