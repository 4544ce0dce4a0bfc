// Movement that resizes one dimension: slice and pad. A shard that holds all of that dimension
// works alone; when the dimension is split, lowering exchanges exactly the overlapping boxes of the moves.
#include "ops/infer.h"
#include "ops/moves.h"
#include "ops/records.h"

namespace tessera {
namespace {

// ------------------------------------------------------------------------------------------------ slice

std::vector<Type> infer_slice(const Call& call) {
  check_count(call, 1);
  const Dim& dim = dim_of(call, call.in[0].shape, call.attrs.text("dim"), "the input");
  const std::int64_t begin = call.attrs.integer("begin"), size = call.attrs.integer("size");
  TESSERA_CHECK(begin >= 0 && size >= 0 && begin <= dim.size - size,
                "slice: [{}, {}) is not inside dimension '{}' of size {} (at {}); choose a range inside it",
                begin, begin + size, dim.name, dim.size, call.name);
  return {{call.in[0].shape.replaced(dim.name, {dim.name, size}), call.in[0].dtype}};
}

std::vector<Move> moves_slice(const Call& call) {
  const Shape &in = call.in[0].shape, &out = call.out[0].shape;
  Move move = move_by_name(out, in, out);
  index_of(move.in, in, call.attrs.text("dim")).offset = call.attrs.integer("begin");
  return {std::move(move)};
}

void grad_slice(GradContext& g) {
  const std::string& dim = g.node.attrs.text("dim");
  const std::int64_t begin = g.node.attrs.integer("begin"), size = g.node.attrs.integer("size");
  g.set(0, pad(g.dy(), dim, begin, g.in(0).dim(dim).size - begin - size));
}

std::vector<Sample> samples_slice() {
  return {
      {.in = {"f32[rows:3;cols:7;depth:2]"}, .attrs = {{"dim", "cols"}, {"begin", 2}, {"size", 4}}},
      {.in = {"i32[rows:10;cols:3]"}, .attrs = {{"dim", "rows"}, {"begin", 7}, {"size", 3}}},
      {.in = {"bf16[rows:5;cols:2]"}, .attrs = {{"dim", "rows"}, {"begin", 1}, {"size", 1}}},
  };
}

// ------------------------------------------------------------------------------------------------ pad

std::vector<Type> infer_pad(const Call& call) {
  check_count(call, 1);
  const Dim& dim = dim_of(call, call.in[0].shape, call.attrs.text("dim"), "the input");
  const std::int64_t before = call.attrs.integer("before"), after = call.attrs.integer("after");
  TESSERA_CHECK(before >= 0 && after >= 0,
                "pad: {} elements before and {} after dimension '{}' (at {}); both must be at least 0, use "
                "slice to shrink",
                before, after, dim.name, call.name);
  return {{call.in[0].shape.replaced(dim.name, {dim.name, before + dim.size + after}), call.in[0].dtype}};
}

std::vector<Move> moves_pad(const Call& call) {
  const Shape &in = call.in[0].shape, &out = call.out[0].shape;
  Move move = move_by_name(in, in, out);
  index_of(move.out, out, call.attrs.text("dim")).offset = call.attrs.integer("before");
  return {std::move(move)};
}

void grad_pad(GradContext& g) {
  const std::string& dim = g.node.attrs.text("dim");
  g.set(0, slice(g.dy(), dim, g.node.attrs.integer("before"), g.in(0).dim(dim).size));
}

std::vector<Sample> samples_pad() {
  return {
      {.in = {"f32[rows:3;cols:5]"}, .attrs = {{"dim", "cols"}, {"before", 2}, {"after", 1}}},
      {.in = {"i32[rows:2;cols:3]"}, .attrs = {{"dim", "rows"}, {"before", 0}, {"after", 4}}},
      {.in = {"f32[rows:4;cols:3;depth:2]"}, .attrs = {{"dim", "cols"}, {"before", 3}, {"after", 0}}},
  };
}

}  // namespace

const Op kSlice{
    .name = "slice",
    .doc = "The `size` elements of `dim` from `begin` on.",
    .infer = infer_slice,
    .role = role_whole_dim,
    .made = made_whole,
    .resized = resized_dim,
    .linear = linear_everywhere,
    .grad = grad_slice,
    .moves = moves_slice,
    .flops = no_flops,
    .samples = samples_slice,
};

const Op kPad{
    .name = "pad",
    .doc =
        "`before` and `after` zeros (or false) added at the ends of `dim`. The builder's other values are a "
        "concat with "
        "constants.",
    .infer = infer_pad,
    .role = role_whole_dim,
    .made = made_whole,
    .resized = resized_dim,
    .linear = linear_everywhere,
    .grad = grad_pad,
    .moves = moves_pad,
    .flops = no_flops,
    .samples = samples_pad,
};

Tensor slice(Arg x, const std::string& dim, std::int64_t begin, std::int64_t size) {
  graph_of(x, "slice");
  const Shape& shape = x.tensor.shape();
  if (begin == 0 && shape.has(dim) && shape.size(dim) == size) return x.tensor;
  return add_one(kSlice, x, {{"dim", dim}, {"begin", begin}, {"size", size}});
}

Tensor pad(Arg x, const std::string& dim, std::int64_t before, std::int64_t after, double value) {
  Graph& graph = graph_of(x, "pad");
  const Shape& shape = x.tensor.shape();
  const bool fits = shape.has(dim) && before >= 0 && after >= 0;  // else infer says what is wrong
  if (fits && before == 0 && after == 0) return x.tensor;
  if (!fits || value == 0) return add_one(kPad, x, {{"dim", dim}, {"before", before}, {"after", after}});
  auto border = [&](std::int64_t size) {
    return Arg(constant(graph, value, shape.replaced(dim, {dim, size}), x.tensor.dtype(), x.where));
  };
  Args pieces;
  if (before > 0) pieces.push_back(border(before));
  pieces.push_back(x);
  if (after > 0) pieces.push_back(border(after));
  return concat(pieces, dim, x.where);
}

}  // namespace tessera
