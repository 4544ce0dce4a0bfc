// Cross-entropy and its gradient for classes along the last dimension: a row is read twice forward and once
// backward, and nothing of its size is written but the gradient. Both at once take each exponential once.
#include "exec/cpu/cross_entropy.h"

#include <cmath>

#include "base/simd.h"
#include "exec/cpu/records.h"
#include "exec/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/cross_entropy.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "exec/cpu/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
constexpr auto kLanes = static_cast<std::int64_t>(HWY_LANES(float));

// The first element that equals the row's maximum, or that is NaN; 0 in a row of -inf.
template <class D, class T>
std::int64_t first_largest(D d, const T* x, float max, std::int64_t n) {
  const auto level = hn::Set(d, max);
  std::int64_t found = n, first_nan = n;
  for (std::int64_t i = 0; i < n && first_nan == n; i += kLanes) {
    const auto v = read(d, x, i, n, -INFINITY);
    const auto is_nan = hn::IsNaN(v);
    if (found == n && !hn::AllFalse(d, hn::Eq(v, level))) {
      found = i;
      while (found < n && widened<float>(x[found]) != max) ++found;
    }
    if (!hn::AllFalse(d, is_nan)) {
      first_nan = i;
      while (!std::isnan(widened<float>(x[first_nan]))) ++first_nan;
    }
  }
  if (first_nan < n) return first_nan;
  return found < n ? found : 0;
}

bool is_local(const CrossEntropyPlan& plan, std::int64_t target) {
  return target >= 0 && target < plan.length;
}

// Of a row whose logits sum to `sum` where the plan smooths labels. Of several shards of a row each gives a
// share: `leads` adds what belongs to the whole row, and at_target is 0 where the target is another's.
float loss_of(const CrossEntropyPlan& plan, bool counted, float at_target, float log_z, float sum,
              bool leads = true) {
  if (log_z == -INFINITY) return 0;
  const double whole = leads ? log_z : 0;
  double loss = counted ? whole - plan.on * static_cast<double>(at_target) - plan.off * sum : 0;
  if (plan.z_loss > 0) loss += plan.z_loss * whole * whole;
  return static_cast<float>(loss);
}

template <class D, class T>
float smoothed_sum(D d, const CrossEntropyPlan& plan, const T* x) {
  const std::int64_t n = plan.length;
  return plan.off > 0 ? sum_row(d, n, [&](std::int64_t i) HWY_ATTR { return read(d, x, i, n); }) : 0.0f;
}

template <class T>
void forward(const CrossEntropyPlan& plan, const CrossEntropyRows& rows, std::int64_t begin,
             std::int64_t end) {
  const hn::ScalableTag<float> d;
  const std::int64_t n = plan.length;
  for (std::int64_t r = begin; r < end; ++r) {
    const T* x = static_cast<const T*>(rows.logits) + r * n;
    const float max = max_row(d, x, n);
    const auto shift = hn::Set(d, max);
    const float sum = sum_row(d, n, [&](std::int64_t i) HWY_ATTR {
      return vector_exp(d, hn::Sub(read(d, x, i, n, -INFINITY), shift));
    });
    const float log_z = static_cast<float>(std::log(static_cast<double>(sum)) + max);
    const bool counted = is_local(plan, rows.targets[r]);
    const float at_target = counted ? widened<float>(x[rows.targets[r]]) : 0.0f;
    rows.loss[r] = loss_of(plan, counted, at_target, log_z, smoothed_sum(d, plan, x));
    rows.log_z_out[r] = log_z;
    if (rows.best != nullptr) rows.best[r] = static_cast<std::int32_t>(first_largest(d, x, max, n));
  }
}

// A row's gradient is `factor` times its exponentials less `level`; at its target it is computed by itself.
struct Slope {
  Slope(const CrossEntropyPlan& plan, std::int64_t target, double log_z, double dloss) {
    const bool live = log_z != -INFINITY, counted = target >= 0 && target < plan.classes;
    factor = live ? dloss * (counted + 2 * plan.z_loss * log_z) : 0;
    if (!live || !counted) return;
    hit = target;
    level = static_cast<float>(dloss * plan.off);
    at_hit = level + dloss * plan.on;
  }
  double factor = 0, at_hit = 0;
  float level = 0;
  std::int64_t hit = -1;  // global index of a class
};

template <class T, class G>
void backward(const CrossEntropyPlan& plan, const CrossEntropyRows& rows, std::int64_t begin,
              std::int64_t end) {
  const hn::ScalableTag<float> d;
  const std::int64_t n = plan.length;
  for (std::int64_t r = begin; r < end; ++r) {
    const T* x = static_cast<const T*>(rows.logits) + r * n;
    G* dx = static_cast<G*>(rows.gradient) + r * n;
    const double log_z = rows.log_z[r];
    const Slope slope(plan, rows.targets[r], log_z, rows.dloss[r]);
    const std::int64_t hit = slope.hit < 0 ? -1 : slope.hit - rows.start;
    float at_target = 0;  // before the row may be overwritten
    if (hit >= 0 && hit < n) at_target = widened<float>(x[hit]);
    const auto shift = hn::Set(d, rows.log_z[r] == -INFINITY ? 0.0f : rows.log_z[r]),
               factor = hn::Set(d, static_cast<float>(slope.factor)), level = hn::Set(d, slope.level);
    for (std::int64_t i = 0; i < n; i += kLanes) {
      const auto p = vector_exp(d, hn::Sub(read(d, x, i, n, -INFINITY), shift));
      write(d, hn::Sub(hn::Mul(factor, p), level), dx, i, n);
    }
    if (hit >= 0 && hit < n) {
      const double p = std::exp(static_cast<double>(at_target) - log_z);
      dx[hit] = narrowed<G>(static_cast<float>(slope.factor * p - slope.at_hit));
    }
  }
}

// A row of f32 logits becomes its exponentials, less its largest one; their sum.
template <class D>
float exponentials(D d, float* x, float max, std::int64_t n) {
  const auto shift = hn::Set(d, max);
  return sum_row(d, n, [&](std::int64_t i) HWY_ATTR {
    const auto e = vector_exp(d, hn::Sub(read(d, x, i, n, -INFINITY), shift));
    write(d, e, x, i, n);
    return e;
  });
}

// The gradient of row r from its exponentials less `max`; one of half the size is written behind what is
// read. The whole row's exponentials, less its own largest logit, are `rescale` times these, and sum to
// whole.sum.
template <class G>
void slopes(const CrossEntropyPlan& plan, const CrossEntropyRows& rows, std::int64_t r, const float* x,
            float at_target, const WholeRow& whole, double rescale) {
  const hn::ScalableTag<float> d;
  const std::int64_t n = plan.length;
  G* dx = static_cast<G*>(rows.gradient) + r * rows.gradient_pitch;
  const Slope slope(plan, rows.targets[r], static_cast<float>(whole.log_z()), rows.dloss[r]);
  const double scale = slope.factor == 0 ? 0 : slope.factor / whole.sum;
  const auto factor = hn::Set(d, static_cast<float>(scale * rescale)), level = hn::Set(d, slope.level);
  for (std::int64_t i = 0; i < n; i += kLanes)
    write(d, hn::Sub(hn::Mul(factor, read(d, x, i, n)), level), dx, i, n);
  const std::int64_t hit = slope.hit < 0 ? -1 : slope.hit - rows.start;
  if (hit >= 0 && hit < n) {
    const double e = std::exp(static_cast<double>(at_target) - whole.max);
    dx[hit] = narrowed<G>(static_cast<float>(scale * e - slope.at_hit));
  }
}

template <class G>
void both(const CrossEntropyPlan& plan, const CrossEntropyRows& rows, float* logits, std::int64_t begin,
          std::int64_t end) {
  const hn::ScalableTag<float> d;
  const std::int64_t n = plan.length;
  for (std::int64_t r = begin; r < end; ++r) {
    float* x = logits + r * n;
    const bool counted = is_local(plan, rows.targets[r]);
    const float at_target = counted ? x[rows.targets[r]] : 0.0f, smoothed = smoothed_sum(d, plan, x),
                max = max_row(d, x, n);
    const WholeRow whole{max, exponentials(d, x, max, n), 0};
    rows.loss[r] = loss_of(plan, counted, at_target, static_cast<float>(whole.log_z()), smoothed);
    slopes<G>(plan, rows, r, x, at_target, whole, 1);
  }
}

void parts(const CrossEntropyPlan& plan, const CrossEntropyRows& rows, float* logits, std::int64_t begin,
           std::int64_t end) {
  const hn::ScalableTag<float> d;
  const std::int64_t n = plan.length;
  for (std::int64_t r = begin; r < end; ++r) {
    float* x = logits + r * n;
    RowPart<float> part;
    const std::int64_t target = rows.targets[r] - rows.start;
    rows.at_target[r] = is_local(plan, target) ? x[target] : 0.0f;
    rows.smoothed[r] = smoothed_sum(d, plan, x);
    part.max = max_row(d, x, n);
    if (rows.gradient == nullptr) {
      const std::int64_t best = first_largest(d, x, part.max, n);
      part.best = static_cast<std::int32_t>(rows.start + best);
      if (std::isnan(x[best])) part.max = x[best];
    }
    part.sum = exponentials(d, x, part.max, n);
    rows.part[r] = part;
  }
}

template <class G>
void wholes(const CrossEntropyPlan& plan, const CrossEntropyRows& rows, const float* logits,
            std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    const WholeRow whole = whole_row(rows.all + r, rows.shards, rows.pitch);
    const bool counted = rows.targets[r] >= 0 && rows.targets[r] < plan.classes;
    rows.loss[r] = loss_of(plan, counted, rows.at_target[r], static_cast<float>(whole.log_z()),
                           rows.smoothed[r], rows.leads);
    if (rows.gradient != nullptr) {
      const double rescale = std::exp(static_cast<double>(rows.part[r].max) - whole.max);
      slopes<G>(plan, rows, r, logits + r * plan.length, rows.at_target[r], whole, rescale);
    } else {
      rows.best[r] = is_local(plan, whole.best - rows.start) ? whole.best : 0;
    }
  }
}

}  // namespace

void cross_entropy_rows(const CrossEntropyPlan& plan, const CrossEntropyRows& rows, std::int64_t begin,
                        std::int64_t end) {
  const bool single = plan.dtype == DType::F32;
  if (rows.gradient == nullptr) return (single ? forward<float> : forward<bf16>)(plan, rows, begin, end);
  if (!single) return backward<bf16, bf16>(plan, rows, begin, end);
  backward<float, float>(plan, rows, begin, end);
}

void both_rows(const CrossEntropyPlan& plan, const CrossEntropyRows& rows, float* logits, std::int64_t begin,
               std::int64_t end) {
  (plan.gradient == DType::F32 ? both<float> : both<bf16>)(plan, rows, logits, begin, end);
}

void part_rows(const CrossEntropyPlan& plan, const CrossEntropyRows& rows, float* logits, std::int64_t begin,
               std::int64_t end) {
  parts(plan, rows, logits, begin, end);
}

void whole_rows(const CrossEntropyPlan& plan, const CrossEntropyRows& rows, float* logits, std::int64_t begin,
                std::int64_t end) {
  (plan.gradient == DType::F32 ? wholes<float> : wholes<bf16>)(plan, rows, logits, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {

HWY_EXPORT(cross_entropy_rows);
HWY_EXPORT(both_rows);
HWY_EXPORT(part_rows);
HWY_EXPORT(whole_rows);

void cross_entropy_over(const CrossEntropyPlan& plan, const CrossEntropyRows& rows, std::int64_t begin,
                        std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(cross_entropy_rows)(plan, rows, begin, end);
}

void cross_entropy_both(const CrossEntropyPlan& plan, const CrossEntropyRows& rows, float* logits,
                        std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(both_rows)(plan, rows, logits, begin, end);
}

void cross_entropy_parts(const CrossEntropyPlan& plan, const CrossEntropyRows& rows, float* logits,
                         std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(part_rows)(plan, rows, logits, begin, end);
}

void cross_entropy_wholes(const CrossEntropyPlan& plan, const CrossEntropyRows& rows, float* logits,
                          std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(whole_rows)(plan, rows, logits, begin, end);
}

namespace {

bool supports(const KernelSite& site) {
  const Shape& logits = site.in[0].shape;
  return is_half_or_single(site.in[0].dtype) && is_last(logits, site.call.attrs.text("dim")) &&
         is_statistic(logits, site.in[1].shape);
}

CrossEntropyPlan plan_of(const KernelSite& site) {
  const std::string& dim = site.call.attrs.text("dim");
  CrossEntropyPlan plan;
  plan.dtype = plan.gradient = site.in[0].dtype;
  plan.length = site.in[0].shape.size(dim);
  plan.classes = site.call.in[0].shape.size(dim);
  const double smoothing = site.call.attrs.number("label_smoothing");
  plan.on = 1 - smoothing;
  plan.off = smoothing / static_cast<double>(plan.classes);
  plan.z_loss = site.call.attrs.number("z_loss");
  return plan;
}

PreparedKernel prepare_forward(const KernelSite& site) {
  return [plan = plan_of(site), threads = site.threads](const KernelContext& c, void*) {
    CrossEntropyRows rows;
    rows.logits = c.in[0].data;
    rows.targets = c.in[1].as<std::int32_t>();
    rows.loss = c.out[0].as<float>();
    rows.log_z_out = c.out[1].as<float>();
    over_rows(c.in[1].elements(), threads,
              [&](std::int64_t begin, std::int64_t end, int) { cross_entropy_over(plan, rows, begin, end); });
  };
}

PreparedKernel prepare_backward(const KernelSite& site) {
  return [plan = plan_of(site), threads = site.threads](const KernelContext& c, void*) {
    CrossEntropyRows rows;
    rows.logits = c.in[0].data;
    rows.targets = c.in[1].as<std::int32_t>();
    rows.log_z = c.in[2].as<float>();
    rows.dloss = c.in[3].as<float>();
    rows.gradient = c.out[0].data;
    rows.start = c.in[0].start.back();
    over_rows(c.in[1].elements(), threads,
              [&](std::int64_t begin, std::int64_t end, int) { cross_entropy_over(plan, rows, begin, end); });
  };
}

}  // namespace

const CpuKernel kCrossEntropyKernel = {
    .op = "cross_entropy", .supports = supports, .prepare = prepare_forward};
const CpuKernel kCrossEntropyGradKernel = {.op = "cross_entropy_grad",
                                           .supports = supports,
                                           .prepare = prepare_backward,
                                           .in_place = [](const Call&, int in, int) { return in == 0; }};

}  // namespace tessera
#endif
