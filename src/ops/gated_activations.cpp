// Activations that multiply their input by a gate: swish, gelu in both forms. Their gradients are
// component-wise records of the input and dy.
#include <numbers>

#include "ops/build.h"
#include "ops/records.h"
#include "ops/scalar.h"

namespace tessera {
namespace {

const char* const kGatedSmall = "f32[batch:3;hidden:5]";
const char* const kGatedOther = "bf16[rows:2;cols:3;deep:2]";

std::vector<Sample> samples() {
  return {{.in = {kGatedSmall}}, {.in = {kGatedOther}}};
}
std::vector<Sample> grad_samples() {
  return {{.in = {kGatedSmall, kGatedSmall}}, {.in = {kGatedOther, kGatedOther}}};
}

// swish and gelu are x * sigmoid(v(x)); these are v, its first and its second derivative.
constexpr double kGeluScale = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // 2 * sqrt(2 / pi)
constexpr double kGeluCube = 0.044715;

Value gelu_gate(Value x) {
  return unary(Scalar::Sigmoid, kGeluScale * (x + kGeluCube * (x * x * x)));
}

Value gated_grad(Value x, Value s, Value v1, Value dy) {
  return dy * (s + x * s * (1 - s) * v1);
}

// d/dx of dy * (x * sigmoid(v))' times g: g * dy * (2 s' v' + x (s' (1 - 2 s) v'^2 + s' v'')), with s' = s (1
// - s).
Tensor gated_second(const Tensor& x, const Tensor& v, const Tensor& v1, const Tensor& v2,
                    const Tensor& g_dy) {
  const Tensor s = sigmoid(v);
  const Tensor s1 = s * (1.0 - s);
  const Tensor curve = s1 * (1.0 - s * 2.0) * square(v1) + s1 * v2;
  return g_dy * (s1 * v1 * 2.0 + x * curve);
}

Value normal_distribution(Value x) {
  return 0.5 * (1 + unary(Scalar::Erf, x * number(x, std::numbers::sqrt2 / 2)));
}

constexpr double kNormalDensity = std::numbers::inv_sqrtpi / std::numbers::sqrt2;  // 1 / sqrt(2 pi)

}  // namespace

constinit const Op kSwish{
    .name = "swish",
    .doc = "x * sigmoid(x).",
    .infer = infer_floating<1>,
    .grad =
        [](GradContext& c) {
          c.set(0, make(kSwishGrad, {c.in(0), c.dy()}));
        },
    .scalar =
        [](const Call& call) {
          return scalar_code(call, [](Value x) { return x * unary(Scalar::Sigmoid, x); });
        },
    .exact = false,
    .samples = samples,
};

constinit const Op kSwishGrad{
    .name = "swish_grad",
    .doc = "The gradient of swish, from x and dy.",
    .infer = infer_floating<2>,
    .linear = linear_last,
    .grad =
        [](GradContext& c) {
          const Tensor x = c.in(0);
          const Tensor one = scalar_like(x, 1), zero = scalar_like(x, 0);
          c.set(0, gated_second(x, x, one, zero, mul(c.dy(), c.in(1))));
          c.set(1, make(kSwishGrad, {x, c.dy()}));
        },
    .scalar =
        [](const Call& call) {
          return scalar_code(call, [](Value x, Value dy) {
            return gated_grad(x, unary(Scalar::Sigmoid, x), number(x, 1), dy);
          });
        },
    .exact = false,
    .samples = grad_samples,
};

constinit const Op kGelu{
    .name = "gelu",
    .doc = "x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))), as x times a sigmoid.",
    .infer = infer_floating<1>,
    .grad =
        [](GradContext& c) {
          c.set(0, make(kGeluGrad, {c.in(0), c.dy()}));
        },
    .scalar = [](const Call& call) { return scalar_code(call, [](Value x) { return x * gelu_gate(x); }); },
    .exact = false,
    .samples = samples,
};

constinit const Op kGeluGrad{
    .name = "gelu_grad",
    .doc = "The gradient of gelu, from x and dy.",
    .infer = infer_floating<2>,
    .linear = linear_last,
    .grad =
        [](GradContext& c) {
          const Tensor x = c.in(0);
          const Tensor v = scale(x + scale(mul(x, square(x)), kGeluCube), kGeluScale);
          const Tensor v1 = offset(scale(square(x), 3 * kGeluCube * kGeluScale), kGeluScale);
          const Tensor v2 = scale(x, 6 * kGeluCube * kGeluScale);
          c.set(0, gated_second(x, v, v1, v2, mul(c.dy(), c.in(1))));
          c.set(1, make(kGeluGrad, {x, c.dy()}));
        },
    .scalar =
        [](const Call& call) {
          return scalar_code(call, [](Value x, Value dy) {
            const Value v1 = kGeluScale * (1 + 3 * kGeluCube * (x * x));
            return gated_grad(x, gelu_gate(x), v1, dy);
          });
        },
    .exact = false,
    .samples = grad_samples,
};

constinit const Op kGeluErf{
    .name = "gelu_erf",
    .doc = "x times the normal distribution function: x/2 * (1 + erf(x / sqrt(2))).",
    .infer = infer_floating<1>,
    .grad =
        [](GradContext& c) {
          c.set(0, make(kGeluErfGrad, {c.in(0), c.dy()}));
        },
    .scalar =
        [](const Call& call) {
          return scalar_code(call, [](Value x) { return x * normal_distribution(x); });
        },
    .exact = false,
    .samples = samples,
};

constinit const Op kGeluErfGrad{
    .name = "gelu_erf_grad",
    .doc = "The gradient of gelu_erf, from x and dy.",
    .infer = infer_floating<2>,
    .linear = linear_last,
    .grad =
        [](GradContext& c) {
          const Tensor x = c.in(0);
          const Tensor density = scale(exp(scale(square(x), -0.5)), kNormalDensity);
          c.set(0, mul(mul(c.dy(), c.in(1)), mul(density, 2.0 - square(x))));
          c.set(1, make(kGeluErfGrad, {x, c.dy()}));
        },
    .scalar =
        [](const Call& call) {
          return scalar_code(call, [](Value x, Value dy) {
            const Value density = kNormalDensity * unary(Scalar::Exp, -0.5 * (x * x));
            return dy * (normal_distribution(x) + x * density);
          });
        },
    .exact = false,
    .samples = grad_samples,
};

Tensor swish(Arg x) {
  return make(kSwish, {x});
}
Tensor gelu(Arg x) {
  return make(kGelu, {x});
}
Tensor gelu_erf(Arg x) {
  return make(kGeluErf, {x});
}

}  // namespace tessera
