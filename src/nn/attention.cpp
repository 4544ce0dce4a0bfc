// Multi-head attention: masks, projections, and the layers that put them together.
#include <cmath>
#include <limits>

#include "base/check.h"
#include "tessera/nn.h"

namespace tessera::nn {

Tensor as_memory(Arg x) {
  return rename(x, {{"length", "memory_length"}});
}

Tensor causal_mask(Arg query_positions, Arg memory_positions) {
  return greater_equal(query_positions, memory_positions);
}

Tensor padding_mask(Arg memory_ids) {
  return not_equal(memory_ids, constant(memory_ids.tensor.graph(), 0, {}, DType::I32, memory_ids.where));
}

Tensor segment_mask(Arg query_segments, Arg memory_segments) {
  return equal(query_segments, memory_segments);
}

Tensor mask_bias(Arg visible, DType wide) {
  Graph& graph = visible.tensor.graph();
  const Tensor zero = constant(graph, 0, {}, wide, visible.where);
  const Tensor hidden = constant(graph, -std::numeric_limits<double>::infinity(), {}, wide, visible.where);
  return select(visible, zero, hidden);
}

AttentionWeights attention_weights(Graph& graph, const Dim& d_model, const AttentionOptions& options,
                                   DType activations, Where where) {
  const Dim &heads = options.heads, &d_kv = options.d_kv;
  const double in = 1 / std::sqrt(static_cast<double>(d_model.size));
  const double fold = options.fold_scale ? 1 / std::sqrt(static_cast<double>(d_kv.size)) : 1;
  const double out = 1 / std::sqrt(static_cast<double>(heads.size * d_kv.size));
  const auto weight = [&](const char* name, const Shape& shape, double stddev) {
    return graph.parameter(name, shape, Initializer::normal(stddev), parameter_dtype(activations), where);
  };
  const Shape projection{d_model, heads, d_kv};
  AttentionWeights weights;
  weights.q = weight("q", projection, in * fold);
  weights.k = weight("k", projection, in);
  weights.v = weight("v", projection, in);
  weights.o = weight("o", {heads, d_kv, d_model}, out);
  return weights;
}

namespace {

Tensor project(Arg x, const Tensor& weight) {
  const Shape& w = weight.shape();
  return einsum({x, cast({weight, x.where}, x.tensor.dtype())},
                x.tensor.shape().without(w[0].name).with(w[1]).with(w[2]), x.where);
}

// Logits [batch..., heads, length, memory_length].
Shape logits_shape(const Shape& q, const Shape& k, const AttentionOptions& options) {
  Shape shape = q.without(options.heads.name).without(options.d_kv.name).without("length");
  return shape.with(options.heads).with(q.get("length")).with(k.get("memory_length"));
}

}  // namespace

KeyValue attention_memory(Arg memory, const AttentionWeights& weights) {
  return {as_memory({project(memory, weights.k), memory.where}),
          as_memory({project(memory, weights.v), memory.where})};
}

Tensor attend(Arg x, const AttentionWeights& weights, const KeyValue& memory, const Tensors& biases,
              const AttentionOptions& options) {
  const Where where = x.where;
  const DType dtype = x.tensor.dtype();
  const DType inner = options.wide_logits ? wide_dtype(dtype) : dtype;
  Tensor q = project(x, weights.q);
  if (!options.fold_scale) q = scale({q, where}, 1 / std::sqrt(static_cast<double>(options.d_kv.size)));
  const Shape output = q.shape();
  Tensor logits = einsum({cast({q, where}, inner), cast({memory.k, where}, inner)},
                         logits_shape(q.shape(), memory.k.shape(), options), where);
  for (const Tensor& bias : biases) logits = add({logits, where}, cast({bias, where}, inner));
  Tensor attention = cast({softmax({logits, where}, "memory_length"), where}, dtype);
  attention = shared_dropout({attention, where}, options.dropout, options.dropout_shared);
  const Tensor mixed = einsum({attention, memory.v}, output, where);
  return einsum({mixed, cast({weights.o, where}, dtype)}, x.tensor.shape(), where);
}

Tensor self_attention(Arg x, const std::string& name, const Tensors& biases,
                      const AttentionOptions& options) {
  Graph& graph = x.tensor.graph();
  const Graph::Scope scope(graph, name, x.where);
  const AttentionWeights weights =
      attention_weights(graph, x.tensor.dim("d_model"), options, x.tensor.dtype(), x.where);
  return attend(x, weights, attention_memory(x, weights), biases, options);
}

Tensor cross_attention(Arg x, Arg memory, const std::string& name, const Tensors& biases,
                       const AttentionOptions& options) {
  Graph& graph = x.tensor.graph();
  const Graph::Scope scope(graph, name, x.where);
  const AttentionWeights weights =
      attention_weights(graph, x.tensor.dim("d_model"), options, x.tensor.dtype(), x.where);
  return attend(x, weights, attention_memory(memory, weights), biases, options);
}

}  // namespace tessera::nn
