// What RMS norm and layer norm share. Both keep 1/deviation (layer norm the mean, too) in f32 or f64 as
// further outputs, so that the backward pass does not compute them again.
#pragma once

#include "ops/build.h"
#include "ops/loops.h"

namespace tessera {

inline const std::string& norm_dim(const Call& call) {
  return call.attrs.text("dim");
}

// Inputs: x, `parameters` tensors over dimensions of x and of its type, `statistics` tensors of x's shape
// without `dim`.
void check_norm(const Call& call, std::size_t parameters, std::size_t statistics);
Type norm_statistic(const Call& call);

Role role_norm(const Call& call, int input, const std::string& dim);
double flops_norm(const Call& call);

// The gradient of the scale: the sum of dy * (x - mean) * inverse over the dimensions that the scale lacks.
// Inputs: x, mean (layer norm only), inverse, dy; attribute `output` names the dimensions of the scale.
std::vector<Type> infer_scale_grad(const Call& call);
Role role_scale_grad(const Call& call, int input, const std::string& dim);
void kernel_scale_grad(KernelContext& c);
std::vector<Tensor> expand_scale_grad(ExpandContext& c);
double flops_scale_grad(const Call& call);
Attrs scale_grad_attrs(const Tensor& scale);

// What a gradient that arrives at the statistic `inverse` (second derivatives) adds to x: -d * inverse^3 *
// centred / n.
Tensor through_inverse(const Tensor& d, const Tensor& inverse, const Tensor& centred, std::int64_t count);

// a + b, where either may be absent.
inline Tensor sum_of(const Tensor& a, const Tensor& b) {
  return !a.valid() ? b : !b.valid() ? a : add(a, b);
}

}  // namespace tessera
