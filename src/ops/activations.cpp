// Activation functions. Each gradient is one component-wise record, so that a fused loop makes it in one pass. It reads
// the output where the slope can be told from it (the output is kept for the next layer anyway), else the input.
#include <cmath>
#include <numbers>

#include "ops/build.h"
#include "ops/records.h"
#include "ops/scalar.h"

namespace tessera {
namespace {

// Gradients are records of (x or y, dy), linear in dy.
const char* const kSmall = "f32[batch:3;hidden:5]";
const char* const kOther = "bf16[rows:2;cols:3;deep:2]";

std::vector<Sample> smooth() { return {{.in = {kSmall}}, {.in = {kOther}}}; }
std::vector<Sample> off_zero() {
  return {{.in = {kSmall}, .low = 0.1, .high = 3}, {.in = {kOther}, .low = -3, .high = -0.1}};
}
std::vector<Sample> smooth_grad() { return {{.in = {kSmall, kSmall}}, {.in = {kOther, kOther}}}; }
std::vector<Sample> off_zero_grad() {
  return {{.in = {kSmall, kSmall}, .low = 0.1, .high = 3}, {.in = {kOther, kOther}, .low = -0.9, .high = -0.1}};
}

// swish and gelu are x * sigmoid(v(x)); these are v, its first and its second derivative.
constexpr double kGeluScale = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // 2 * sqrt(2 / pi)
constexpr double kGeluCube = 0.044715;

Value gelu_gate(Value x) { return unary(Scalar::Sigmoid, kGeluScale * (x + kGeluCube * (x * x * x))); }

Value gated_grad(Value x, Value s, Value v1, Value dy) { return dy * (s + x * s * (1 - s) * v1); }

// d/dx of dy * (x * sigmoid(v))' times g: g * dy * (2 s' v' + x (s' (1 - 2 s) v'^2 + s' v'')), with s' = s (1 - s).
Tensor gated_second(const Tensor& x, const Tensor& v, const Tensor& v1, const Tensor& v2, const Tensor& g_dy) {
  const Tensor s = sigmoid(v);
  const Tensor s1 = s * (1.0 - s);
  const Tensor curve = s1 * (1.0 - s * 2.0) * square(v1) + s1 * v2;
  return g_dy * (s1 * v1 * 2.0 + x * curve);
}

constexpr double kSeluScale = 1.0507009873554805, kSeluAlpha = 1.6732632423543772;

Value normal_distribution(Value x) { return 0.5 * (1 + unary(Scalar::Erf, x * number(x, std::numbers::sqrt2 / 2))); }

constexpr double kNormalDensity = std::numbers::inv_sqrtpi / std::numbers::sqrt2;  // 1 / sqrt(2 pi)

}  // namespace

constinit const Op kTanh{
    .name = "tanh",
    .doc = "The hyperbolic tangent.",
    .infer = infer_floating<1>,
    .grad = [](GradContext& c) { c.set(0, make(kTanhGrad, {c.out(), c.dy()})); },
    .scalar = one_unary<Scalar::Tanh>,
    .exact = false,
    .samples = smooth,
};

constinit const Op kTanhGrad{
    .name = "tanh_grad",
    .doc = "(1 - y^2) * dy: the gradient of y = tanh x.",
    .infer = infer_floating<2>,
    .linear = linear_last,
    .grad =
        [](GradContext& c) {
          c.set(0, scale(mul(mul(c.dy(), c.in(1)), c.in(0)), -2));
          c.set(1, make(kTanhGrad, {c.in(0), c.dy()}));
        },
    .scalar =
        [](const Call& call) { return scalar_code(call, [](Value y, Value dy) { return (1 - y * y) * dy; }); },
    .exact = false,
    .samples = smooth_grad,
};

constinit const Op kSigmoid{
    .name = "sigmoid",
    .doc = "1 / (1 + exp(-x)).",
    .infer = infer_floating<1>,
    .grad = [](GradContext& c) { c.set(0, make(kSigmoidGrad, {c.out(), c.dy()})); },
    .scalar = one_unary<Scalar::Sigmoid>,
    .exact = false,
    .samples = smooth,
};

constinit const Op kSigmoidGrad{
    .name = "sigmoid_grad",
    .doc = "y * (1 - y) * dy: the gradient of y = sigmoid x.",
    .infer = infer_floating<2>,
    .linear = linear_last,
    .grad =
        [](GradContext& c) {
          c.set(0, mul(mul(c.dy(), c.in(1)), 1.0 - scale(c.in(0), 2)));
          c.set(1, make(kSigmoidGrad, {c.in(0), c.dy()}));
        },
    .scalar =
        [](const Call& call) { return scalar_code(call, [](Value y, Value dy) { return y * (1 - y) * dy; }); },
    .exact = false,
    .samples = smooth_grad,
};

constinit const Op kSoftplus{
    .name = "softplus",
    .doc = "log(1 + exp(x)), as max(x, 0) + log1p(exp(-|x|)).",
    .infer = infer_floating<1>,
    .grad = [](GradContext& c) { c.set(0, mul(c.dy(), sigmoid(c.in(0)))); },
    .scalar =
        [](const Call& call) {
          return scalar_code(call, [](Value x) {
            const Value tail = unary(Scalar::Exp, unary(Scalar::Neg, unary(Scalar::Abs, x)));
            return binary(Scalar::Max, x, number(x, 0)) + unary(Scalar::Log1p, tail);
          });
        },
    .exact = false,
    .samples = smooth,
};

constinit const Op kRelu{
    .name = "relu",
    .doc = "max(x, 0); the gradient at 0 is 0.",
    .infer = infer_numeric<1>,
    .grad = [](GradContext& c) { c.set(0, make(kReluGrad, {c.out(), c.dy()})); },
    .scalar =
        [](const Call& call) {
          return scalar_code(call, [](Value x) { return binary(Scalar::Max, x, number(x, 0)); });
        },
    .samples = off_zero,
};

constinit const Op kReluGrad{
    .name = "relu_grad",
    .doc = "dy where y > 0, else 0.",
    .infer = infer_floating<2>,
    .linear = linear_last,
    .grad = [](GradContext& c) { c.set(1, make(kReluGrad, {c.in(0), c.dy()})); },
    .scalar =
        [](const Call& call) {
          return scalar_code(call, [](Value y, Value dy) { return choose(y > 0, dy, number(dy, 0)); });
        },
    .samples = off_zero_grad,
};

constinit const Op kLeakyRelu{
    .name = "leaky_relu",
    .doc = "x where x > 0, else alpha * x (attribute alpha).",
    .infer = infer_floating<1>,
    .grad = [](GradContext& c) { c.set(0, make(kLeakyReluGrad, {c.in(0), c.dy()}, c.node.attrs)); },
    .scalar =
        [](const Call& call) {
          return scalar_code(call, [&](Value x) {
            return choose(x > 0, x, x * number(x, call.attrs.number("alpha")));
          });
        },
    .samples = [] {
      return std::vector<Sample>{{.in = {kSmall}, .attrs = {{"alpha", 0.25}}, .low = 0.1, .high = 3},
                                 {.in = {kOther}, .attrs = {{"alpha", 0.25}}, .low = -3, .high = -0.1}};
    },
};

constinit const Op kLeakyReluGrad{
    .name = "leaky_relu_grad",
    .doc = "dy where x > 0, else alpha * dy.",
    .infer = infer_floating<2>,
    .linear = linear_last,
    .grad = [](GradContext& c) { c.set(1, make(kLeakyReluGrad, {c.in(0), c.dy()}, c.node.attrs)); },
    .scalar =
        [](const Call& call) {
          return scalar_code(call, [&](Value x, Value dy) {
            return choose(x > 0, dy, dy * number(dy, call.attrs.number("alpha")));
          });
        },
    .samples = [] {
      return std::vector<Sample>{{.in = {kSmall, kSmall}, .attrs = {{"alpha", 0.25}}, .low = 0.1, .high = 3},
                                 {.in = {kOther, kOther}, .attrs = {{"alpha", 0.25}}, .low = -3, .high = -0.1}};
    },
};

constinit const Op kElu{
    .name = "elu",
    .doc = "x where x > 0, else exp(x) - 1.",
    .infer = infer_floating<1>,
    .grad = [](GradContext& c) { c.set(0, make(kEluGrad, {c.out(), c.dy()})); },
    .scalar =
        [](const Call& call) {
          return scalar_code(call, [](Value x) { return choose(x > 0, x, unary(Scalar::Expm1, x)); });
        },
    .exact = false,
    .samples = off_zero,
};

constinit const Op kEluGrad{
    .name = "elu_grad",
    .doc = "dy where y > 0, else (y + 1) * dy: the gradient of y = elu x.",
    .infer = infer_floating<2>,
    .linear = linear_last,
    .grad =
        [](GradContext& c) {
          c.set(0, make(kReluGrad, {neg(c.in(0)), mul(c.dy(), c.in(1))}));
          c.set(1, make(kEluGrad, {c.in(0), c.dy()}));
        },
    .scalar =
        [](const Call& call) {
          return scalar_code(call, [](Value y, Value dy) { return choose(y > 0, dy, (y + 1) * dy); });
        },
    .exact = false,
    .samples = off_zero_grad,
};

constinit const Op kSelu{
    .name = "selu",
    .doc = "1.0507 * (x where x > 0, else 1.6733 * (exp(x) - 1)).",
    .infer = infer_floating<1>,
    .grad = [](GradContext& c) { c.set(0, make(kSeluGrad, {c.out(), c.dy()})); },
    .scalar =
        [](const Call& call) {
          return scalar_code(call, [](Value x) {
            return kSeluScale * choose(x > 0, x, kSeluAlpha * unary(Scalar::Expm1, x));
          });
        },
    .exact = false,
    .samples = off_zero,
};

constinit const Op kSeluGrad{
    .name = "selu_grad",
    .doc = "The gradient of y = selu x, from y and dy.",
    .infer = infer_floating<2>,
    .linear = linear_last,
    .grad =
        [](GradContext& c) {
          c.set(0, make(kReluGrad, {neg(c.in(0)), mul(c.dy(), c.in(1))}));
          c.set(1, make(kSeluGrad, {c.in(0), c.dy()}));
        },
    .scalar =
        [](const Call& call) {
          return scalar_code(call, [](Value y, Value dy) {
            return choose(y > 0, number(y, kSeluScale), y + kSeluScale * kSeluAlpha) * dy;
          });
        },
    .exact = false,
    .samples = off_zero_grad,
};

constinit const Op kSwish{
    .name = "swish",
    .doc = "x * sigmoid(x).",
    .infer = infer_floating<1>,
    .grad = [](GradContext& c) { c.set(0, make(kSwishGrad, {c.in(0), c.dy()})); },
    .scalar =
        [](const Call& call) { return scalar_code(call, [](Value x) { return x * unary(Scalar::Sigmoid, x); }); },
    .exact = false,
    .samples = smooth,
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
    .samples = smooth_grad,
};

constinit const Op kGelu{
    .name = "gelu",
    .doc = "x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))), as x times a sigmoid.",
    .infer = infer_floating<1>,
    .grad = [](GradContext& c) { c.set(0, make(kGeluGrad, {c.in(0), c.dy()})); },
    .scalar = [](const Call& call) { return scalar_code(call, [](Value x) { return x * gelu_gate(x); }); },
    .exact = false,
    .samples = smooth,
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
    .samples = smooth_grad,
};

constinit const Op kGeluErf{
    .name = "gelu_erf",
    .doc = "x times the normal distribution function: x/2 * (1 + erf(x / sqrt(2))).",
    .infer = infer_floating<1>,
    .grad = [](GradContext& c) { c.set(0, make(kGeluErfGrad, {c.in(0), c.dy()})); },
    .scalar =
        [](const Call& call) { return scalar_code(call, [](Value x) { return x * normal_distribution(x); }); },
    .exact = false,
    .samples = smooth,
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
    .samples = smooth_grad,
};

Tensor tanh(Arg x) { return make(kTanh, {x}); }
Tensor sigmoid(Arg x) { return make(kSigmoid, {x}); }
Tensor softplus(Arg x) { return make(kSoftplus, {x}); }
Tensor relu(Arg x) { return make(kRelu, {x}); }
Tensor leaky_relu(Arg x, double alpha) { return make(kLeakyRelu, {x}, {{"alpha", alpha}}); }
Tensor elu(Arg x) { return make(kElu, {x}); }
Tensor selu(Arg x) { return make(kSelu, {x}); }
Tensor swish(Arg x) { return make(kSwish, {x}); }
Tensor gelu(Arg x) { return make(kGelu, {x}); }
Tensor gelu_erf(Arg x) { return make(kGeluErf, {x}); }

}  // namespace tessera
