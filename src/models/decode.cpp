// One-step decoding: programs that fill, read, extend and re-order the caches of keys and values.
#include "base/check.h"
#include "models/transformer.h"

namespace tessera {
namespace {

class DecodeBuilder {
 public:
  DecodeBuilder(Graph& graph, const TransformerConfig& config, const DecodeShape& shape, Where where)
      : graph_(graph),
        config_(config),
        shape_(shape),
        where_(where),
        model_(graph, config, ModelMode::Evaluate, where) {
    decoder_.name = "decoder";
    TESSERA_CHECK(
        shape.batch >= 1 && shape.steps >= 1 && shape.capacity >= shape.steps,
        "decode: batch {}, {} steps a run and a cache of {} positions ({}); the cache must hold a run",
        shape.batch, shape.steps, shape.capacity, to_string(Location(where)));
    TESSERA_CHECK(shape.beam >= 1 && shape.batch % shape.beam == 0,
                  "decode: {} rows are no whole number of sentences of {} rows each ({})", shape.batch,
                  shape.beam, to_string(Location(where)));
    TESSERA_CHECK(config.kind == ModelKind::LanguageModel || shape.source_length >= 1,
                  "decode: an encoder-decoder needs a source length of at least 1 ({})",
                  to_string(Location(where)));
  }

  Tensors prefill() {
    TESSERA_CHECK(config_.kind == ModelKind::EncoderDecoder,
                  "prefill: a language model has no source ({}); run the prompt through build_decode",
                  to_string(Location(where_)));
    const Tensor source =
        graph_.input("source", source_shape("length", shape_.batch / shape_.beam), DType::I32, where_);
    const Tensor memory = encode_source(model_, config_, source, {}, {});
    Tensors assignments{graph_.assign({source_ids(), where_}, spread(nn::as_memory({source, where_})))};
    for (std::int64_t i = 0; i < config_.layers; ++i) {
      nn::KeyValue fresh;
      {
        const Graph::Scope scope(graph_, model_.layer_name(decoder_, i) + "/cross_attention", where_);
        const nn::AttentionWeights weights = nn::attention_weights(
            graph_, memory.dim("d_model"), model_.attention_options(), config_.dtype, where_);
        fresh = nn::attention_memory({memory, where_}, weights);
        fresh = {spread(fresh.k), spread(fresh.v)};
      }
      const nn::KeyValue cache = variables(i, "cross_attention", shape_.source_length);
      assignments.push_back(graph_.assign({cache.k, where_}, fresh.k));
      assignments.push_back(graph_.assign({cache.v, where_}, fresh.v));
    }
    return assignments;
  }

  DecodeOutputs decode() {
    const Tensor token =
        graph_.input("token", {{"batch", shape_.batch}, {"length", shape_.steps}}, DType::I32, where_);
    position_ = graph_.input("position", {}, DType::I32, where_);
    make_caches();
    decoder_.layers = config_.layers;
    decoder_.query_positions = add({model_.range_of("length", shape_.steps), where_}, position_);
    decoder_.memory_positions = model_.range_of("memory_length", shape_.capacity);
    decoder_.self_mask.causal = true;
    decoder_.self_mask.query_positions = decoder_.query_positions;
    decoder_.self_mask.memory_positions = decoder_.memory_positions;
    decoder_.self_memory = [this](const Tensor& x, const nn::AttentionWeights& weights) {
      return extend(x, weights);
    };
    if (config_.kind == ModelKind::EncoderDecoder) {
      decoder_.cross_mask.memory_ids = source_ids();
      decoder_.cross_memory = [this](const Tensor&, const nn::AttentionWeights&) {
        return cross_[cross_layer_++];
      };
    }
    const Tensor x = model_.run(decoder_, model_.embed(token, decoder_.query_positions, false));
    return {cast({model_.logits(x), where_}, model_.wide()), std::move(assignments_)};
  }

  Tensors reorder() {
    const Tensor rows = graph_.input("rows", {{"batch", shape_.batch}}, DType::I32, where_);
    make_caches();
    for (const nn::KeyValue& cache : self_) {
      for (const Tensor& t : {cache.k, cache.v}) {
        const Tensor old = rename({t, where_}, {{"batch", "old_batch"}});
        assignments_.push_back(graph_.assign({t, where_}, gather({old, where_}, rows, "old_batch")));
      }
    }
    return std::move(assignments_);
  }

 private:
  Shape source_shape(const char* length, std::int64_t rows) const {
    return {{"batch", rows}, {length, shape_.source_length}};
  }

  // [batch: sentences, ...] -> [batch: rows, ...], every sentence `beam` times.
  Tensor spread(const Tensor& x) {
    if (shape_.beam == 1) return x;
    std::vector<Dim> dims = x.shape().dims();
    dims.insert(dims.begin() + 1, {"beam", shape_.beam});
    return merge({broadcast({x, where_}, Shape(dims)), where_}, {"batch", "beam"}, "batch");
  }

  Tensor source_ids() {
    if (!source_ids_.valid()) {
      source_ids_ =
          graph_.variable(VariableKind::State, shape_.cache + "/source",
                          {source_shape("memory_length", shape_.batch), DType::I32}, {}, "", where_);
    }
    return source_ids_;
  }

  nn::KeyValue variables(std::int64_t layer, const char* attention, std::int64_t length) {
    const Shape dims{
        {"batch", shape_.batch}, {"memory_length", length}, {"heads", config_.heads}, {"d_kv", config_.d_kv}};
    const std::string base = shape_.cache + "/" + model_.layer_name(decoder_, layer) + "/" + attention;
    const auto state = [&](const char* name) {
      return graph_.variable(VariableKind::State, base + "/" + name, {dims, config_.dtype}, {}, "", where_);
    };
    const Tensor k = state("k");
    return {k, state("v")};
  }

  // Variables are named by their full path, so they are made before the layers open their scopes.
  void make_caches() {
    for (std::int64_t i = 0; i < config_.layers; ++i) {
      self_.push_back(variables(i, "self_attention", shape_.capacity));
      if (config_.kind == ModelKind::EncoderDecoder) {
        cross_.push_back(variables(i, "cross_attention", shape_.source_length));
      }
    }
    if (config_.kind == ModelKind::EncoderDecoder) source_ids();
  }

  // Writes the new keys and values into the next layer's cache; attention sees the cache with them.
  nn::KeyValue extend(const Tensor& x, const nn::AttentionWeights& weights) {
    const nn::KeyValue fresh = nn::attention_memory({x, where_}, weights);
    const nn::KeyValue& cache = self_[self_layer_++];
    const auto write = [&](const Tensor& variable, const Tensor& value) {
      const Tensor updated = update_slice({variable, where_}, value, position_, "memory_length");
      assignments_.push_back(graph_.assign({variable, where_}, updated));
      return updated;
    };
    const Tensor k = write(cache.k, fresh.k);
    return {k, write(cache.v, fresh.v)};
  }

  Graph& graph_;
  const TransformerConfig& config_;
  const DecodeShape& shape_;
  Where where_;
  Transformer model_;
  Transformer::Stack decoder_;
  Tensor position_, source_ids_;
  std::vector<nn::KeyValue> self_, cross_;
  std::size_t self_layer_ = 0, cross_layer_ = 0;
  Tensors assignments_;
};

}  // namespace

Tensors build_prefill(Graph& graph, const TransformerConfig& config, const DecodeShape& shape, Where where) {
  return DecodeBuilder(graph, config, shape, where).prefill();
}

DecodeOutputs build_decode(Graph& graph, const TransformerConfig& config, const DecodeShape& shape,
                           Where where) {
  return DecodeBuilder(graph, config, shape, where).decode();
}

Tensors build_reorder(Graph& graph, const TransformerConfig& config, const DecodeShape& shape, Where where) {
  return DecodeBuilder(graph, config, shape, where).reorder();
}

}  // namespace tessera
