// Comparison, logic and selection, broadcasting by name.
#include "ops/build.h"
#include "ops/records.h"
#include "ops/scalar.h"

namespace tessera {
namespace {

std::vector<Type> infer_ordering(const Call& call) {
  return {{infer_broadcast(call, 2, Numbers::Numeric).shape, DType::Bool}};
}
std::vector<Type> infer_equality(const Call& call) {
  return {{infer_broadcast(call, 2, Numbers::Any).shape, DType::Bool}};
}

// a > b is b < a, with the shape rule of (a, b).
template <Scalar kOp>
ScalarCode swapped_compare(const Call& call) {
  return scalar_code(call, [](Value a, Value b) { return compare(kOp, b, a); });
}

std::vector<Type> infer_select(const Call& call) {
  check_count(call, 3);
  check_dtype(call, 0, DType::Bool);
  TESSERA_CHECK(call.in[1].dtype == call.in[2].dtype, "select: the branches are {} and {}; cast one of them",
                to_string(call.in[1].dtype), to_string(call.in[2].dtype));
  return {{broadcast_inputs(call), call.in[1].dtype}};
}

std::vector<Type> infer_select_equal(const Call& call) {
  check_count(call, 3);
  TESSERA_CHECK(call.in[0].dtype == call.in[1].dtype, "select_equal: compares {} with {}; cast one of them",
                to_string(call.in[0].dtype), to_string(call.in[1].dtype));
  return {{broadcast_inputs(call), call.in[2].dtype}};
}

void grad_select(GradContext& c) {
  const Tensor zero = scalar_like(c.dy(), 0);
  c.set(1, sum_to(select(c.in(0), c.dy(), zero), c.in(1).shape()));
  c.set(2, sum_to(select(c.in(0), zero, c.dy()), c.in(2).shape()));
}

std::vector<Sample> compare_samples() {
  return {{.in = {"f32[batch:3;hidden:5]", "f32[hidden:5]"}},
          {.in = {"bf16[rows:2;cols:3]", "bf16[cols:3;deep:2]"}},
          {.in = {"i32[rows:2;cols:3]", "i32[rows:2;cols:3]"}}};
}
std::vector<Sample> logical_samples() {
  return {{.in = {"bool[rows:2;cols:5]", "bool[cols:5]"}},
          {.in = {"bool[rows:2;cols:3]", "bool[cols:3;deep:2]"}}};
}

}  // namespace

constinit const Op kLess{
    .name = "less",
    .doc = "a < b.",
    .infer = infer_ordering,
    .scalar = one_compare<Scalar::Less>,
    .samples = compare_samples,
};

constinit const Op kLessEqual{
    .name = "less_equal",
    .doc = "a <= b.",
    .infer = infer_ordering,
    .scalar = one_compare<Scalar::LessEqual>,
    .samples = compare_samples,
};

constinit const Op kGreater{
    .name = "greater",
    .doc = "a > b.",
    .infer = infer_ordering,
    .scalar = swapped_compare<Scalar::Less>,
    .samples = compare_samples,
};

constinit const Op kGreaterEqual{
    .name = "greater_equal",
    .doc = "a >= b.",
    .infer = infer_ordering,
    .scalar = swapped_compare<Scalar::LessEqual>,
    .samples = compare_samples,
};

constinit const Op kEqual{
    .name = "equal",
    .doc = "a == b, of any type; NaN equals nothing.",
    .infer = infer_equality,
    .scalar = one_compare<Scalar::Equal>,
    .samples = compare_samples,
};

constinit const Op kNotEqual{
    .name = "not_equal",
    .doc = "a != b, of any type.",
    .infer = infer_equality,
    .scalar = one_compare<Scalar::NotEqual>,
    .samples = compare_samples,
};

constinit const Op kLogicalAnd{
    .name = "logical_and",
    .doc = "True where both are.",
    .infer = infer_bool<2>,
    .scalar = one_binary<Scalar::And>,
    .samples = logical_samples,
};

constinit const Op kLogicalOr{
    .name = "logical_or",
    .doc = "True where either is.",
    .infer = infer_bool<2>,
    .scalar = one_binary<Scalar::Or>,
    .samples = logical_samples,
};

constinit const Op kSelect{
    .name = "select",
    .doc =
        "a where the condition is true, else b. Never multiplies: a NaN of the branch not taken does not "
        "leak.",
    .infer = infer_select,
    .grad = grad_select,
    .scalar =
        [](const Call& call) {
          return scalar_code(call, [](Value condition, Value a, Value b) { return choose(condition, a, b); });
        },
    .samples =
        [] {
          return std::vector<Sample>{
              {.in = {"bool[batch:3;hidden:5]", "f32[batch:3;hidden:5]", "f32[hidden:5]"}},
              {.in = {"bool[cols:3]", "bf16[rows:2]", "bf16[rows:2;cols:3]"}},
              {.in = {"bool[rows:2;cols:3]", "i32[cols:3]", "i32[]"}}};
        },
};

constinit const Op kSelectEqual{
    .name = "select_equal",
    .doc = "c where a == b, else 0; inputs a, b, c. Part of the gradients of max and min.",
    .infer = infer_select_equal,
    .linear = linear_last,
    .grad =
        [](GradContext& c) {
          c.set(2, sum_to(make(kSelectEqual, {c.in(0), c.in(1), c.dy()}), c.in(2).shape()));
        },
    .scalar =
        [](const Call& call) {
          return scalar_code(call, [](Value a, Value b, Value c) { return choose(a == b, c, number(c, 0)); });
        },
    .samples =
        [] {
          return std::vector<Sample>{{.in = {"i32[batch:3;hidden:5]", "i32[batch:3]", "f32[batch:3]"}},
                                     {.in = {"i32[cols:3;rows:2]", "i32[cols:3;rows:2]", "bf16[rows:2]"}}};
        },
};

Tensor less(Arg a, Arg b) {
  return make(kLess, {a, b});
}
Tensor less_equal(Arg a, Arg b) {
  return make(kLessEqual, {a, b});
}
Tensor greater(Arg a, Arg b) {
  return make(kGreater, {a, b});
}
Tensor greater_equal(Arg a, Arg b) {
  return make(kGreaterEqual, {a, b});
}
Tensor equal(Arg a, Arg b) {
  return make(kEqual, {a, b});
}
Tensor not_equal(Arg a, Arg b) {
  return make(kNotEqual, {a, b});
}
Tensor logical_and(Arg a, Arg b) {
  return make(kLogicalAnd, {a, b});
}
Tensor logical_or(Arg a, Arg b) {
  return make(kLogicalOr, {a, b});
}
Tensor select(Arg condition, Arg a, Arg b) {
  return make(kSelect, {condition, a, b});
}

}  // namespace tessera
