// Sums, means, maxima and minima over any dimensions. Either whole rows of the input are folded into one
// element, or rows are added up element by element; the order depends on the shape alone.
#include "exec/cpu/reduce.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/simd.h"
#include "exec/cpu/records.h"
#include "exec/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/reduce.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "exec/cpu/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
// Rows (or elements of a row) that are folded before they join the total, which is kept in double: a long sum
// must not drift.
constexpr std::int64_t kRun = 64, kChunk = 2048;
template <class F, class Acc>
using Total = std::conditional_t<F::kAdds && std::is_same_v<Acc, float>, double, Acc>;

struct SumFold {
  static constexpr bool kAdds = true;
  template <class Acc>
  static constexpr Acc identity() {
    return 0;
  }
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Add(a, b);
  }
  template <class Acc>
  Acc one(Acc a, Acc b) const {
    return static_cast<Acc>(a + b);
  }
};

// kSign 1: maximum, -1: minimum. The first of equals stays; NaN wins.
template <int kSign>
struct ExtremeFold {
  static constexpr bool kAdds = false;
  template <class Acc>
  static constexpr Acc identity() {
    using Limits = std::numeric_limits<Acc>;
    if constexpr (Limits::has_infinity) return kSign > 0 ? -Limits::infinity() : Limits::infinity();
    return kSign > 0 ? Limits::min() : Limits::max();
  }
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    const auto better = kSign > 0 ? hn::Gt(b, a) : hn::Lt(b, a);
    return hn::IfThenElse(hn::Or(better, hn::Not(hn::Eq(b, b))), b, a);
  }
  template <class Acc>
  Acc one(Acc a, Acc b) const {
    return b != b || (kSign > 0 ? b > a : b < a) ? b : a;
  }
};

// Calls f(offset) for all combinations of loops but the last `skip`.
template <class F>
void for_each(const std::vector<ReduceLoop>& loops, std::size_t skip, F f) {
  const std::size_t count = loops.size() - std::min(skip, loops.size());
  std::array<std::int64_t, 16> index{};
  std::int64_t at = 0;
  while (true) {
    f(at);
    std::size_t l = count;
    for (; l > 0; --l) {
      at += loops[l - 1].in;
      if (++index[l - 1] < loops[l - 1].count) break;
      at -= loops[l - 1].in * loops[l - 1].count;
      index[l - 1] = 0;
    }
    if (l == 0) return;
  }
}

template <class Acc, class F, class T>
Acc fold_row(F fold, const T* row, std::int64_t n) {
  const hn::ScalableTag<Acc> d;
  constexpr auto kLanes = static_cast<std::int64_t>(HWY_LANES(Acc));
  const Acc identity = F::template identity<Acc>();
  auto s0 = hn::Set(d, identity), s1 = s0, s2 = s0, s3 = s0;
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    s0 = fold(d, s0, load(d, row + i));
    s1 = fold(d, s1, load(d, row + i + kLanes));
    s2 = fold(d, s2, load(d, row + i + 2 * kLanes));
    s3 = fold(d, s3, load(d, row + i + 3 * kLanes));
  }
  for (; i < n; i += kLanes) s0 = fold(d, s0, read(d, row, i, n, identity));
  alignas(64) Acc lane[kLanes];
  hn::Store(fold(d, fold(d, s0, s1), fold(d, s2, s3)), d, lane);
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::int64_t k = 0; k < half; ++k) lane[k] = fold.one(lane[k], lane[k + half]);
  }
  return lane[0];
}

struct At {
  std::int64_t in = 0, out = 0;
};

At locate(const std::vector<ReduceLoop>& loops, std::size_t count, std::int64_t item) {
  At at;
  for (std::size_t l = count; l-- > 0;) {
    const std::int64_t i = item % loops[l].count;
    item /= loops[l].count;
    at.in += i * loops[l].in, at.out += i * loops[l].out;
  }
  return at;
}

template <class T, class Sum>
T finish(const ReducePlan& plan, Sum x) {
  if constexpr (std::is_same_v<Sum, double>) {
    if (plan.divisor != 0) x /= plan.divisor;
  }
  return narrowed<T>(x);
}

// The innermost dimension is reduced: every output folds whole rows.
template <class T, class Acc, class F>
void fold_along(const ReducePlan& plan, F fold, const T* in, T* out, std::int64_t begin, std::int64_t end) {
  const std::int64_t n = plan.reduced.back().count;
  for (std::int64_t item = begin; item < end; ++item) {
    const At at = locate(plan.kept, plan.kept.size(), item);
    using Sum = Total<F, Acc>;
    Sum total = F::template identity<Sum>();
    for_each(plan.reduced, 1, [&](std::int64_t from) {
      for (std::int64_t i = 0; i < n; i += kChunk) {
        const Acc part = fold_row<Acc>(fold, in + at.in + from + i, std::min(kChunk, n - i));
        total = fold.one(total, static_cast<Sum>(part));
      }
    });
    out[at.out] = finish<T>(plan, total);
  }
}

// The innermost dimension is kept: rows are folded element by element.
template <class T, class Acc, class F>
void fold_across(const ReducePlan& plan, F fold, const T* in, T* out, std::int64_t begin, std::int64_t end) {
  const hn::ScalableTag<Acc> d;
  constexpr auto kLanes = static_cast<std::int64_t>(HWY_LANES(Acc));
  const ReduceLoop row = plan.kept.back();
  const std::int64_t blocks = (row.count + kReduceColumns - 1) / kReduceColumns;
  using Sum = Total<F, Acc>;
  Sum total[kReduceColumns];
  alignas(64) Acc run[kReduceColumns];
  for (std::int64_t item = begin; item < end; ++item) {
    const At at = locate(plan.kept, plan.kept.size() - 1, item / blocks);
    const std::int64_t c0 = item % blocks * kReduceColumns, n = std::min(kReduceColumns, row.count - c0);
    std::fill_n(total, kReduceColumns, F::template identity<Sum>());
    std::fill_n(run, kReduceColumns, F::template identity<Acc>());
    std::int64_t rows = 0;
    const auto join = [&] {
      for (std::int64_t i = 0; i < n; ++i) total[i] = fold.one(total[i], static_cast<Sum>(run[i]));
      std::fill_n(run, n, F::template identity<Acc>());
    };
    for_each(plan.reduced, 0, [&](std::int64_t from) HWY_ATTR {
      const T* x = in + at.in + from + c0;
      for (std::int64_t i = 0; i < n; i += kLanes)
        hn::Store(fold(d, hn::Load(d, run + i), read(d, x, i, n)), d, run + i);
      if (++rows % kRun == 0) join();
    });
    join();
    for (std::int64_t i = 0; i < n; ++i) out[at.out + (c0 + i) * row.out] = finish<T>(plan, total[i]);
  }
}

template <class T, class Acc, class F>
void typed(const ReducePlan& plan, F fold, const void* in, void* out, std::int64_t begin, std::int64_t end) {
  if (plan.along) {
    fold_along<T, Acc>(plan, fold, static_cast<const T*>(in), static_cast<T*>(out), begin, end);
  } else {
    fold_across<T, Acc>(plan, fold, static_cast<const T*>(in), static_cast<T*>(out), begin, end);
  }
}

template <class F>
void folded(const ReducePlan& plan, F fold, const void* in, void* out, std::int64_t begin, std::int64_t end) {
  switch (plan.dtype) {
    case DType::F32:
      return typed<float, float>(plan, fold, in, out, begin, end);
    case DType::BF16:
      return typed<bf16, float>(plan, fold, in, out, begin, end);
    case DType::F64:
      return typed<double, double>(plan, fold, in, out, begin, end);
    default:
      break;
  }
  // Sums wrap, so they are taken without a sign.
  using Integer = std::conditional_t<std::is_same_v<F, SumFold>, std::uint32_t, std::int32_t>;
  typed<Integer, Integer>(plan, fold, in, out, begin, end);
}

}  // namespace

void reduce_items(const ReducePlan& plan, const void* in, void* out, std::int64_t begin, std::int64_t end) {
  switch (plan.fold) {
    case Fold::Sum:
      return folded(plan, SumFold(), in, out, begin, end);
    case Fold::Max:
      return folded(plan, ExtremeFold<1>(), in, out, begin, end);
    case Fold::Min:
      return folded(plan, ExtremeFold<-1>(), in, out, begin, end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {

HWY_EXPORT(reduce_items);

namespace {

void add_loop(std::vector<ReduceLoop>& loops, const ReduceLoop& loop) {
  if (loop.count == 1) return;
  if (!loops.empty() && loops.back().in == loop.in * loop.count &&
      loops.back().out == loop.out * loop.count) {
    loops.back() = {loops.back().count * loop.count, loop.in, loop.out};
  } else {
    loops.push_back(loop);
  }
}

ReducePlan plan_of(const KernelSite& site, Fold fold, bool mean) {
  const View &in = site.in[0], &out = site.out[0];
  ReducePlan plan;
  plan.fold = fold;
  plan.dtype = in.dtype;
  double divisor = 1;
  std::int64_t inner_stride = 0;
  for (std::size_t d = 0; d < in.shape.count(); ++d) {
    const Dim& dim = in.shape[d];
    const int o = out.shape.find(dim.name);
    if (o < 0) divisor *= static_cast<double>(site.call.in[0].shape.size(dim.name));
    if (dim.size == 1) continue;
    inner_stride = in.stride[d];
    plan.along = o < 0;
    add_loop(o < 0 ? plan.reduced : plan.kept,
             {dim.size, in.stride[d], o < 0 ? 0 : out.stride[static_cast<std::size_t>(o)]});
  }
  // A single element: a row of one.
  if (inner_stride == 0) plan.along = true;
  if (plan.along && plan.reduced.empty()) plan.reduced.push_back({1, 1, 0});
  if (mean) plan.divisor = divisor;
  for (std::size_t l = 0; l + (plan.along ? 0 : 1) < plan.kept.size(); ++l) plan.items *= plan.kept[l].count;
  if (!plan.along) plan.items *= (plan.kept.back().count + kReduceColumns - 1) / kReduceColumns;
  return plan;
}

bool supports(const KernelSite& site) {
  return site.in[0].dtype != DType::Bool && site.in[0].elements() > 0 && site.in[0].shape.count() <= 16;
}

template <Fold kFold, bool kMean = false>
PreparedKernel prepare(const KernelSite& site) {
  return [plan = plan_of(site, kFold, kMean), threads = site.threads](const KernelContext& c, void*) {
    over_rows(plan.items, threads, [&](std::int64_t begin, std::int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(reduce_items)(plan, c.in[0].data, c.out[0].data, begin, end);
    });
  };
}

}  // namespace

const CpuKernel kReduceSumKernel = {.op = "reduce_sum", .supports = supports, .prepare = prepare<Fold::Sum>};
const CpuKernel kReduceMeanKernel = {
    .op = "reduce_mean", .supports = supports, .prepare = prepare<Fold::Sum, true>};
const CpuKernel kReduceMaxKernel = {.op = "reduce_max", .supports = supports, .prepare = prepare<Fold::Max>};
const CpuKernel kReduceMinKernel = {.op = "reduce_min", .supports = supports, .prepare = prepare<Fold::Min>};

}  // namespace tessera
#endif
