// RMS norm and layer norm along the last dimension, and their gradients, in f32 registers.
#include "exec/cpu/norm.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/simd.h"
#include "exec/cpu/records.h"
#include "exec/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "exec/cpu/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
constexpr auto kLanes = static_cast<std::int64_t>(HWY_LANES(float));
constexpr std::int64_t kColumns = 512;  // of the scale's gradient that are summed at once
constexpr std::int64_t kRun =
    64;  // rows that are summed before they join the total: keeps the rounding error small

template <class T>
void forward(const NormRows& rows, std::int64_t begin, std::int64_t end) {
  const hn::ScalableTag<float> d;
  const std::int64_t n = rows.length;
  const T *scale = static_cast<const T*>(rows.scale), *bias = static_cast<const T*>(rows.bias);
  for (std::int64_t r = begin; r < end; ++r) {
    const T* x = static_cast<const T*>(rows.x) + r * n;
    T* y = static_cast<T*>(rows.out) + r * n;
    float mean = 0;
    if (bias)
      mean = sum_row(d, n, [&](std::int64_t i) HWY_ATTR { return read(d, x, i, n); }) / static_cast<float>(n);
    const auto centre = hn::Set(d, mean);
    const float squares = sum_row(d, n, [&](std::int64_t i) HWY_ATTR {
      const auto v = hn::Sub(read(d, x, i, n, mean), centre);
      return hn::Mul(v, v);
    });
    const auto inverse = static_cast<float>(1 / std::sqrt(squares / static_cast<double>(n) + rows.epsilon));
    rows.inverse_out[r] = inverse;
    if (bias) rows.mean_out[r] = mean;
    const auto factor = hn::Set(d, inverse);
    for (std::int64_t i = 0; i < n; i += kLanes) {
      auto v = hn::Mul(hn::Mul(hn::Sub(read(d, x, i, n), centre), factor), read(d, scale, i, n));
      if (bias) v = hn::Add(v, read(d, bias, i, n));
      write(d, v, y, i, n);
    }
  }
}

// dx = inverse * (g - mean(g) - unit * mean(g * unit)), g = dy * scale, unit = (x - mean) * inverse; RMS norm
// has no mean(g).
template <class T>
void backward(const NormRows& rows, std::int64_t begin, std::int64_t end) {
  const hn::ScalableTag<float> d;
  const std::int64_t n = rows.length;
  const T* scale = static_cast<const T*>(rows.scale);
  const bool centred = rows.mean != nullptr;
  for (std::int64_t r = begin; r < end; ++r) {
    const T *x = static_cast<const T*>(rows.x) + r * n, *dy = static_cast<const T*>(rows.dy) + r * n;
    T* dx = static_cast<T*>(rows.out) + r * n;
    const auto mean = hn::Set(d, centred ? rows.mean[r] : 0.0f), inverse = hn::Set(d, rows.inverse[r]);
    const auto g = [&](std::int64_t i) HWY_ATTR { return hn::Mul(read(d, dy, i, n), read(d, scale, i, n)); };
    const auto unit = [&](std::int64_t i)
                          HWY_ATTR { return hn::Mul(hn::Sub(read(d, x, i, n), mean), inverse); };
    const float count = static_cast<float>(n);
    const float slope =
        sum_row(d, n, [&](std::int64_t i) HWY_ATTR { return hn::Mul(g(i), unit(i)); }) / count;
    const float level = centred ? sum_row(d, n, g) / count : 0.0f;
    const auto a = hn::Set(d, level), b = hn::Set(d, slope);
    for (std::int64_t i = 0; i < n; i += kLanes) {
      write(d, hn::Mul(inverse, hn::Sub(hn::Sub(g(i), a), hn::Mul(unit(i), b))), dx, i, n);
    }
  }
}

// out[i] = sum over rows of dy * (x - mean) * inverse, for columns [c0, c0 + n) of all rows.
template <class T>
void scale_columns(const NormRows& rows, std::int64_t count, std::int64_t c0, std::int64_t n) {
  const hn::ScalableTag<float> d;
  alignas(64) float total[kColumns] = {}, run[kColumns] = {};
  for (std::int64_t r = 0; r < count; ++r) {
    const std::int64_t at = r * rows.length + c0;
    const T *x = static_cast<const T*>(rows.x) + at, *dy = static_cast<const T*>(rows.dy) + at;
    const auto mean = hn::Set(d, rows.mean ? rows.mean[r] : 0.0f), inverse = hn::Set(d, rows.inverse[r]);
    for (std::int64_t i = 0; i < n; i += kLanes) {
      const auto unit = hn::Mul(hn::Sub(read(d, x, i, n), mean), inverse);
      hn::Store(hn::Add(hn::Load(d, run + i), hn::Mul(read(d, dy, i, n), unit)), d, run + i);
    }
    if ((r + 1) % kRun == 0 || r + 1 == count) {
      for (std::int64_t i = 0; i < n; i += kLanes) {
        hn::Store(hn::Add(hn::Load(d, total + i), hn::Load(d, run + i)), d, total + i);
      }
      std::memset(run, 0, sizeof(run));
    }
  }
  for (std::int64_t i = 0; i < n; ++i) static_cast<T*>(rows.out)[c0 + i] = narrowed<T>(total[i]);
}

// A block of columns is the unit of threads here, so that sums do not depend on their number.
template <class T>
void scale_gradient(const NormRows& rows, std::int64_t begin, std::int64_t end, std::int64_t count) {
  for (std::int64_t block = begin; block < end; ++block) {
    const std::int64_t c0 = block * kColumns;
    scale_columns<T>(rows, count, c0, std::min(kColumns, rows.length - c0));
  }
}

}  // namespace

void norm_forward(const NormRows& rows, std::int64_t begin, std::int64_t end) {
  (rows.dtype == DType::F32 ? forward<float> : forward<bf16>)(rows, begin, end);
}
void norm_backward(const NormRows& rows, std::int64_t begin, std::int64_t end) {
  (rows.dtype == DType::F32 ? backward<float> : backward<bf16>)(rows, begin, end);
}
void norm_scale_gradient(const NormRows& rows, std::int64_t begin, std::int64_t end, std::int64_t count) {
  (rows.dtype == DType::F32 ? scale_gradient<float> : scale_gradient<bf16>)(rows, begin, end, count);
}
std::int64_t norm_column_blocks(std::int64_t length) {
  return (length + kColumns - 1) / kColumns;
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {

HWY_EXPORT(norm_forward);
HWY_EXPORT(norm_backward);
HWY_EXPORT(norm_scale_gradient);
HWY_EXPORT(norm_column_blocks);

namespace {

bool is_row(const Shape& parameter, const Shape& x) {
  return parameter.count() == 1 && parameter[0] == x.dims().back();
}

bool supports_norm(const KernelSite& site) {
  const Shape& x = site.in[0].shape;
  if (!is_half_or_single(site.in[0].dtype) || !is_last(x, site.call.attrs.text("dim"))) return false;
  const bool forward_with_bias = site.out.size() == 3;
  return is_row(site.in[1].shape, x) && (!forward_with_bias || is_row(site.in[2].shape, x));
}

bool supports_scale_gradient(const KernelSite& site) {
  const Shape& x = site.in[0].shape;
  if (!is_half_or_single(site.in[0].dtype) || x.count() == 0 || x.elements() == 0) return false;
  for (std::size_t i = 1; i + 1 < site.in.size(); ++i) {
    if (!is_statistic(x, site.in[i].shape)) return false;
  }
  return is_row(site.out[0].shape, x) && site.in.back().shape == x;
}

PreparedKernel prepare_forward(const KernelSite& site) {
  NormRows plan;
  plan.dtype = site.in[0].dtype;
  plan.length = site.in[0].shape.dims().back().size;
  plan.epsilon = site.call.attrs.number("epsilon");
  return [plan, count = site.in[0].elements() / plan.length, threads = site.threads](const KernelContext& c,
                                                                                     void*) {
    NormRows rows = plan;
    rows.x = c.in[0].data, rows.scale = c.in[1].data, rows.out = c.out[0].data;
    rows.inverse_out = c.out.back().as<float>();
    if (c.in.size() == 3) rows.bias = c.in[2].data, rows.mean_out = c.out[1].as<float>();
    over_rows(count, threads, [&](std::int64_t begin, std::int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(norm_forward)(rows, begin, end);
    });
  };
}

PreparedKernel prepare_backward(const KernelSite& site) {
  NormRows plan;
  plan.dtype = site.in[0].dtype;
  plan.length = site.in[0].shape.dims().back().size;
  return [plan, count = site.in[0].elements() / plan.length, threads = site.threads](const KernelContext& c,
                                                                                     void*) {
    const bool centred = c.in.size() == 5;
    NormRows rows = plan;
    rows.x = c.in[0].data, rows.scale = c.in[1].data, rows.dy = c.in.back().data, rows.out = c.out[0].data;
    rows.mean = centred ? c.in[2].as<float>() : nullptr;
    rows.inverse = c.in[centred ? 3 : 2].as<float>();
    over_rows(count, threads, [&](std::int64_t begin, std::int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(norm_backward)(rows, begin, end);
    });
  };
}

PreparedKernel prepare_scale_gradient(const KernelSite& site) {
  NormRows plan;
  plan.dtype = site.in[0].dtype;
  plan.length = site.in[0].shape.dims().back().size;
  return [plan, count = site.in[0].elements() / plan.length, threads = site.threads](const KernelContext& c,
                                                                                     void*) {
    const bool centred = c.in.size() == 4;
    NormRows rows = plan;
    rows.x = c.in[0].data, rows.dy = c.in.back().data, rows.out = c.out[0].data;
    rows.mean = centred ? c.in[1].as<float>() : nullptr;
    rows.inverse = c.in[centred ? 2 : 1].as<float>();
    const std::int64_t blocks = HWY_DYNAMIC_DISPATCH(norm_column_blocks)(rows.length);
    over_rows(blocks, threads, [&](std::int64_t begin, std::int64_t end, int) {
      HWY_DYNAMIC_DISPATCH(norm_scale_gradient)(rows, begin, end, count);
    });
  };
}

// y over x, and dx over x or dy: an element is read before it is written, and rows are independent.
bool over_x(const Call&, int in, int out) {
  return in == 0 && out == 0;
}
bool over_x_or_dy(const Call& call, int in, int) {
  return in == 0 || in + 1 == static_cast<int>(call.in.size());
}

}  // namespace

const CpuKernel kRmsNormKernel = {
    .op = "rms_norm", .supports = supports_norm, .prepare = prepare_forward, .in_place = over_x};
const CpuKernel kLayerNormKernel = {
    .op = "layer_norm", .supports = supports_norm, .prepare = prepare_forward, .in_place = over_x};
const CpuKernel kRmsNormGradKernel = {
    .op = "rms_norm_grad", .supports = supports_norm, .prepare = prepare_backward, .in_place = over_x_or_dy};
const CpuKernel kLayerNormGradKernel = {.op = "layer_norm_grad",
                                        .supports = supports_norm,
                                        .prepare = prepare_backward,
                                        .in_place = over_x_or_dy};
const CpuKernel kRmsNormScaleGradKernel = {
    .op = "rms_norm_scale_grad", .supports = supports_scale_gradient, .prepare = prepare_scale_gradient};
const CpuKernel kLayerNormScaleGradKernel = {
    .op = "layer_norm_scale_grad", .supports = supports_scale_gradient, .prepare = prepare_scale_gradient};

}  // namespace tessera
#endif
