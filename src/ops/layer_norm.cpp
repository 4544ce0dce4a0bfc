// Layer norm and its gradients.
#include "ops/norm.h"
#include "ops/records.h"

namespace tessera {
namespace {

std::vector<Type> infer_layer_norm(const Call& call) {
  check_count(call, 3);
  check_norm(call, 2, 0);
  return {call.in[0], norm_statistic(call), norm_statistic(call)};
}

std::vector<Type> infer_layer_norm_grad(const Call& call) {
  check_count(call, 5);
  check_norm(call, 1, 2);
  TESSERA_CHECK(call.in[4] == call.in[0], "layer_norm_grad: x is {} but dy is {}", to_string(call.in[0]),
                to_string(call.in[4]));
  return {call.in[0]};
}

void kernel_layer_norm(KernelContext& c) {
  const std::string& dim = norm_dim(c.call);
  const std::int64_t count = c.in[0].shape.size(dim);
  const double n = static_cast<double>(count), epsilon = c.call.attrs.number("epsilon");
  with_floating(c.in[0].dtype, [&]<class T>() {
    const Line<T> x(c.in[0], dim), scale(c.in[1], dim), bias(c.in[2], dim), y(c.out[0], dim);
    for_each_line(
        c.in[0].shape, dim,
        [&](auto at) {
          const double mean = sum_over(count, [&](std::int64_t i) { return x.at(at[0], i); }) / n;
          const double squares =
              sum_over(count, [&](std::int64_t i) { return std::pow(x.at(at[0], i) - mean, 2); });
          const double inverse = 1 / std::sqrt(squares / n + epsilon);
          c.out[1].as<Stat<T>>()[at[4]] = static_cast<Stat<T>>(mean);
          c.out[2].as<Stat<T>>()[at[5]] = static_cast<Stat<T>>(inverse);
          for (std::int64_t i = 0; i < count; ++i) {
            y.set(at[3], i, (x.at(at[0], i) - mean) * inverse * scale.at(at[1], i) + bias.at(at[2], i));
          }
        },
        c.in[0], c.in[1], c.in[2], c.out[0], c.out[1], c.out[2]);
  });
}

void kernel_layer_norm_grad(KernelContext& c) {
  const std::string& dim = norm_dim(c.call);
  const std::int64_t count = c.in[0].shape.size(dim);
  const double n = static_cast<double>(count);
  with_floating(c.in[0].dtype, [&]<class T>() {
    const Line<T> x(c.in[0], dim), scale(c.in[1], dim), dy(c.in[4], dim), dx(c.out[0], dim);
    for_each_line(
        c.in[0].shape, dim,
        [&](auto at) {
          const double mean = c.in[2].as<Stat<T>>()[at[2]], inverse = c.in[3].as<Stat<T>>()[at[3]];
          const auto unit = [&](std::int64_t i) { return (x.at(at[0], i) - mean) * inverse; };
          const auto g = [&](std::int64_t i) { return dy.at(at[4], i) * scale.at(at[1], i); };
          const double level = sum_over(count, g) / n;
          const double slope = sum_over(count, [&](std::int64_t i) { return g(i) * unit(i); }) / n;
          for (std::int64_t i = 0; i < count; ++i)
            dx.set(at[5], i, inverse * (g(i) - level - unit(i) * slope));
        },
        c.in[0], c.in[1], c.in[2], c.in[3], c.in[4], c.out[0]);
  });
}

std::vector<Tensor> expand_layer_norm(ExpandContext& c) {
  const Strings dim{norm_dim(c.call)};
  const Tensor x = widened(c.inputs[0]);
  const Tensor mean = reduce_mean(x, dim);
  const Tensor centred = sub(x, mean);
  const Tensor inverse = rsqrt(offset(reduce_mean(square(centred), dim), c.call.attrs.number("epsilon")));
  const Tensor y = add(mul(mul(centred, inverse), widened(c.inputs[1])), widened(c.inputs[2]));
  return {cast(y, c.inputs[0].dtype()), mean, inverse};
}

std::vector<Tensor> expand_layer_norm_grad(ExpandContext& c) {
  const Strings dim{norm_dim(c.call)};
  const Tensor inverse = c.inputs[3];
  const Tensor unit = mul(sub(widened(c.inputs[0]), c.inputs[2]), inverse);
  const Tensor g = mul(widened(c.inputs[4]), widened(c.inputs[1]));
  const Tensor level = reduce_mean(g, dim), slope = reduce_mean(mul(g, unit), dim);
  return {cast(mul(sub(sub(g, level), mul(unit, slope)), inverse), c.inputs[0].dtype())};
}

void grad_layer_norm(GradContext& c) {
  const Tensor x = c.in(0), scale_in = c.in(1), mean = c.out(1), inverse = c.out(2);
  const std::string& dim = c.node.attrs.text("dim");
  const std::int64_t count = x.shape().size(dim);
  Tensor dx;
  if (c.dy().valid()) {
    dx = make(kLayerNormGrad, {x, scale_in, mean, inverse, c.dy()}, {{"dim", dim}});
    c.set(1, make(kLayerNormScaleGrad, {x, mean, inverse, c.dy()}, scale_grad_attrs(scale_in)));
    c.set(2, sum_to(c.dy(), c.in(2).shape()));
  }
  if (c.dy(1).valid()) {
    const Tensor share = cast(scale(c.dy(1), 1.0 / static_cast<double>(count)), x.dtype());
    dx = sum_of(dx, broadcast(share, x.shape()));
  }
  if (c.dy(2).valid()) {
    const Tensor centred = sub(x, cast(mean, x.dtype()));
    dx = sum_of(dx, through_inverse(c.dy(2), inverse, centred, count));
  }
  c.set(0, dx);
}

std::vector<Sample> layer_forward_samples() {
  const Attrs hidden{{"dim", "hidden"}, {"epsilon", 1e-6}}, length{{"dim", "length"}, {"epsilon", 1e-3}};
  return {{.in = {"f32[batch:3;length:2;hidden:5]", "f32[hidden:5]", "f32[hidden:5]"}, .attrs = hidden},
          {.in = {"bf16[batch:2;length:6;hidden:3]", "bf16[hidden:3;length:6]", "bf16[length:6]"},
           .attrs = length}};
}
std::vector<Sample> layer_grad_samples() {
  return {{.in = {"f32[batch:3;length:2;hidden:5]", "f32[hidden:5]", "f32[batch:3;length:2]",
                  "f32[batch:3;length:2]", "f32[batch:3;length:2;hidden:5]"},
           .attrs = {{"dim", "hidden"}}},
          {.in = {"bf16[batch:2;length:6;hidden:3]", "bf16[hidden:3;length:6]", "f32[batch:2;hidden:3]",
                  "f32[batch:2;hidden:3]", "bf16[batch:2;length:6;hidden:3]"},
           .attrs = {{"dim", "length"}}}};
}
std::vector<Sample> layer_scale_grad_samples() {
  return {{.in = {"f32[batch:3;length:2;hidden:5]", "f32[batch:3;length:2]", "f32[batch:3;length:2]",
                  "f32[batch:3;length:2;hidden:5]"},
           .attrs = {{"output", Strings{"hidden"}}}},
          {.in = {"bf16[batch:2;length:6;hidden:3]", "f32[batch:2;hidden:3]", "f32[batch:2;hidden:3]",
                  "bf16[batch:2;length:6;hidden:3]"},
           .attrs = {{"output", Strings{"hidden", "length"}}}}};
}

}  // namespace

constinit const Op kLayerNorm{
    .name = "layer_norm",
    .doc =
        "(x - mean) * inverse * scale + bias, inverse = 1 / sqrt(variance + epsilon) along `dim`, computed "
        "in f32 or "
        "f64. Outputs: y, mean, inverse.",
    .infer = infer_layer_norm,
    .role = role_norm,
    .grad = grad_layer_norm,
    .kernel = kernel_layer_norm,
    .expand = expand_layer_norm,
    .flops = flops_norm,
    .exact = false,
    .ulps = 16,
    .samples = layer_forward_samples,
};

constinit const Op kLayerNormGrad{
    .name = "layer_norm_grad",
    .doc = "The gradient of layer_norm to x. Inputs: x, scale, mean, inverse, dy.",
    .infer = infer_layer_norm_grad,
    .role = role_norm,
    .linear = linear_last,
    .kernel = kernel_layer_norm_grad,
    .expand = expand_layer_norm_grad,
    .flops = flops_norm,
    .exact = false,
    .ulps = 32,
    .samples = layer_grad_samples,
};

constinit const Op kLayerNormScaleGrad{
    .name = "layer_norm_scale_grad",
    .doc =
        "The gradient of layer_norm to the scale: dy * (x - mean) * inverse, summed to the dimensions named "
        "by `output`. "
        "Inputs: x, mean, inverse, dy.",
    .infer = infer_scale_grad,
    .role = role_scale_grad,
    .kernel = kernel_scale_grad,
    .expand = expand_scale_grad,
    .flops = flops_scale_grad,
    .exact = false,
    .ulps = 32,
    .samples = layer_scale_grad_samples,
};

Tensor layer_norm(Arg x, Arg scale, Arg bias, const std::string& dim, double epsilon) {
  return make(kLayerNorm, {x, scale, bias}, {{"dim", dim}, {"epsilon", epsilon}});
}

}  // namespace tessera
