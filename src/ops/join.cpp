// Joining tensors and taking them apart: concat and split along a dimension that they have, stack and unstack
// along a new one. A shard that holds all of that dimension works alone; when it is split, lowering exchanges
// exactly the overlapping boxes of the moves.
#include <numeric>

#include "ops/infer.h"
#include "ops/moves.h"
#include "ops/records.h"

namespace tessera {
namespace {

// ------------------------------------------------------------------------------------------------ concat

std::vector<Type> infer_concat(const Call& call) {
  TESSERA_CHECK(!call.in.empty(), "concat: no inputs (at {}); give at least one tensor", call.name);
  const std::string& dim = call.attrs.text("dim");
  const Shape& first = call.in[0].shape;
  std::int64_t size = 0;
  for (const Type& type : call.in) {
    size += dim_of(call, type.shape, dim, "an input").size;
    TESSERA_CHECK(type.dtype == call.in[0].dtype, "concat: mixed types {} and {} (at {}); cast one",
                  to_string(call.in[0].dtype), to_string(type.dtype), call.name);
    TESSERA_CHECK(same_dims(type.shape.without(dim), first.without(dim)),
                  "concat: [{}] and [{}] differ in more than '{}' (at {}); make the other dimensions equal",
                  to_string(first), to_string(type.shape), dim, call.name);
  }
  return {{first.replaced(dim, {dim, size}), call.in[0].dtype}};
}

std::vector<Move> moves_concat(const Call& call) {
  const std::string& dim = call.attrs.text("dim");
  const Shape& out = call.out[0].shape;
  std::vector<Move> moves;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    const Shape& in = call.in[i].shape;
    Move move = move_by_name(in, in, out);
    move.input = static_cast<int>(i);
    index_of(move.out, out, dim).offset = offset;
    offset += in.size(dim);
    moves.push_back(std::move(move));
  }
  return moves;
}

void grad_concat(GradContext& g) {
  const std::string& dim = g.node.attrs.text("dim");
  Ints sizes;
  for (const Tensor& x : g.node.inputs) sizes.push_back(x.dim(dim).size);
  const Tensors pieces = split(g.dy(), dim, sizes);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const int input = static_cast<int>(i);
    g.set(input, ordered_like(pieces[i], g.in(input).shape()));
  }
}

std::vector<Sample> samples_concat() {
  return {
      {.in = {"f32[rows:3;cols:2]", "f32[rows:3;cols:5]", "f32[rows:3;cols:1]"}, .attrs = {{"dim", "cols"}}},
      {.in = {"i32[rows:3;cols:2;depth:2]", "i32[cols:2;rows:4;depth:2]"}, .attrs = {{"dim", "rows"}}},
  };
}

// ------------------------------------------------------------------------------------------------ split

std::vector<Type> infer_split(const Call& call) {
  check_count(call, 1);
  const Dim& dim = dim_of(call, call.in[0].shape, call.attrs.text("dim"), "the input");
  const Ints& sizes = call.attrs.integers("sizes");
  std::vector<Type> types;
  for (std::int64_t size : sizes) {
    TESSERA_CHECK(size >= 0, "split: a part of '{}' has size {} (at {}); sizes are at least 0", dim.name,
                  size, call.name);
    types.push_back({call.in[0].shape.replaced(dim.name, {dim.name, size}), call.in[0].dtype});
  }
  const std::int64_t sum = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  TESSERA_CHECK(sum == dim.size && !sizes.empty(),
                "split: the sizes add up to {} but dimension '{}' has size {} (at {}); make them equal", sum,
                dim.name, dim.size, call.name);
  return types;
}

std::vector<Move> moves_split(const Call& call) {
  const std::string& dim = call.attrs.text("dim");
  const Shape& in = call.in[0].shape;
  std::vector<Move> moves;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < call.out.size(); ++i) {
    const Shape& out = call.out[i].shape;
    Move move = move_by_name(out, in, out);
    move.output = static_cast<int>(i);
    index_of(move.in, in, dim).offset = offset;
    offset += out.size(dim);
    moves.push_back(std::move(move));
  }
  return moves;
}

Args grads_or_zeros(const GradContext& g) {
  Args all;
  for (std::size_t i = 0; i < g.outputs.size(); ++i) {
    all.emplace_back(g.output_grads[i].valid() ? g.output_grads[i] : zeros_like(g.outputs[i]));
  }
  return all;
}

void grad_split(GradContext& g) {
  g.set(0, concat(grads_or_zeros(g), g.node.attrs.text("dim")));
}

std::vector<Sample> samples_split() {
  return {
      {.in = {"f32[rows:3;cols:8]"}, .attrs = {{"dim", "cols"}, {"sizes", Ints{2, 5, 1}}}},
      {.in = {"i32[rows:7;cols:2]"}, .attrs = {{"dim", "rows"}, {"sizes", Ints{3, 0, 4}}}},
  };
}

// ------------------------------------------------------------------------------------------------ stack,
// unstack

std::vector<Type> infer_stack(const Call& call) {
  TESSERA_CHECK(!call.in.empty(), "stack: no inputs (at {}); give at least one tensor", call.name);
  const std::string& dim = call.attrs.text("dim");
  std::vector<Dim> dims = {{dim, static_cast<std::int64_t>(call.in.size())}};
  TESSERA_CHECK(!call.in[0].shape.has(dim),
                "stack: the inputs [{}] have a dimension '{}' already (at {}); choose another name",
                to_string(call.in[0].shape), dim, call.name);
  for (const Type& type : call.in) {
    TESSERA_CHECK(type.dtype == call.in[0].dtype, "stack: mixed types {} and {} (at {}); cast one",
                  to_string(call.in[0].dtype), to_string(type.dtype), call.name);
    TESSERA_CHECK(same_dims(type.shape, call.in[0].shape),
                  "stack: [{}] and [{}] differ (at {}); make them equal", to_string(call.in[0].shape),
                  to_string(type.shape), call.name);
  }
  for (const Dim& d : call.in[0].shape) dims.push_back(d);
  return {{Shape(std::move(dims)), call.in[0].dtype}};
}

std::vector<Move> moves_stack(const Call& call) {
  const Shape& out = call.out[0].shape;
  std::vector<Move> moves;
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    const Shape& in = call.in[i].shape;
    Move move = move_by_name(in, in, out);
    move.input = static_cast<int>(i);
    index_of(move.out, out, call.attrs.text("dim")).offset = static_cast<std::int64_t>(i);
    moves.push_back(std::move(move));
  }
  return moves;
}

void grad_stack(GradContext& g) {
  const Tensors pieces = unstack(g.dy(), g.node.attrs.text("dim"));
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const int input = static_cast<int>(i);
    g.set(input, ordered_like(pieces[i], g.in(input).shape()));
  }
}

std::vector<Sample> samples_stack() {
  return {
      {.in = {"f32[rows:2;cols:5]", "f32[rows:2;cols:5]", "f32[cols:5;rows:2]"}, .attrs = {{"dim", "layer"}}},
      {.in = {"bool[rows:3;cols:1]", "bool[rows:3;cols:1]"}, .attrs = {{"dim", "layer"}}},
  };
}

std::vector<Type> infer_unstack(const Call& call) {
  check_count(call, 1);
  const Dim& dim = dim_of(call, call.in[0].shape, call.attrs.text("dim"), "the input");
  return std::vector<Type>(static_cast<std::size_t>(dim.size),
                           {call.in[0].shape.without(dim.name), call.in[0].dtype});
}

std::vector<Move> moves_unstack(const Call& call) {
  const Shape& in = call.in[0].shape;
  std::vector<Move> moves;
  for (std::size_t i = 0; i < call.out.size(); ++i) {
    const Shape& out = call.out[i].shape;
    Move move = move_by_name(out, in, out);
    move.output = static_cast<int>(i);
    index_of(move.in, in, call.attrs.text("dim")).offset = static_cast<std::int64_t>(i);
    moves.push_back(std::move(move));
  }
  return moves;
}

void grad_unstack(GradContext& g) {
  g.set(0, ordered_like(stack(grads_or_zeros(g), g.node.attrs.text("dim")), g.in(0).shape()));
}

std::vector<Sample> samples_unstack() {
  return {
      {.in = {"f32[rows:4;layer:3;cols:2]"}, .attrs = {{"dim", "layer"}}},
      {.in = {"i32[layer:5;cols:3]"}, .attrs = {{"dim", "layer"}}},
  };
}

Graph& graph_of_all(const Args& xs, const char* op, Where where) {
  TESSERA_CHECK(!xs.empty(), "{}: no inputs ({}); give at least one tensor", op, to_string(Location(where)));
  for (const Arg& x : xs) graph_of(x, op);
  return xs[0].tensor.graph();
}

Tensors tensors_of(const Args& xs) {
  Tensors all;
  for (const Arg& x : xs) all.push_back(x.tensor);
  return all;
}

}  // namespace

const Op kConcat{
    .name = "concat",
    .doc = "The inputs behind each other along `dim`; their other dimensions are equal, in any order.",
    .infer = infer_concat,
    .role = role_whole_dim,
    .made = made_whole,
    .resized = resized_dim,
    .linear = linear_everywhere,
    .additive = true,
    .grad = grad_concat,
    .moves = moves_concat,
    .flops = no_flops,
    .samples = samples_concat,
};

const Op kSplit{
    .name = "split",
    .doc = "Consecutive pieces of `dim` with the given sizes, one output each.",
    .infer = infer_split,
    .role = role_whole_dim,
    .made = made_whole,
    .resized = resized_dim,
    .linear = linear_everywhere,
    .grad = grad_split,
    .moves = moves_split,
    .flops = no_flops,
    .samples = samples_split,
};

const Op kStack{
    .name = "stack",
    .doc = "The inputs side by side along a new first dimension `dim`.",
    .infer = infer_stack,
    .made = made_whole,
    .linear = linear_everywhere,
    .additive = true,
    .grad = grad_stack,
    .moves = moves_stack,
    .flops = no_flops,
    .samples = samples_stack,
};

const Op kUnstack{
    .name = "unstack",
    .doc = "One output for each index of `dim`, without that dimension.",
    .infer = infer_unstack,
    .role = role_whole_dim,
    .linear = linear_everywhere,
    .grad = grad_unstack,
    .moves = moves_unstack,
    .flops = no_flops,
    .samples = samples_unstack,
};

Tensor concat(const Args& xs, const std::string& dim, Where where) {
  Graph& graph = graph_of_all(xs, "concat", where);
  if (xs.size() == 1 && xs[0].tensor.shape().has(dim)) return xs[0].tensor;
  return graph.add(kConcat, tensors_of(xs), {{"dim", dim}}, where)[0];
}

Tensors split(Arg x, const std::string& dim, const Ints& sizes) {
  Graph& graph = graph_of(x, "split");
  const Shape& shape = x.tensor.shape();
  if (sizes.size() == 1 && shape.has(dim) && shape.size(dim) == sizes[0]) return {x.tensor};
  return graph.add(kSplit, {x.tensor}, {{"dim", dim}, {"sizes", sizes}}, x.where);
}

Tensor stack(const Args& xs, const std::string& dim, Where where) {
  return graph_of_all(xs, "stack", where).add(kStack, tensors_of(xs), {{"dim", dim}}, where)[0];
}

Tensors unstack(Arg x, const std::string& dim) {
  return graph_of(x, "unstack").add(kUnstack, {x.tensor}, {{"dim", dim}}, x.where);
}

}  // namespace tessera
