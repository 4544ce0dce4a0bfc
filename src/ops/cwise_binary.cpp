// Component-wise arithmetic of two inputs, broadcasting by name. A gradient is summed over the dimensions
// that its input lacked.
#include "ops/build.h"
#include "ops/records.h"
#include "ops/scalar.h"

namespace tessera {
namespace {

// The gradient of input i, made in the shape of the output.
void set_summed(GradContext& c, int i, const Tensor& dx) {
  c.set(i, sum_to(dx, c.in(i).shape()));
}

bool disjoint(const Shape& a, const Shape& b) {
  for (const Dim& dim : a) {
    if (b.has(dim.name)) return false;
  }
  return true;
}

// Sum of dy * other over the dimensions that input i lacks. For an outer product that is a matrix times a
// vector.
void set_product(GradContext& c, int i, const Tensor& other) {
  const Shape& shape = c.in(i).shape();
  if (!shape.is_scalar() && !other.shape().is_scalar() && disjoint(shape, other.shape())) {
    c.set(i, einsum({c.dy(), other}, shape));
  } else {
    set_summed(c, i, mul(c.dy(), other));
  }
}

void grad_div(GradContext& c) {
  const Tensor da = div(c.dy(), c.in(1));
  set_summed(c, 0, da);
  set_summed(c, 1, neg(mul(da, c.out())));
}

// d/da = b * a^(b-1), 0 where b is 0; d/db = y * log(a), 0 where a is 0.
void grad_pow(GradContext& c) {
  const Tensor a = c.in(0), b = c.in(1);
  const Tensor zero = scalar_like(a, 0), one = scalar_like(a, 1);
  const Tensor power = pow(a, select(equal(b, zero), one, offset(b, -1)));
  set_summed(c, 0, mul(c.dy(), mul(b, power)));
  const Tensor log_a = log(select(equal(a, zero), one, a));
  set_summed(c, 1, mul(c.dy(), mul(c.out(), log_a)));
}

// The gradient that goes to the greater of (a, b), seen from a.
Tensor to_greater(const Tensor& a, const Tensor& b, const Tensor& dy) {
  return make(kMaximumGrad, {a, b, dy});
}

// Equal shapes, each input broadcast, and shapes of which neither holds the other.
std::vector<Sample> pairs(double low, double high) {
  std::vector<Sample> samples;
  for (const auto& in : std::vector<Strings>{{"f32[batch:3;hidden:5]", "f32[batch:3;hidden:5]"},
                                             {"f32[batch:3;hidden:5]", "f32[hidden:5]"},
                                             {"f32[rows:2]", "f32[cols:4;rows:2]"},
                                             {"bf16[rows:2;cols:3]", "bf16[cols:3;deep:2]"}}) {
    samples.push_back({.in = in, .low = low, .high = high});
  }
  return samples;
}
std::vector<Sample> with_i32(std::vector<Sample> samples, double low) {
  samples.push_back({.in = {"i32[rows:2;cols:3]", "i32[cols:3]"}, .index_high = 6, .index_low = low});
  return samples;
}
std::vector<Sample> any_pairs() {
  return with_i32(pairs(-2, 2), -4);
}
std::vector<Sample> positive_pairs() {
  return pairs(0.5, 3);
}
std::vector<Sample> divisor_pairs() {
  return with_i32(pairs(0.5, 3), 1);
}

}  // namespace

constinit const Op kAdd{
    .name = "add",
    .doc = "a + b.",
    .infer = infer_numeric<2>,
    .linear = linear_everywhere,
    .additive = true,
    .grad =
        [](GradContext& c) {
          set_summed(c, 0, c.dy());
          set_summed(c, 1, c.dy());
        },
    .scalar = one_binary<Scalar::Add>,
    .samples = any_pairs,
};

constinit const Op kSub{
    .name = "sub",
    .doc = "a - b.",
    .infer = infer_numeric<2>,
    .linear = linear_everywhere,
    .additive = true,
    .grad =
        [](GradContext& c) {
          set_summed(c, 0, c.dy());
          c.set(1, neg(sum_to(c.dy(), c.in(1).shape())));
        },
    .scalar = one_binary<Scalar::Sub>,
    .samples = any_pairs,
};

constinit const Op kMul{
    .name = "mul",
    .doc = "a * b.",
    .infer = infer_numeric<2>,
    .linear = linear_everywhere,
    .grad =
        [](GradContext& c) {
          set_product(c, 0, c.in(1));
          set_product(c, 1, c.in(0));
        },
    .scalar = one_binary<Scalar::Mul>,
    .samples = any_pairs,
};

constinit const Op kDiv{
    .name = "div",
    .doc = "a / b, floating; floordiv divides integers.",
    .infer = infer_floating<2>,
    .linear = linear_first,
    .grad = grad_div,
    .scalar = one_binary<Scalar::Div>,
    .samples = positive_pairs,
};

constinit const Op kFloordiv{
    .name = "floordiv",
    .doc = "a / b rounded towards minus infinity; an i32 divided by 0 gives 0. No gradient.",
    .infer = infer_numeric<2>,
    .scalar = one_binary<Scalar::FloorDiv>,
    .samples = divisor_pairs,
};

constinit const Op kMod{
    .name = "mod",
    .doc = "a - b * floordiv(a, b), with the sign of b; an i32 modulo 0 gives 0. No gradient.",
    .infer = infer_numeric<2>,
    .scalar = one_binary<Scalar::Mod>,
    .samples = divisor_pairs,
};

constinit const Op kPow{
    .name = "pow",
    .doc = "a to the power b. The gradient of a where b is 0, and of b where a is 0, is 0.",
    .infer = infer_floating<2>,
    .grad = grad_pow,
    .scalar = one_binary<Scalar::Pow>,
    .exact = false,
    .ulps = 16,
    .samples = positive_pairs,
};

constinit const Op kMinimum{
    .name = "minimum",
    .doc = "The smaller of a and b, NaN if either is NaN; on ties each gets half of the gradient.",
    .infer = infer_numeric<2>,
    .grad =
        [](GradContext& c) {
          set_summed(c, 0, to_greater(c.in(1), c.in(0), c.dy()));
          set_summed(c, 1, to_greater(c.in(0), c.in(1), c.dy()));
        },
    .scalar = one_binary<Scalar::Min>,
    .samples = any_pairs,
};

constinit const Op kMaximum{
    .name = "maximum",
    .doc = "The greater of a and b, NaN if either is NaN; on ties each gets half of the gradient.",
    .infer = infer_numeric<2>,
    .grad =
        [](GradContext& c) {
          set_summed(c, 0, to_greater(c.in(0), c.in(1), c.dy()));
          set_summed(c, 1, to_greater(c.in(1), c.in(0), c.dy()));
        },
    .scalar = one_binary<Scalar::Max>,
    .samples = any_pairs,
};

constinit const Op kMaximumGrad{
    .name = "maximum_grad",
    .doc = "dy where a > b, dy / 2 where a == b, else 0; inputs a, b, dy.",
    .infer = infer_floating<3>,
    .linear = linear_last,
    .grad = [](GradContext& c) { set_summed(c, 2, to_greater(c.in(0), c.in(1), c.dy())); },
    .scalar =
        [](const Call& call) {
          return scalar_code(call, [](Value a, Value b, Value dy) {
            return choose(b < a, dy, choose(a == b, 0.5 * dy, number(dy, 0)));
          });
        },
    .samples =
        [] {
          return std::vector<Sample>{
              {.in = {"f32[batch:3;hidden:5]", "f32[hidden:5]", "f32[batch:3;hidden:5]"}},
              {.in = {"bf16[rows:2]", "bf16[cols:4;rows:2]", "bf16[cols:4;rows:2]"}}};
        },
};

Tensor add(Arg a, Arg b) {
  return make(kAdd, {a, b});
}
Tensor sub(Arg a, Arg b) {
  return make(kSub, {a, b});
}
Tensor mul(Arg a, Arg b) {
  return make(kMul, {a, b});
}
Tensor div(Arg a, Arg b) {
  return make(kDiv, {a, b});
}
Tensor floordiv(Arg a, Arg b) {
  return make(kFloordiv, {a, b});
}
Tensor mod(Arg a, Arg b) {
  return make(kMod, {a, b});
}
Tensor pow(Arg a, Arg b) {
  return make(kPow, {a, b});
}
Tensor minimum(Arg a, Arg b) {
  return make(kMinimum, {a, b});
}
Tensor maximum(Arg a, Arg b) {
  return make(kMaximum, {a, b});
}

}  // namespace tessera
