// Movement without resizing: broadcast, transpose, rename. Every dimension is Map: shards work alone unless
// the layout gives a renamed dimension another cut, and then lowering turns the moves into an exchange.
#include <algorithm>

#include "ops/infer.h"
#include "ops/moves.h"
#include "ops/records.h"

namespace tessera {
namespace {

// ------------------------------------------------------------------------------------------------ broadcast

std::vector<Type> infer_broadcast(const Call& call) {
  check_count(call, 1);
  const Shape& shape = call.attrs.shape("shape");
  for (const Dim& dim : call.in[0].shape) {
    TESSERA_CHECK(shape.has(dim.name),
                  "broadcast: the target [{}] lacks dimension '{}' of the input [{}] (at {}); add it",
                  to_string(shape), dim.name, to_string(call.in[0].shape), call.name);
    TESSERA_CHECK(shape.size(dim.name) == dim.size,
                  "broadcast: dimension '{}' has size {} in the input but {} in the target (at {}); rename "
                  "one or fix the size",
                  dim.name, dim.size, shape.size(dim.name), call.name);
  }
  return {{shape, call.in[0].dtype}};
}

std::vector<Move> moves_broadcast(const Call& call) {
  return {move_by_name(call.out[0].shape, call.in[0].shape, call.out[0].shape)};
}

void grad_broadcast(GradContext& g) {
  Strings added;
  for (const Dim& dim : g.out().shape()) {
    if (!g.in(0).shape().has(dim.name)) added.push_back(dim.name);
  }
  const Tensor sum = added.empty() ? g.dy() : reduce_sum(g.dy(), added);
  g.set(0, ordered_like(sum, g.in(0).shape()));
}

std::vector<Sample> samples_broadcast() {
  return {
      {.in = {"f32[rows:3;cols:5]"}, .attrs = {{"shape", Shape{{"rows", 3}, {"copies", 2}, {"cols", 5}}}}},
      {.in = {"i32[cols:5;rows:2]"}, .attrs = {{"shape", Shape{{"rows", 2}, {"cols", 5}, {"copies", 3}}}}},
      {.in = {"bf16[]"}, .attrs = {{"shape", Shape{{"rows", 4}, {"copies", 1}}}}},
  };
}

// ------------------------------------------------------------------------------------------------ transpose

std::vector<Type> infer_transpose(const Call& call) {
  check_count(call, 1);
  const Shape& in = call.in[0].shape;
  const Strings& order = call.attrs.texts("order");
  std::vector<Dim> dims;
  for (const std::string& name : order) dims.push_back(dim_of(call, in, name, "the input"));
  TESSERA_CHECK(dims.size() == in.count(),
                "transpose: the order names {} of the {} dimensions of [{}] (at {}); name all of them",
                dims.size(), in.count(), to_string(in), call.name);
  return {{Shape(std::move(dims)), call.in[0].dtype}};
}

void grad_transpose(GradContext& g) {
  g.set(0, ordered_like(g.dy(), g.in(0).shape()));
}

std::vector<Sample> samples_transpose() {
  return {
      {.in = {"f32[a:2;b:3;c:5]"}, .attrs = {{"order", Strings{"c", "a", "b"}}}},
      {.in = {"bool[a:4;b:3]"}, .attrs = {{"order", Strings{"b", "a"}}}},
      {.in = {"bf16[a:1;b:7;c:2]"}, .attrs = {{"order", Strings{"b", "a", "c"}}}},
  };
}

// ------------------------------------------------------------------------------------------------ rename

Renames renames_rename(const Call& call) {
  const Strings& from = call.attrs.texts("from");
  const Strings& to = call.attrs.texts("to");
  Renames pairs;
  for (std::size_t i = 0; i < from.size(); ++i) pairs.emplace_back(from[i], to[i]);
  return pairs;
}

std::vector<Type> infer_rename(const Call& call) {
  check_count(call, 1);
  const Shape& in = call.in[0].shape;
  std::vector<Dim> dims = in.dims();
  Strings seen;
  for (const auto& [from, to] : renames_rename(call)) {
    dim_of(call, in, from, "the input");
    TESSERA_CHECK(std::find(seen.begin(), seen.end(), from) == seen.end(),
                  "rename: dimension '{}' is renamed twice (at {}); give one new name", from, call.name);
    seen.push_back(from);
    dims[static_cast<std::size_t>(in.find(from))].name = to;
  }
  for (std::size_t i = 0; i < dims.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      TESSERA_CHECK(
          dims[i].name != dims[j].name,
          "rename: both '{}' and '{}' of [{}] would be called '{}' (at {}); rename the other one as well",
          in[j].name, in[i].name, to_string(in), dims[i].name, call.name);
    }
  }
  return {{Shape(std::move(dims)), call.in[0].dtype}};
}

std::vector<Move> moves_rename(const Call& call) {
  const Shape& in = call.in[0].shape;
  Move move = move_by_name(in, in, in);
  return {std::move(move)};
}

void grad_rename(GradContext& g) {
  Renames back;
  for (std::size_t i = 0; i < g.in(0).shape().count(); ++i) {
    back.emplace_back(g.out().shape()[i].name, g.in(0).shape()[i].name);
  }
  g.set(0, rename(g.dy(), back));
}

std::vector<Sample> samples_rename() {
  return {
      {.in = {"f32[a:4;b:3]"}, .attrs = {{"from", Strings{"a"}}, {"to", Strings{"c"}}}},
      {.in = {"f32[a:4;b:4;c:3]"}, .attrs = {{"from", Strings{"a", "b"}}, {"to", Strings{"b", "a"}}}},
      {.in = {"i32[a:5;b:2]"}, .attrs = {{"from", Strings{"a", "b"}}, {"to", Strings{"b", "c"}}}},
  };
}

}  // namespace

const Op kBroadcast{
    .name = "broadcast",
    .doc = "The input repeated along the dimensions of `shape` that it lacks.",
    .infer = infer_broadcast,
    .linear = linear_everywhere,
    .grad = grad_broadcast,
    .moves = moves_broadcast,
    .flops = no_flops,
    .samples = samples_broadcast,
};

const Op kTranspose{
    .name = "transpose",
    .doc = "The same values with the dimensions in the order `order`.",
    .infer = infer_transpose,
    .linear = linear_everywhere,
    .grad = grad_transpose,
    .moves = moves_broadcast,
    .flops = no_flops,
    .samples = samples_transpose,
};

const Op kRename{
    .name = "rename",
    .doc =
        "The same values with dimensions `from` called `to`, all pairs at once. A renamed dimension moves "
        "between "
        "ranks when the layout cuts its new name differently.",
    .infer = infer_rename,
    .renames = renames_rename,
    .linear = linear_everywhere,
    .grad = grad_rename,
    .moves = moves_rename,
    .flops = no_flops,
    .samples = samples_rename,
};

Tensor broadcast(Arg x, const Shape& shape) {
  graph_of(x, "broadcast");
  return x.tensor.shape() == shape ? x.tensor : add_one(kBroadcast, x, {{"shape", shape}});
}

Tensor transpose(Arg x, const Strings& order) {
  graph_of(x, "transpose");
  Strings now;
  for (const Dim& dim : x.tensor.shape()) now.push_back(dim.name);
  return now == order ? x.tensor : add_one(kTranspose, x, {{"order", order}});
}

Tensor rename(Arg x, const Renames& pairs) {
  Strings from, to;
  for (const auto& [a, b] : pairs) {
    if (a == b) continue;
    from.push_back(a);
    to.push_back(b);
  }
  graph_of(x, "rename");
  return from.empty() ? x.tensor : add_one(kRename, x, {{"from", std::move(from)}, {"to", std::move(to)}});
}

}  // namespace tessera
