// Activation functions. Each gradient is one component-wise record, so that a fused loop makes it in one
// pass. It reads the output where the slope can be told from it (the output is kept for the next layer
// anyway), else the input. Those that multiply their input by a gate are in gated_activations.cpp.
#include "ops/build.h"
#include "ops/records.h"
#include "ops/scalar.h"

namespace tessera {
namespace {

// Gradients are records of (x or y, dy), linear in dy.
const char* const kSmall = "f32[batch:3;hidden:5]";
const char* const kOther = "bf16[rows:2;cols:3;deep:2]";

std::vector<Sample> smooth() {
  return {{.in = {kSmall}}, {.in = {kOther}}};
}
std::vector<Sample> off_zero() {
  return {{.in = {kSmall}, .low = 0.1, .high = 3}, {.in = {kOther}, .low = -3, .high = -0.1}};
}
std::vector<Sample> smooth_grad() {
  return {{.in = {kSmall, kSmall}}, {.in = {kOther, kOther}}};
}
std::vector<Sample> off_zero_grad() {
  return {{.in = {kSmall, kSmall}, .low = 0.1, .high = 3},
          {.in = {kOther, kOther}, .low = -0.9, .high = -0.1}};
}

constexpr double kSeluScale = 1.0507009873554805, kSeluAlpha = 1.6732632423543772;

}  // namespace

constinit const Op kTanh{
    .name = "tanh",
    .doc = "The hyperbolic tangent.",
    .infer = infer_floating<1>,
    .grad =
        [](GradContext& c) {
          c.set(0, make(kTanhGrad, {c.out(), c.dy()}));
        },
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
        [](const Call& call) {
          return scalar_code(call, [](Value y, Value dy) { return (1 - y * y) * dy; });
        },
    .exact = false,
    .samples = smooth_grad,
};

constinit const Op kSigmoid{
    .name = "sigmoid",
    .doc = "1 / (1 + exp(-x)).",
    .infer = infer_floating<1>,
    .grad =
        [](GradContext& c) {
          c.set(0, make(kSigmoidGrad, {c.out(), c.dy()}));
        },
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
        [](const Call& call) {
          return scalar_code(call, [](Value y, Value dy) { return y * (1 - y) * dy; });
        },
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
    .grad =
        [](GradContext& c) {
          c.set(0, make(kReluGrad, {c.out(), c.dy()}));
        },
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
    .grad =
        [](GradContext& c) {
          c.set(1, make(kReluGrad, {c.in(0), c.dy()}));
        },
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
    .grad =
        [](GradContext& c) {
          c.set(0, make(kLeakyReluGrad, {c.in(0), c.dy()}, c.node.attrs));
        },
    .scalar =
        [](const Call& call) {
          return scalar_code(
              call, [&](Value x) { return choose(x > 0, x, x * number(x, call.attrs.number("alpha"))); });
        },
    .samples =
        [] {
          return std::vector<Sample>{{.in = {kSmall}, .attrs = {{"alpha", 0.25}}, .low = 0.1, .high = 3},
                                     {.in = {kOther}, .attrs = {{"alpha", 0.25}}, .low = -3, .high = -0.1}};
        },
};

constinit const Op kLeakyReluGrad{
    .name = "leaky_relu_grad",
    .doc = "dy where x > 0, else alpha * dy.",
    .infer = infer_floating<2>,
    .linear = linear_last,
    .grad =
        [](GradContext& c) {
          c.set(1, make(kLeakyReluGrad, {c.in(0), c.dy()}, c.node.attrs));
        },
    .scalar =
        [](const Call& call) {
          return scalar_code(call, [&](Value x, Value dy) {
            return choose(x > 0, dy, dy * number(dy, call.attrs.number("alpha")));
          });
        },
    .samples =
        [] {
          return std::vector<Sample>{
              {.in = {kSmall, kSmall}, .attrs = {{"alpha", 0.25}}, .low = 0.1, .high = 3},
              {.in = {kOther, kOther}, .attrs = {{"alpha", 0.25}}, .low = -3, .high = -0.1}};
        },
};

constinit const Op kElu{
    .name = "elu",
    .doc = "x where x > 0, else exp(x) - 1.",
    .infer = infer_floating<1>,
    .grad =
        [](GradContext& c) {
          c.set(0, make(kEluGrad, {c.out(), c.dy()}));
        },
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
    .grad =
        [](GradContext& c) {
          c.set(0, make(kSeluGrad, {c.out(), c.dy()}));
        },
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

Tensor tanh(Arg x) {
  return make(kTanh, {x});
}
Tensor sigmoid(Arg x) {
  return make(kSigmoid, {x});
}
Tensor softplus(Arg x) {
  return make(kSoftplus, {x});
}
Tensor relu(Arg x) {
  return make(kRelu, {x});
}
Tensor leaky_relu(Arg x, double alpha) {
  return make(kLeakyRelu, {x}, {{"alpha", alpha}});
}
Tensor elu(Arg x) {
  return make(kElu, {x});
}
Tensor selu(Arg x) {
  return make(kSelu, {x});
}

}  // namespace tessera
