// Embeddings, layers and stacks of the Transformer.
#include "models/transformer.h"

#include <cmath>

#include "base/check.h"

namespace tessera {

Transformer::Transformer(Graph& graph, const TransformerConfig& config, ModelMode mode, Where where)
    : graph_(graph), config_(config), mode_(mode), where_(where) {
  check(config);
  TESSERA_CHECK(
      graph.scope_path().empty(),
      "transformer: built inside scope '{}' ({}); parameters must have the same names in every graph, so "
      "build it outside",
      graph.scope_path(), to_string(Location(where)));
}

nn::AttentionOptions Transformer::attention_options() const {
  nn::AttentionOptions options;
  options.heads.size = config_.heads;
  options.d_kv.size = config_.d_kv;
  options.dropout = training() ? config_.dropout : 0;
  options.dropout_shared = dropout_shared();
  options.fold_scale = config_.fold_attention_scale;
  return options;
}

Strings Transformer::dropout_shared() const {
  return config_.dropout_shared_over_length ? Strings{"length"} : Strings{};
}

Tensor Transformer::range_of(const char* dim, std::int64_t size) {
  return range(graph_, {dim, size}, DType::I32, where_);
}

// ---------------------------------------------------------------------------------------------- embeddings

Tensor Transformer::table(bool source) {
  const bool shared = config_.kind == ModelKind::LanguageModel || config_.shared_embedding;
  const std::string name = shared ? "embedding/table" : source ? "embedding/source" : "embedding/target";
  Tensor& entry = tables_[name];
  if (!entry.valid()) {
    const double stddev = 1 / std::sqrt(static_cast<double>(config_.d_model));
    entry = nn::embedding_table(graph_, name, {"vocab", config_.vocab}, {"d_model", config_.d_model}, stddev,
                                config_.dtype, where_);
  }
  return entry;
}

Tensor Transformer::learned_positions(const Tensor& x, const Tensor& positions, bool source) {
  const bool shared = config_.kind == ModelKind::LanguageModel || config_.shared_embedding;
  const std::string name = shared   ? "embedding/positions"
                           : source ? "embedding/source_positions"
                                    : "embedding/target_positions";
  const Dim rows{"positions", config_.max_length};
  Tensor& entry = tables_[name];
  if (!entry.valid()) {
    const double stddev = config_.scale_embedding ? 0.1 : 0.02;
    entry =
        nn::embedding_table(graph_, name, rows, {"d_model", config_.d_model}, stddev, config_.dtype, where_);
  }
  if (positions.valid()) return nn::embedding(entry, positions, config_.dtype);
  const std::int64_t length = x.shape().size("length");
  TESSERA_CHECK(
      length <= config_.max_length,
      "transformer: a {} of length {} does not fit into the {} learned positions ({}); raise max_length or "
      "shorten the sequence",
      source ? "source" : "target", length, config_.max_length, to_string(Location(where_)));
  return cast(rename(slice(entry, "positions", 0, length), {{"positions", "length"}}), config_.dtype);
}

Tensor Transformer::embed(const Tensor& ids, const Tensor& positions, bool source) {
  const double factor = config_.scale_embedding ? std::sqrt(static_cast<double>(config_.d_model)) : 1;
  Tensor x = nn::embedding(table(source), ids, config_.dtype, factor);
  if (config_.positions == Positions::Learned) x = add(x, learned_positions(x, positions, source));
  if (config_.positions == Positions::Sinusoidal) {
    const Tensor index = positions.valid() ? positions : range_of("length", x.shape().size("length"));
    x = add(x, nn::sinusoidal_positions(index, x.dim("d_model"), config_.dtype));
  }
  const Graph::Scope scope(graph_, source ? "embedding/source_input" : "embedding/target_input", where_);
  return dropped(x);
}

Tensor Transformer::output_table() {
  if (config_.tied_softmax) return table(false);
  Tensor& entry = tables_["softmax/table"];
  if (!entry.valid()) {
    entry =
        nn::embedding_table(graph_, "softmax/table", {"vocab", config_.vocab}, {"d_model", config_.d_model},
                            1 / std::sqrt(static_cast<double>(config_.d_model)), config_.dtype, where_);
  }
  return entry;
}

Tensor Transformer::logits(const Tensor& x) {
  const Tensor weights = output_table();
  const Graph::Scope scope(graph_, "softmax", where_);
  return nn::output_projection({x, where_}, weights);
}

// ---------------------------------------------------------------------------------------------- layers

bool Transformer::recomputed() const {
  if (!training() || recomputing_ > 0) return false;
  for (const std::string& glob : config_.recompute) {
    if (nn::glob_match(glob, graph_.scope_path())) return true;
  }
  return false;
}

Tensor Transformer::normed(const Tensor& x, const std::string& name) {
  return nn::norm({x, where_}, name, "d_model", config_.norm, config_.norm_epsilon);
}

Tensor Transformer::dropped(const Tensor& x) {
  return training() ? nn::shared_dropout({x, where_}, config_.dropout, dropout_shared()) : x;
}

Tensor Transformer::sublayer(const std::string& name, const Tensor& x,
                             const std::function<Tensor(const Tensor&)>& body) {
  const Graph::Scope scope(graph_, name, where_);
  const bool again = recomputed();
  recomputing_ += again;
  const Tensor result = nn::block(graph_, again, [&] {
    if (config_.pre_norm) return add(x, dropped(body(normed(x, "norm"))));
    return normed(add(x, dropped(body(x))), "norm");
  });
  recomputing_ -= again;
  return result;
}

// In the current scope.
Tensor Transformer::relative(const Stack& stack) {
  nn::RelativeOptions options{config_.relative_buckets, config_.relative_max_distance, stack.bidirectional};
  const Tensor table =
      nn::relative_table(graph_, "relative_bias", {"heads", config_.heads}, options, config_.dtype, where_);
  return nn::relative_bias({table, where_}, options);
}

// `mask` is made inside the sub-layer, which may own a table of biases.
Tensor Transformer::attention(const std::string& name, const Tensor& x, const Memory& memory,
                              const std::function<AttentionMask()>& mask) {
  return sublayer(name, x, [&](const Tensor& h) {
    const AttentionMask seen = mask();
    const nn::AttentionWeights weights =
        nn::attention_weights(graph_, h.dim("d_model"), attention_options(), config_.dtype, where_);
    return nn::attend({h, where_}, weights, memory(h, weights), seen, attention_options());
  });
}

Tensor Transformer::layer(const Stack& stack, Tensor x, const Tensor& shared_bias) {
  x = attention("self_attention", x, stack.self_memory, [&] {
    AttentionMask mask = stack.self_mask;
    if (config_.positions != Positions::Relative) return mask;
    mask.distance_bias = config_.relative_shared ? shared_bias : relative(stack);
    mask.query_positions = stack.query_positions;
    mask.memory_positions = stack.memory_positions;
    return mask;
  });
  if (stack.cross_memory) {
    x = attention("cross_attention", x, stack.cross_memory, [&] { return stack.cross_mask; });
  }
  return sublayer("ffn", x, [&](const Tensor& h) {
    nn::FeedForwardOptions options;
    options.d_ff.size = config_.d_ff;
    options.activations = config_.activation;
    options.dropout = training() ? config_.dropout : 0;
    options.dropout_shared = dropout_shared();
    return nn::feed_forward({h, where_}, "", options);
  });
}

std::string Transformer::layer_name(const Stack& stack, std::int64_t layer) const {
  return fmt::format("{}/layer_{:03}", stack.name, layer);
}

Tensor Transformer::run(const Stack& stack, Tensor x) {
  Tensor shared_bias;
  if (config_.positions == Positions::Relative && config_.relative_shared) {
    const Graph::Scope scope(graph_, stack.name, where_);
    shared_bias = relative(stack);
  }
  for (std::int64_t i = 0; i < stack.layers; ++i) {
    const Graph::Scope scope(graph_, layer_name(stack, i), where_);
    const bool again = recomputed();
    recomputing_ += again;
    x = nn::block(graph_, again, [&] { return layer(stack, x, shared_bias); });
    recomputing_ -= again;
  }
  if (!config_.pre_norm) return x;
  const Graph::Scope scope(graph_, stack.name, where_);
  return dropped(normed(x, "final_norm"));
}

}  // namespace tessera
