// Component-wise functions of one input, activations excepted (activations.cpp).
#include <cmath>
#include <numbers>

#include "ops/build.h"
#include "ops/records.h"
#include "ops/scalar.h"

namespace tessera {
namespace {

std::vector<Type> infer_same(const Call& call) {
  return {infer_broadcast(call, 1, Numbers::Any)};
}

std::vector<Type> infer_is_finite(const Call& call) {
  return {{infer_broadcast(call, 1, Numbers::Floating).shape, DType::Bool}};
}

// A factor or addend must be a value of the tensor's type.
std::vector<Type> infer_with_number(const Call& call, const char* attr) {
  const Type type = infer_broadcast(call, 1, Numbers::Numeric);
  const double value = call.attrs.number(attr);
  TESSERA_CHECK(is_floating(type.dtype) || (value == std::floor(value) && std::abs(value) < 2147483648.0),
                "{}: {} {} does not fit an i32 tensor; cast the tensor first", call.op->name, attr, value);
  return {type};
}

const char* const kSmall = "f32[batch:3;hidden:5]";
const char* const kOther = "bf16[rows:2;cols:3;deep:2]";

std::vector<Sample> any_values() {
  return {{.in = {kSmall}}, {.in = {kOther}}, {.in = {"i32[batch:3;hidden:5]"}}};
}
std::vector<Sample> floating_values() {
  return {{.in = {kSmall}}, {.in = {kOther}}};
}
std::vector<Sample> positive_values() {
  return {{.in = {kSmall}, .low = 0.5, .high = 3}, {.in = {kOther}, .low = 0.5, .high = 3}};
}
// Both sides of a kink or pole at 0.
std::vector<Sample> off_zero_values() {
  return {{.in = {kSmall}, .low = 0.1, .high = 3}, {.in = {kOther}, .low = -3, .high = -0.1}};
}

}  // namespace

constinit const Op kIdentity{
    .name = "identity",
    .doc = "x.",
    .infer = infer_same,
    .linear = linear_everywhere,
    .grad = [](GradContext& c) { c.set(0, c.dy()); },
    .scalar = [](const Call& call) { return scalar_code(call, [](Value x) { return x; }); },
    .flops = no_flops,
    .samples = any_values,
};

constinit const Op kStopGradient{
    .name = "stop_gradient",
    .doc = "x, through which no gradient flows.",
    .infer = infer_same,
    .linear = linear_everywhere,
    .scalar = [](const Call& call) { return scalar_code(call, [](Value x) { return x; }); },
    .flops = no_flops,
    .samples = any_values,
};

constinit const Op kNeg{
    .name = "neg",
    .doc = "-x.",
    .infer = infer_numeric<1>,
    .linear = linear_everywhere,
    .grad = [](GradContext& c) { c.set(0, neg(c.dy())); },
    .scalar = one_unary<Scalar::Neg>,
    .samples = any_values,
};

constinit const Op kAbs{
    .name = "abs",
    .doc = "|x|; the gradient at 0 is 0.",
    .infer = infer_numeric<1>,
    .grad = [](GradContext& c) { c.set(0, mul(c.dy(), sign(c.in(0)))); },
    .scalar = one_unary<Scalar::Abs>,
    .samples = off_zero_values,
};

constinit const Op kSign{
    .name = "sign",
    .doc = "-1, 0 or 1; no gradient.",
    .infer = infer_numeric<1>,
    .scalar = one_unary<Scalar::Sign>,
    .samples = any_values,
};

constinit const Op kFloor{
    .name = "floor",
    .doc = "The largest integer that is not above x; no gradient.",
    .infer = infer_floating<1>,
    .scalar = one_unary<Scalar::Floor>,
    .samples = floating_values,
};

constinit const Op kSquare{
    .name = "square",
    .doc = "x * x.",
    .infer = infer_numeric<1>,
    .grad = [](GradContext& c) { c.set(0, scale(mul(c.dy(), c.in(0)), 2)); },
    .scalar = [](const Call& call) { return scalar_code(call, [](Value x) { return x * x; }); },
    .samples = any_values,
};

constinit const Op kSqrt{
    .name = "sqrt",
    .doc = "The square root; NaN below 0.",
    .infer = infer_floating<1>,
    .grad = [](GradContext& c) { c.set(0, scale(div(c.dy(), c.out()), 0.5)); },
    .scalar = one_unary<Scalar::Sqrt>,
    .samples = positive_values,
};

constinit const Op kRsqrt{
    .name = "rsqrt",
    .doc = "1 / sqrt(x).",
    .infer = infer_floating<1>,
    .grad =
        [](GradContext& c) {
          const Tensor y = c.out();
          c.set(0, scale(mul(c.dy(), mul(y, square(y))), -0.5));
        },
    .scalar = one_unary<Scalar::Rsqrt>,
    .exact = false,
    .samples = positive_values,
};

constinit const Op kReciprocal{
    .name = "reciprocal",
    .doc = "1 / x.",
    .infer = infer_floating<1>,
    .grad = [](GradContext& c) { c.set(0, neg(mul(c.dy(), square(c.out())))); },
    .scalar = one_unary<Scalar::Reciprocal>,
    .samples = off_zero_values,
};

constinit const Op kExp{
    .name = "exp",
    .doc = "e^x.",
    .infer = infer_floating<1>,
    .grad = [](GradContext& c) { c.set(0, mul(c.dy(), c.out())); },
    .scalar = one_unary<Scalar::Exp>,
    .exact = false,
    .ulps = 8,
    .samples = floating_values,
};

constinit const Op kLog{
    .name = "log",
    .doc = "The natural logarithm; -inf at 0, NaN below.",
    .infer = infer_floating<1>,
    .grad = [](GradContext& c) { c.set(0, div(c.dy(), c.in(0))); },
    .scalar = one_unary<Scalar::Log>,
    .exact = false,
    .samples = positive_values,
};

constinit const Op kSin{
    .name = "sin",
    .doc = "sin x, x in radians.",
    .infer = infer_floating<1>,
    .grad = [](GradContext& c) { c.set(0, mul(c.dy(), cos(c.in(0)))); },
    .scalar = one_unary<Scalar::Sin>,
    .exact = false,
    .samples = floating_values,
};

constinit const Op kCos{
    .name = "cos",
    .doc = "cos x, x in radians.",
    .infer = infer_floating<1>,
    .grad = [](GradContext& c) { c.set(0, neg(mul(c.dy(), sin(c.in(0))))); },
    .scalar = one_unary<Scalar::Cos>,
    .exact = false,
    .samples = floating_values,
};

constinit const Op kErf{
    .name = "erf",
    .doc = "The error function.",
    .infer = infer_floating<1>,
    .grad =
        [](GradContext& c) {
          const Tensor slope = scale(exp(neg(square(c.in(0)))), 2 * std::numbers::inv_sqrtpi);
          c.set(0, mul(c.dy(), slope));
        },
    .scalar = one_unary<Scalar::Erf>,
    .exact = false,
    .samples = floating_values,
};

constinit const Op kScale{
    .name = "scale",
    .doc = "x * factor (attribute); pending sums flow through.",
    .infer = [](const Call& call) { return infer_with_number(call, "factor"); },
    .linear = linear_everywhere,
    .grad = [](GradContext& c) { c.set(0, scale(c.dy(), c.node.attrs.number("factor"))); },
    .scalar =
        [](const Call& call) {
          return scalar_code(call, [&](Value x) { return x * number(x, call.attrs.number("factor")); });
        },
    .samples =
        [] {
          return std::vector<Sample>{{.in = {kSmall}, .attrs = {{"factor", -0.5}}},
                                     {.in = {kOther}, .attrs = {{"factor", 4.0}}},
                                     {.in = {"i32[batch:3;hidden:5]"}, .attrs = {{"factor", 3.0}}}};
        },
};

constinit const Op kOffset{
    .name = "offset",
    .doc = "x + addend (attribute).",
    .infer = [](const Call& call) { return infer_with_number(call, "addend"); },
    .grad = [](GradContext& c) { c.set(0, c.dy()); },
    .scalar =
        [](const Call& call) {
          return scalar_code(call, [&](Value x) { return x + call.attrs.number("addend"); });
        },
    .samples =
        [] {
          return std::vector<Sample>{{.in = {kSmall}, .attrs = {{"addend", 10.0}}},
                                     {.in = {"i32[batch:3;hidden:5]"}, .attrs = {{"addend", -3.0}}}};
        },
};

constinit const Op kPowScalar{
    .name = "pow_scalar",
    .doc = "x to the power `exponent` (attribute).",
    .infer = infer_floating<1>,
    .grad =
        [](GradContext& c) {
          const double exponent = c.node.attrs.number("exponent");
          if (exponent == 0) return;
          c.set(0, scale(mul(c.dy(), pow(c.in(0), exponent - 1)), exponent));
        },
    .scalar =
        [](const Call& call) {
          return scalar_code(call, [&](Value x) {
            return binary(Scalar::Pow, x, number(x, call.attrs.number("exponent")));
          });
        },
    .exact = false,
    .ulps = 16,
    .samples =
        [] {
          return std::vector<Sample>{{.in = {kSmall}, .attrs = {{"exponent", 3.0}}},
                                     {.in = {kOther}, .attrs = {{"exponent", -0.7}}, .low = 0.5, .high = 3}};
        },
};

constinit const Op kLogicalNot{
    .name = "logical_not",
    .doc = "True where x is false.",
    .infer = infer_bool<1>,
    .scalar = one_unary<Scalar::Not>,
    .samples = [] { return std::vector<Sample>{{.in = {"bool[batch:3;hidden:5]"}}}; },
};

constinit const Op kIsFinite{
    .name = "is_finite",
    .doc = "True where x is neither infinite nor NaN.",
    .infer = infer_is_finite,
    .scalar =
        [](const Call& call) {
          return scalar_code(call, [](Value x) { return unary(Scalar::Abs, x) < number(x, INFINITY); });
        },
    .samples = floating_values,
};

Tensor identity(Arg x) {
  return make(kIdentity, {x});
}
Tensor stop_gradient(Arg x) {
  return make(kStopGradient, {x});
}
Tensor neg(Arg x) {
  return make(kNeg, {x});
}
Tensor abs(Arg x) {
  return make(kAbs, {x});
}
Tensor sign(Arg x) {
  return make(kSign, {x});
}
Tensor floor(Arg x) {
  return make(kFloor, {x});
}
Tensor square(Arg x) {
  return make(kSquare, {x});
}
Tensor sqrt(Arg x) {
  return make(kSqrt, {x});
}
Tensor rsqrt(Arg x) {
  return make(kRsqrt, {x});
}
Tensor reciprocal(Arg x) {
  return make(kReciprocal, {x});
}
Tensor exp(Arg x) {
  return make(kExp, {x});
}
Tensor log(Arg x) {
  return make(kLog, {x});
}
Tensor sin(Arg x) {
  return make(kSin, {x});
}
Tensor cos(Arg x) {
  return make(kCos, {x});
}
Tensor erf(Arg x) {
  return make(kErf, {x});
}
Tensor scale(Arg x, double factor) {
  return make(kScale, {x}, {{"factor", factor}});
}
Tensor offset(Arg x, double addend) {
  return make(kOffset, {x}, {{"addend", addend}});
}
Tensor pow(Arg x, double exponent) {
  return make(kPowScalar, {x}, {{"exponent", exponent}});
}
Tensor logical_not(Arg x) {
  return make(kLogicalNot, {x});
}
Tensor is_finite(Arg x) {
  return make(kIsFinite, {x});
}

}  // namespace tessera
