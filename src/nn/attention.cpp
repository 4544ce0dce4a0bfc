// Multi-head attention: projections, and the layers that put them together.
#include <cmath>

#include "nn/dropout.h"
#include "tessera/nn.h"

namespace tessera::nn {

Tensor as_memory(Arg x) {
  return rename(x, {{"length", "memory_length"}});
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

}  // namespace

KeyValue attention_memory(Arg memory, const AttentionWeights& weights) {
  return {as_memory({project(memory, weights.k), memory.where}),
          as_memory({project(memory, weights.v), memory.where})};
}

Tensor attend(Arg x, const AttentionWeights& weights, const KeyValue& memory, const AttentionMask& mask,
              const AttentionOptions& options) {
  const Where where = x.where;
  const Tensor q = project(x, weights.q);
  AttentionSpec spec{.feature = options.d_kv.name};
  if (!options.fold_scale) spec.scale = 1 / std::sqrt(static_cast<double>(options.d_kv.size));
  spec.dropout = options.dropout;
  if (options.dropout > 0) {
    const Shape noise = q.shape().without(spec.feature).with(memory.k.dim(spec.memory));
    spec.noise = dropout_noise(noise, options.dropout_shared, where);
  }
  const Tensor mixed = attention({q, where}, memory.k, memory.v, mask, spec).output;
  return einsum({mixed, cast({weights.o, where}, x.tensor.dtype())}, x.tensor.shape(), where);
}

Tensor self_attention(Arg x, const std::string& name, const AttentionMask& mask,
                      const AttentionOptions& options) {
  Graph& graph = x.tensor.graph();
  const Graph::Scope scope(graph, name, x.where);
  const AttentionWeights weights =
      attention_weights(graph, x.tensor.dim("d_model"), options, x.tensor.dtype(), x.where);
  return attend(x, weights, attention_memory(x, weights), mask, options);
}

Tensor cross_attention(Arg x, Arg memory, const std::string& name, const AttentionMask& mask,
                       const AttentionOptions& options) {
  Graph& graph = x.tensor.graph();
  const Graph::Scope scope(graph, name, x.where);
  const AttentionWeights weights =
      attention_weights(graph, x.tensor.dim("d_model"), options, x.tensor.dtype(), x.where);
  return attend(x, weights, attention_memory(memory, weights), mask, options);
}

}  // namespace tessera::nn
