// Softmax, its logarithm, its gradient and log-sum-exp along the last dimension, in f32 registers.
#include <cmath>

#include "base/simd.h"
#include "exec/cpu/records.h"
#include "exec/cpu/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "exec/cpu/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
constexpr auto kLanes = static_cast<std::int64_t>(HWY_LANES(float));

// The sum of exp(x - max); with kKeep the exponentials stay in `exps`, which may be the row itself.
template <bool kKeep, class T>
float sum_exp(const T* x, float max, std::int64_t n, float* exps) {
  const hn::ScalableTag<float> d;
  const auto shift = hn::Set(d, max);
  return sum_row(d, n, [&](std::int64_t i) HWY_ATTR {
    const auto e = vector_exp(d, hn::Sub(read(d, x, i, n, -INFINITY), shift));
    if constexpr (kKeep) write(d, e, exps, i, n);
    return e;
  });
}

template <class T>
void softmax_row(const T* x, T* y, std::int64_t n, float* scratch) {
  const hn::ScalableTag<float> d;
  float* exps = scratch;
  if constexpr (std::is_same_v<T, float>) exps = y;
  const float sum = sum_exp<true>(x, max_row(d, x, n), n, exps);
  const auto factor = hn::Set(d, sum == 0 ? 0 : 1 / sum);
  for (std::int64_t i = 0; i < n; i += kLanes) write(d, hn::Mul(read(d, exps, i, n), factor), y, i, n);
}

template <class T>
void log_softmax_row(const T* x, T* y, std::int64_t n) {
  const hn::ScalableTag<float> d;
  const float max = max_row(d, x, n), sum = sum_exp<false>(x, max, n, nullptr);
  const auto shift = hn::Set(d, max), log_sum = hn::Set(d, sum == 0 ? 0 : std::log(sum));
  for (std::int64_t i = 0; i < n; i += kLanes) {
    write(d, hn::Sub(hn::Sub(read(d, x, i, n), shift), log_sum), y, i, n);
  }
}

template <class T>
void softmax_grad_row(const T* y, const T* dy, T* dx, std::int64_t n) {
  const hn::ScalableTag<float> d;
  const float sum =
      sum_row(d, n, [&](std::int64_t i) HWY_ATTR { return hn::Mul(read(d, y, i, n), read(d, dy, i, n)); });
  const auto level = hn::Set(d, sum);
  for (std::int64_t i = 0; i < n; i += kLanes) {
    write(d, hn::Mul(read(d, y, i, n), hn::Sub(read(d, dy, i, n), level)), dx, i, n);
  }
}

template <class T>
void typed_rows(RowOp op, const void* in, const void* in2, void* out, std::int64_t begin, std::int64_t end,
                std::int64_t n, float* scratch) {
  const hn::ScalableTag<float> d;
  for (std::int64_t r = begin; r < end; ++r) {
    const T* x = static_cast<const T*>(in) + r * n;
    T* y = static_cast<T*>(out) + (op == RowOp::LogSumExp ? r : r * n);
    switch (op) {
      case RowOp::Softmax:
        softmax_row(x, y, n, scratch);
        break;
      case RowOp::LogSoftmax:
        log_softmax_row(x, y, n);
        break;
      case RowOp::SoftmaxGrad:
        softmax_grad_row(x, static_cast<const T*>(in2) + r * n, y, n);
        break;
      case RowOp::LogSumExp: {
        const float max = max_row(d, x, n);
        *y = T(std::log(sum_exp<false>(x, max, n, nullptr)) + max);
      }
    }
  }
}

}  // namespace

void softmax_rows(RowOp op, DType dtype, const void* in, const void* in2, void* out, std::int64_t begin,
                  std::int64_t end, std::int64_t n, float* scratch) {
  (dtype == DType::F32 ? typed_rows<float> : typed_rows<bf16>)(op, in, in2, out, begin, end, n, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {

HWY_EXPORT(softmax_rows);

namespace {

bool supports(const KernelSite& site) {
  const View& x = site.in[0];
  return is_half_or_single(x.dtype) && is_last(x.shape, site.call.attrs.text("dim"));
}

std::int64_t workspace(const Call& call, const std::vector<Type>& in, const std::vector<Type>&, int threads) {
  return in[0].dtype == DType::BF16 ? in[0].shape.size(call.attrs.text("dim")) * 4 * threads : 0;
}

template <RowOp kOp>
PreparedKernel prepare(const KernelSite& site) {
  const View& x = site.in[0];
  const std::int64_t n = x.shape.size(site.call.attrs.text("dim")), rows = x.elements() / n;
  return [dtype = x.dtype, n, rows, threads = site.threads](const KernelContext& c, void* scratch) {
    const void* second = c.in.size() > 1 ? c.in[1].data : nullptr;
    over_rows(rows, threads, [&](std::int64_t begin, std::int64_t end, int part) {
      HWY_DYNAMIC_DISPATCH(softmax_rows)
      (kOp, dtype, c.in[0].data, second, c.out[0].data, begin, end, n,
       static_cast<float*>(scratch) + part * n);
    });
  };
}

bool always(const Call&, int, int) {
  return true;
}

}  // namespace

const CpuKernel kSoftmaxKernel = {.op = "softmax",
                                  .supports = supports,
                                  .workspace = workspace,
                                  .prepare = prepare<RowOp::Softmax>,
                                  .in_place = always};
const CpuKernel kLogSoftmaxKernel = {
    .op = "log_softmax", .supports = supports, .prepare = prepare<RowOp::LogSoftmax>, .in_place = always};
const CpuKernel kSoftmaxGradKernel = {
    .op = "softmax_grad", .supports = supports, .prepare = prepare<RowOp::SoftmaxGrad>, .in_place = always};
const CpuKernel kLogSumExpKernel = {
    .op = "log_sum_exp", .supports = supports, .prepare = prepare<RowOp::LogSumExp>};

}  // namespace tessera
#endif
