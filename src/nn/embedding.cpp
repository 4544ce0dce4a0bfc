// Embedding tables, their use on both sides of the model, positions that are added to embeddings, and the
// loss.
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "tessera/nn.h"

namespace tessera::nn {

Tensor embedding_table(Graph& graph, const std::string& name, const Dim& vocab, const Dim& width,
                       double stddev, DType activations, Where where) {
  return graph.parameter(name, {vocab, width}, Initializer::normal(stddev), parameter_dtype(activations),
                         where);
}

Tensor embedding(Arg table, Arg ids, DType activations, double factor) {
  const Tensor rows = gather(table, ids, table.tensor.shape()[0].name);
  const Tensor x = cast(rows, activations);
  return factor == 1 ? x : scale(x, factor);
}

Tensor output_projection(Arg x, Arg table) {
  const Dim& vocab = table.tensor.shape()[0];
  const Dim& width = table.tensor.shape()[1];
  return einsum({x, cast(table, x.tensor.dtype())}, x.tensor.shape().without(width.name).with(vocab),
                x.where);
}

Tensor sinusoidal_positions(Arg positions, const Dim& width, DType activations) {
  TESSERA_CHECK(width.size % 2 == 0, "sinusoidal positions need an even '{}', not {} ({}); change the size",
                width.name, width.size, to_string(Location(positions.where)));
  Graph& graph = positions.tensor.graph();
  const DType wide = wide_dtype(activations);
  const std::int64_t half = width.size / 2;
  const Tensor index = range(graph, width, DType::I32, positions.where);
  const Tensor is_cosine = greater_equal(index, constant(graph, static_cast<double>(half), {}, DType::I32));
  const Tensor i = cast(mod(index, constant(graph, static_cast<double>(half), {}, DType::I32)), wide);
  const double step = std::log(1e4) / static_cast<double>(std::max<std::int64_t>(half - 1, 1));
  const Tensor angle = mul(cast(positions, wide), exp(scale(i, -step)));
  return cast(select(is_cosine, cos(angle), sin(angle)), activations);
}

namespace {

// 1 where there is a label, unless weights are given.
Tensor token_weights(Arg labels, const Tensor& weights, DType wide) {
  if (weights.valid()) return cast({weights, labels.where}, wide);
  const Tensor zero = constant(labels.tensor.graph(), 0, {}, DType::I32, labels.where);
  return cast({not_equal(labels, zero), labels.where}, wide);
}

}  // namespace

Loss cross_entropy_loss(Arg logits, Arg labels, const std::string& vocab, const CrossEntropy& options,
                        const Tensor& weights) {
  const Graph::Scope scope(logits.tensor.graph(), "loss", logits.where);
  Loss loss;
  loss.tokens = cross_entropy(logits, labels, vocab, options);
  const Tensor w = token_weights({labels.tensor, logits.where}, weights, loss.tokens.dtype());
  loss.sum = reduce_sum(mul(loss.tokens, w));
  loss.weight = reduce_sum(w);
  return loss;
}

Loss projected_loss(Arg x, Arg table, Arg labels, const CrossEntropy& options, const Tensor& weights,
                    bool gradients) {
  const Graph::Scope scope(x.tensor.graph(), "loss", x.where);
  const std::string& vocab = table.tensor.shape()[0].name;
  const Tensor narrow = cast(table, x.tensor.dtype());
  const Tensor w = token_weights({labels.tensor, x.where}, weights, wide_dtype(x.tensor.dtype()));
  Loss loss;
  loss.weight = reduce_sum(w);
  if (gradients) {
    const LinearCrossEntropySum both = linear_cross_entropy_sum(x, narrow, labels, w, vocab, options);
    loss.sum = both.sum, loss.tokens = both.loss;
  } else {
    const LinearCrossEntropy forward = linear_cross_entropy(x, narrow, labels, vocab, options);
    loss.tokens = forward.loss, loss.best = forward.best;
    loss.sum = reduce_sum(mul(loss.tokens, w));
  }
  return loss;
}

Tensor ratio(Arg a, Arg b) {
  const Tensor zero = zeros_like(b);
  const Tensor is_zero = equal(b, zero);
  return select(is_zero, zero, div(a, select(is_zero, ones_like(b), b)));
}

}  // namespace tessera::nn
