// Index of the maximum. Where its dimension is split it is a maximum and a minimum over all shards.
#include "ops/build.h"
#include "ops/loops.h"
#include "ops/records.h"

namespace tessera {
namespace {

std::vector<Type> infer_argmax(const Call& call) {
  check_count(call, 1);
  const std::string& dim = call.attrs.text("dim");
  check_has(call, 0, dim);
  TESSERA_CHECK(call.in[0].dtype != DType::Bool, "argmax: the input is bool; cast it to a number first");
  const Shape& shape = call.in[0].shape;
  TESSERA_CHECK(shape.size(dim) > 0, "argmax: dimension '{}' of [{}] has no elements", dim, to_string(shape));
  return {{shape.without(dim), DType::I32}};
}

Role role_argmax(const Call& call, int, const std::string& dim) {
  return dim == call.attrs.text("dim") ? Role::Whole : Role::Map;
}

void kernel_argmax(KernelContext& c) {
  const std::string& dim = c.call.attrs.text("dim");
  with_numeric(c.in[0].dtype, [&]<class T>() {
    const Line<T> x(c.in[0], dim);
    const std::int64_t count = c.in[0].shape.size(dim);
    for_each_line(
        c.out[0].shape, dim,
        [&](auto at) {
          std::int64_t best = 0;
          for (std::int64_t i = 1; i < count && !std::isnan(x.at(at[0], best)); ++i) {
            const double value = x.at(at[0], i);
            if (value > x.at(at[0], best) || std::isnan(value)) best = i;
          }
          c.out[0].as<std::int32_t>()[at[1]] = static_cast<std::int32_t>(best);
        },
        c.in[0], c.out[0]);
  });
}

// The lowest index that holds the maximum; a NaN is the maximum, though it equals nothing.
std::vector<Tensor> expand_argmax(ExpandContext& c) {
  const std::string& dim = c.call.attrs.text("dim");
  const Tensor x = c.inputs[0];
  const Dim over = x.dim(dim);
  Tensor found = equal(x, reduce_max(x, {dim}));
  if (is_floating(x.dtype())) found = logical_or(found, not_equal(x, x));
  const Tensor none = constant(c.graph, static_cast<double>(over.size), Shape(), DType::I32);
  return {reduce_min(select(found, range(c.graph, over), none), {dim})};
}

std::vector<Sample> argmax_samples() {
  return {{.in = {"f32[batch:3;length:2;hidden:5]"}, .attrs = {{"dim", "hidden"}}},
          {.in = {"bf16[batch:4;length:6;hidden:2]"}, .attrs = {{"dim", "length"}}},
          {.in = {"i32[rows:7;cols:3]"}, .attrs = {{"dim", "rows"}}}};
}

}  // namespace

constinit const Op kArgmax{
    .name = "argmax",
    .doc =
        "The i32 index of the maximum along `dim`, the lowest on ties; a NaN counts as the maximum. No "
        "gradient.",
    .infer = infer_argmax,
    .role = role_argmax,
    .kernel = kernel_argmax,
    .expand = expand_argmax,
    .flops = [](const Call& call) { return static_cast<double>(call.in[0].shape.elements()); },
    .samples = argmax_samples,
};

Tensor argmax(Arg x, const std::string& dim) {
  return make(kArgmax, {x}, {{"dim", dim}});
}

}  // namespace tessera
