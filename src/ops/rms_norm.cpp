// RMS norm and its gradients.
#include "ops/norm.h"
#include "ops/records.h"

namespace tessera {
namespace {

std::vector<Type> infer_rms_norm(const Call& call) {
  check_count(call, 2);
  check_norm(call, 1, 0);
  return {call.in[0], norm_statistic(call)};
}

std::vector<Type> infer_rms_norm_grad(const Call& call) {
  check_count(call, 4);
  check_norm(call, 1, 1);
  TESSERA_CHECK(call.in[3] == call.in[0], "rms_norm_grad: x is {} but dy is {}", to_string(call.in[0]),
                to_string(call.in[3]));
  return {call.in[0]};
}

void kernel_rms_norm(KernelContext& c) {
  const std::string& dim = norm_dim(c.call);
  const std::int64_t count = c.in[0].shape.size(dim);
  const double epsilon = c.call.attrs.number("epsilon");
  with_floating(c.in[0].dtype, [&]<class T>() {
    const Line<T> x(c.in[0], dim), scale(c.in[1], dim), y(c.out[0], dim);
    for_each_line(
        c.in[0].shape, dim,
        [&](auto at) {
          const double squares =
              sum_over(count, [&](std::int64_t i) { return x.at(at[0], i) * x.at(at[0], i); });
          const double inverse = 1 / std::sqrt(squares / static_cast<double>(count) + epsilon);
          c.out[1].as<Stat<T>>()[at[3]] = static_cast<Stat<T>>(inverse);
          for (std::int64_t i = 0; i < count; ++i)
            y.set(at[2], i, x.at(at[0], i) * inverse * scale.at(at[1], i));
        },
        c.in[0], c.in[1], c.out[0], c.out[1]);
  });
}

void kernel_rms_norm_grad(KernelContext& c) {
  const std::string& dim = norm_dim(c.call);
  const std::int64_t count = c.in[0].shape.size(dim);
  with_floating(c.in[0].dtype, [&]<class T>() {
    const Line<T> x(c.in[0], dim), scale(c.in[1], dim), dy(c.in[3], dim), dx(c.out[0], dim);
    for_each_line(
        c.in[0].shape, dim,
        [&](auto at) {
          const double inverse = c.in[2].as<Stat<T>>()[at[2]];
          const auto g = [&](std::int64_t i) { return dy.at(at[3], i) * scale.at(at[1], i); };
          const double dot = sum_over(count, [&](std::int64_t i) { return g(i) * x.at(at[0], i); });
          const double slope = dot * inverse * inverse / static_cast<double>(count);
          for (std::int64_t i = 0; i < count; ++i)
            dx.set(at[4], i, inverse * (g(i) - x.at(at[0], i) * slope));
        },
        c.in[0], c.in[1], c.in[2], c.in[3], c.out[0]);
  });
}

std::vector<Tensor> expand_rms_norm(ExpandContext& c) {
  const Tensor x = widened(c.inputs[0]), scale = widened(c.inputs[1]);
  const Tensor squares = reduce_mean(square(x), {norm_dim(c.call)});
  const Tensor inverse = rsqrt(offset(squares, c.call.attrs.number("epsilon")));
  return {cast(mul(mul(x, inverse), scale), c.inputs[0].dtype()), inverse};
}

std::vector<Tensor> expand_rms_norm_grad(ExpandContext& c) {
  const Tensor x = widened(c.inputs[0]), inverse = c.inputs[2];
  const Tensor g = mul(widened(c.inputs[3]), widened(c.inputs[1]));
  const Tensor slope = mul(reduce_mean(mul(g, x), {norm_dim(c.call)}), square(inverse));
  return {cast(mul(sub(g, mul(x, slope)), inverse), c.inputs[0].dtype())};
}

void grad_rms_norm(GradContext& c) {
  const Tensor x = c.in(0), scale = c.in(1), inverse = c.out(1);
  Tensor dx;
  if (c.dy().valid()) {
    dx = make(kRmsNormGrad, {x, scale, inverse, c.dy()}, {{"dim", c.node.attrs.text("dim")}});
    c.set(1, make(kRmsNormScaleGrad, {x, inverse, c.dy()}, scale_grad_attrs(scale)));
  }
  if (c.dy(1).valid()) {
    dx = sum_of(dx, through_inverse(c.dy(1), inverse, x, x.shape().size(c.node.attrs.text("dim"))));
  }
  c.set(0, dx);
}

std::vector<Sample> rms_forward_samples() {
  const Attrs hidden{{"dim", "hidden"}, {"epsilon", 1e-6}}, length{{"dim", "length"}, {"epsilon", 1e-3}};
  return {{.in = {"f32[batch:3;length:2;hidden:5]", "f32[hidden:5]"}, .attrs = hidden},
          {.in = {"bf16[batch:2;length:6;hidden:3]", "bf16[hidden:3;length:6]"}, .attrs = length}};
}
std::vector<Sample> rms_grad_samples() {
  return {{.in = {"f32[batch:3;length:2;hidden:5]", "f32[hidden:5]", "f32[batch:3;length:2]",
                  "f32[batch:3;length:2;hidden:5]"},
           .attrs = {{"dim", "hidden"}}},
          {.in = {"bf16[batch:2;length:6;hidden:3]", "bf16[hidden:3;length:6]", "f32[batch:2;hidden:3]",
                  "bf16[batch:2;length:6;hidden:3]"},
           .attrs = {{"dim", "length"}}}};
}
std::vector<Sample> rms_scale_grad_samples() {
  return {
      {.in = {"f32[batch:3;length:2;hidden:5]", "f32[batch:3;length:2]", "f32[batch:3;length:2;hidden:5]"},
       .attrs = {{"output", Strings{"hidden"}}}},
      {.in = {"bf16[batch:2;length:6;hidden:3]", "f32[batch:2;hidden:3]", "bf16[batch:2;length:6;hidden:3]"},
       .attrs = {{"output", Strings{"hidden", "length"}}}}};
}

}  // namespace

constinit const Op kRmsNorm{
    .name = "rms_norm",
    .doc =
        "x * inverse * scale, inverse = 1 / sqrt(mean(x^2) + epsilon) along `dim`, computed in f32 or f64. "
        "Outputs: y, "
        "inverse.",
    .infer = infer_rms_norm,
    .role = role_norm,
    .grad = grad_rms_norm,
    .kernel = kernel_rms_norm,
    .expand = expand_rms_norm,
    .flops = flops_norm,
    .exact = false,
    .ulps = 16,
    .samples = rms_forward_samples,
};

constinit const Op kRmsNormGrad{
    .name = "rms_norm_grad",
    .doc = "The gradient of rms_norm to x. Inputs: x, scale, inverse, dy.",
    .infer = infer_rms_norm_grad,
    .role = role_norm,
    .linear = linear_last,
    .kernel = kernel_rms_norm_grad,
    .expand = expand_rms_norm_grad,
    .flops = flops_norm,
    .exact = false,
    .ulps = 32,
    .samples = rms_grad_samples,
};

constinit const Op kRmsNormScaleGrad{
    .name = "rms_norm_scale_grad",
    .doc =
        "The gradient of rms_norm to the scale: dy * x * inverse, summed to the dimensions named by "
        "`output`. Inputs: "
        "x, inverse, dy.",
    .infer = infer_scale_grad,
    .role = role_scale_grad,
    .kernel = kernel_scale_grad,
    .expand = expand_scale_grad,
    .flops = flops_scale_grad,
    .exact = false,
    .ulps = 32,
    .samples = rms_scale_grad_samples,
};

Tensor rms_norm(Arg x, Arg scale, const std::string& dim, double epsilon) {
  return make(kRmsNorm, {x, scale}, {{"dim", dim}, {"epsilon", epsilon}});
}

}  // namespace tessera
