// Slices at a run-time position: dynamic_slice reads one, update_slice writes one (the decoding cache).
// Positions are global and clamped so that the slice fits. A shard reads or writes the part of the slice that
// it holds.
#include <algorithm>

#include "ops/infer.h"
#include "ops/records.h"
#include "ops/strided.h"

namespace tessera {
namespace {

void check_start(const Call& call, std::size_t input) {
  check_i32(call, input, "the start");
  TESSERA_CHECK(call.in[input].shape.is_scalar(),
                "{}: the start must be a scalar but is [{}] (at {}); slice it first", call.op->name,
                to_string(call.in[input].shape), call.name);
}

std::int64_t clamped(const View& start, std::int64_t size, std::int64_t slice_size) {
  return std::clamp<std::int64_t>(start.as<std::int32_t>()[0], 0, size - slice_size);
}

// Copies `count` steps of `dim`, from local step `in_at` to local step `out_at`.
void copy_steps(const View& in, std::int64_t in_at, const View& out, std::int64_t out_at, std::int64_t count,
                const std::string& dim) {
  Nest<2> nest;
  for (const Dim& d : out.shape) {
    nest.add(d.name == dim ? count : d.size, {stride_of(in, d.name), stride_of(out, d.name)});
  }
  with_width(out.dtype, [&]<class T>() {
    nest.rows({in_at * stride_of(in, dim), out_at * stride_of(out, dim)},
              [&](auto at, std::int64_t n, auto step) {
                copy_row(out.as<T>() + at[1], step[1], in.as<T>() + at[0], step[0], n);
              });
  });
}

// Copies the steps of `dim` that both shards hold, where step i of `out` is step i + shift of `in` (global
// indices). Returns how many there are.
std::int64_t copy_overlap(const View& in, const View& out, std::int64_t shift, const std::string& dim) {
  const std::int64_t in_start = start_of(in, dim) - shift, out_start = start_of(out, dim);
  const std::int64_t begin = std::max(in_start, out_start);
  const std::int64_t end = std::min(in_start + in.shape.size(dim), out_start + out.shape.size(dim));
  if (begin >= end) return 0;
  copy_steps(in, begin - in_start, out, begin - out_start, end - begin, dim);
  return end - begin;
}

// ------------------------------------------------------------------------------------------------
// dynamic_slice

std::vector<Type> infer_dynamic_slice(const Call& call) {
  check_count(call, 2);
  check_start(call, 1);
  const Dim& dim = dim_of(call, call.in[0].shape, call.attrs.text("dim"), "the input");
  const std::int64_t size = call.attrs.integer("size");
  TESSERA_CHECK(size >= 0 && size <= dim.size,
                "dynamic_slice: {} elements do not fit into dimension '{}' of size {} (at {})", size,
                dim.name, dim.size, call.name);
  return {{call.in[0].shape.replaced(dim.name, {dim.name, size}), call.in[0].dtype}};
}

Role role_dynamic_slice(const Call& call, int, const std::string& dim) {
  if (dim != call.attrs.text("dim") || call.attrs.integer("size") == call.in[0].shape.size(dim))
    return Role::Map;
  return call.in[0].dtype == DType::Bool ? Role::Max : Role::Sum;
}

bool linear_in_first(const Call&, int input) {
  return input == 0;
}

void kernel_dynamic_slice(KernelContext& ctx) {
  const View &in = ctx.in[0], &out = ctx.out[0];
  const std::string& dim = ctx.call.attrs.text("dim");
  const std::int64_t start =
      clamped(ctx.in[1], ctx.call.in[0].shape.size(dim), ctx.call.attrs.integer("size"));
  if (in.shape.size(dim) < ctx.call.in[0].shape.size(dim)) {
    with_width(out.dtype, [&]<class T>() { fill_view(out, T{0}); });
  }
  copy_overlap(in, out, start, dim);
}

void grad_dynamic_slice(GradContext& g) {
  g.set(0, update_slice(zeros_like(g.in(0)), g.dy(), g.in(1), g.node.attrs.text("dim")));
}

std::vector<Sample> samples_dynamic_slice() {
  return {
      {.in = {"f32[batch:3;length:7;d_model:2]", "i32[]"},
       .attrs = {{"dim", "length"}, {"size", 3}},
       .index_high = 7,
       .index_low = -2},
      {.in = {"i32[length:5;batch:2]", "i32[]"}, .attrs = {{"dim", "length"}, {"size", 1}}, .index_high = 5},
      {.in = {"bool[batch:2;length:4]", "i32[]"}, .attrs = {{"dim", "length"}, {"size", 2}}, .index_high = 3},
  };
}

// ------------------------------------------------------------------------------------------------
// update_slice

std::vector<Type> infer_update_slice(const Call& call) {
  check_count(call, 3);
  check_start(call, 2);
  const Shape &in = call.in[0].shape, &update = call.in[1].shape;
  const std::string& name = call.attrs.text("dim");
  const Dim &dim = dim_of(call, in, name, "the input"), &part = dim_of(call, update, name, "the update");
  TESSERA_CHECK(call.in[0].dtype == call.in[1].dtype,
                "update_slice: the input is {} but the update {} (at {}); cast one",
                to_string(call.in[0].dtype), to_string(call.in[1].dtype), call.name);
  TESSERA_CHECK(
      same_dims(in.without(name), update.without(name)),
      "update_slice: [{}] and the update [{}] differ in more than '{}' (at {}); make the others equal",
      to_string(in), to_string(update), name, call.name);
  TESSERA_CHECK(part.size <= dim.size,
                "update_slice: the update has {} elements of '{}', more than the input's {} (at {})",
                part.size, name, dim.size, call.name);
  return {call.in[0]};
}

Role role_update_slice(const Call& call, int input, const std::string& dim) {
  const bool smaller =
      dim == call.attrs.text("dim") && call.in[1].shape.size(dim) != call.in[0].shape.size(dim);
  return input == 1 && smaller ? Role::Whole : Role::Map;
}

void kernel_update_slice(KernelContext& ctx) {
  const View &in = ctx.in[0], &update = ctx.in[1], &out = ctx.out[0];
  const std::string& dim = ctx.call.attrs.text("dim");
  const std::int64_t size = ctx.call.in[1].shape.size(dim);
  if (in.data != out.data) copy_steps(in, 0, out, 0, out.shape.size(dim), dim);
  copy_overlap(update, out, -clamped(ctx.in[2], ctx.call.in[0].shape.size(dim), size), dim);
}

void grad_update_slice(GradContext& g) {
  const std::string& dim = g.node.attrs.text("dim");
  g.set(0, update_slice(g.dy(), zeros_like(g.in(1)), g.in(2), dim));
  g.set(1, ordered_like(dynamic_slice(g.dy(), g.in(2), dim, g.in(1).dim(dim).size), g.in(1).shape()));
}

std::vector<Sample> samples_update_slice() {
  return {
      {.in = {"f32[batch:3;length:7;d_model:2]", "f32[batch:3;length:3;d_model:2]", "i32[]"},
       .attrs = {{"dim", "length"}},
       .index_high = 7,
       .index_low = -2},
      {.in = {"i32[length:5;batch:2]", "i32[batch:2;length:1]", "i32[]"},
       .attrs = {{"dim", "length"}},
       .index_high = 5},
      {.in = {"bf16[length:4;batch:3]", "bf16[length:4;batch:3]", "i32[]"},
       .attrs = {{"dim", "length"}},
       .index_high = 2},
  };
}

}  // namespace

const Op kDynamicSlice{
    .name = "dynamic_slice",
    .doc = "`size` elements of `dim` from the run-time index `start` on, which is clamped so that they fit.",
    .infer = infer_dynamic_slice,
    .role = role_dynamic_slice,
    .made = made_whole,
    .resized = resized_dim,
    .linear = linear_in_first,
    .grad = grad_dynamic_slice,
    .kernel = kernel_dynamic_slice,
    .flops = no_flops,
    .samples = samples_dynamic_slice,
};

const Op kUpdateSlice{
    .name = "update_slice",
    .doc =
        "The input with the elements of `dim` from the run-time index `start` on replaced by the update; the "
        "start is "
        "clamped so that it fits. Works in place over its first input.",
    .infer = infer_update_slice,
    .role = role_update_slice,
    .resized = resized_dim,
    .grad = grad_update_slice,
    .kernel = kernel_update_slice,
    .flops = no_flops,
    .samples = samples_update_slice,
};

Tensor dynamic_slice(Arg x, Arg start, const std::string& dim, std::int64_t size) {
  graph_of(start, "dynamic_slice");
  Graph& graph = graph_of(x, "dynamic_slice");
  if (x.tensor.shape().has(dim) && x.tensor.shape().size(dim) == size) return x.tensor;
  return graph.add(kDynamicSlice, {x.tensor, start.tensor}, {{"dim", dim}, {"size", size}}, x.where)[0];
}

Tensor update_slice(Arg x, Arg update, Arg start, const std::string& dim) {
  graph_of(update, "update_slice");
  graph_of(start, "update_slice");
  return graph_of(x, "update_slice")
      .add(kUpdateSlice, {x.tensor, update.tensor, start.tensor}, {{"dim", dim}}, x.where)[0];
}

}  // namespace tessera
