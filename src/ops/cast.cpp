// Change of the element type.
#include "ops/build.h"
#include "ops/records.h"
#include "ops/scalar.h"

namespace tessera {
namespace {

std::vector<Type> infer_cast(const Call& call) {
  check_count(call, 1);
  return {{call.in[0].shape, call.attrs.dtype("to")}};
}

// Bool is "not zero"; a plain Cast instruction covers the rest.
ScalarCode cast_code(const Call& call) {
  return scalar_code(call, [&](Value x) {
    const DType to = call.attrs.dtype("to");
    if (to == DType::Bool) return compare(Scalar::NotEqual, x, number(x, 0));
    return x.code->cast(x, to);
  });
}

std::vector<Sample> cast_samples() {
  return {{.in = {"f32[batch:3;hidden:5]"}, .attrs = {{"to", DType::BF16}}},
          {.in = {"bf16[batch:3;hidden:5]"}, .attrs = {{"to", DType::F32}}},
          {.in = {"f32[batch:3;hidden:5]"}, .attrs = {{"to", DType::I32}}},
          {.in = {"i32[rows:2;cols:3;deep:2]"}, .attrs = {{"to", DType::F32}}},
          {.in = {"i32[batch:3;hidden:5]"}, .attrs = {{"to", DType::Bool}}},
          {.in = {"bool[batch:3;hidden:5]"}, .attrs = {{"to", DType::F32}}}};
}

}  // namespace

constinit const Op kCast{
    .name = "cast",
    .doc =
        "x as another element type (attribute to). Floats round to nearest, to i32 towards zero; bool is x "
        "!= 0.",
    .infer = infer_cast,
    .grad =
        [](GradContext& c) {
          if (is_floating(c.in(0).dtype()) && is_floating(c.out().dtype()))
            c.set(0, cast(c.dy(), c.in(0).dtype()));
        },
    .scalar = cast_code,
    .samples = cast_samples,
};

Tensor cast(Arg x, DType type) {
  return x.tensor.dtype() == type ? x.tensor : make(kCast, {x}, {{"to", type}});
}

}  // namespace tessera
