// Training and evaluation graphs of whole models.
#include "base/check.h"
#include "models/transformer.h"

namespace tessera {
namespace {

// Packed sources are seen by their segments, others but for their padding.
void see_source(AttentionMask& mask, const Tensor& query_segments, const Tensor& source,
                const Tensor& source_segments) {
  if (source_segments.valid()) {
    mask.query_segments = query_segments;
    mask.memory_segments = nn::as_memory(source_segments);
  } else {
    mask.memory_ids = nn::as_memory(source);
  }
}

class ModelBuilder {
 public:
  ModelBuilder(Graph& graph, const TransformerConfig& config, const ModelShape& shape, ModelMode mode,
               Where where)
      : graph_(graph),
        config_(config),
        shape_(shape),
        mode_(mode),
        where_(where),
        model_(graph, config, mode, where) {
    TESSERA_CHECK(shape.batch >= 0 && shape.target_length >= 1,
                  "transformer: batch {} and target length {} ({})", shape.batch, shape.target_length,
                  to_string(Location(where)));
    const bool has_source = config.kind == ModelKind::EncoderDecoder;
    TESSERA_CHECK(!has_source || shape.source_length >= 1,
                  "transformer: an encoder-decoder needs a source length of at least 1, not {} ({})",
                  shape.source_length, to_string(Location(where)));
    TESSERA_CHECK(has_source || shape.source_length == 0,
                  "transformer: a language model has no source, but source_length is {} ({})",
                  shape.source_length, to_string(Location(where)));
  }

  Tensor logits() { return model_.logits(hidden()); }

  TransformerOutputs loss() {
    TransformerOutputs outputs;
    const Tensor x = hidden();
    outputs.logits = model_.logits(x);
    const Tensor labels = targets();
    Tensor weights;
    if (shape_.explicit_weights) weights = graph_.input("weight", row_shape(), model_.wide(), where_);
    CrossEntropy options;
    if (mode_ == ModelMode::Train) options = {config_.label_smoothing, config_.z_loss};
    outputs.loss = nn::projected_loss({x, where_}, model_.output_table(), labels, options, weights,
                                      mode_ == ModelMode::Train);
    const Graph::Scope scope(graph_, "metrics", where_);
    const Tensor padding = constant(graph_, 0, {}, DType::I32, where_);
    const Tensor real = weights.valid() ? weights : cast(not_equal(labels, padding), model_.wide());
    const Tensor best =
        outputs.loss.best.valid() ? outputs.loss.best : argmax({outputs.logits, where_}, "vocab");
    outputs.correct = reduce_sum(mul(cast(equal({best, where_}, labels), model_.wide()), real));
    return outputs;
  }

 private:
  // What the output projection sees.
  Tensor hidden() {
    const bool has_source = config_.kind == ModelKind::EncoderDecoder;
    if (shape_.packed) segment_ = target_input("segment");
    const bool absolute =
        config_.positions == Positions::Learned || config_.positions == Positions::Sinusoidal;
    Tensor position;
    if (shape_.packed && absolute) position = target_input("position");
    Transformer::Stack stack = decoder();
    if (has_source) {
      const Tensor memory = encode(absolute);
      see_source(stack.cross_mask, segment_, source_, source_segment_);
      stack.cross_memory = [memory](const Tensor&, const nn::AttentionWeights& weights) {
        return nn::attention_memory(memory, weights);
      };
    }
    const Tensor ids = shape_.explicit_inputs ? target_input("target_input") : shifted_targets();
    return model_.run(stack, model_.embed(ids, position, false));
  }

  Shape row_shape() const { return {{"batch", shape_.batch}, {"length", shape_.target_length}}; }
  Tensor target_input(const char* name) { return graph_.input(name, row_shape(), DType::I32, where_); }

  Tensor targets() {
    if (!target_.valid()) target_ = target_input("target");
    return target_;
  }

  // x moved right by one place, 0 first.
  Tensor shifted(const Tensor& x) {
    return slice(pad({x, where_}, "length", 1, 0), "length", 0, shape_.target_length);
  }

  Tensor shifted_targets() {
    const Tensor target = targets();
    const Graph::Scope scope(graph_, "shift_right", where_);
    const Tensor before = shifted(target);
    if (!shape_.packed) return before;
    return select(equal(shifted(segment_), segment_), before, zeros_like({before, where_}));
  }

  Transformer::Stack decoder() {
    Transformer::Stack stack;
    stack.name = "decoder";
    stack.layers = config_.layers;
    stack.query_positions = model_.range_of("length", shape_.target_length);
    stack.memory_positions = model_.range_of("memory_length", shape_.target_length);
    stack.self_mask.causal = true;
    stack.self_mask.query_positions = stack.query_positions;
    stack.self_mask.memory_positions = stack.memory_positions;
    if (shape_.packed) {
      stack.self_mask.query_segments = segment_;
      stack.self_mask.memory_segments = nn::as_memory({segment_, where_});
    }
    stack.self_memory = [](const Tensor& x, const nn::AttentionWeights& weights) {
      return nn::attention_memory(x, weights);
    };
    return stack;
  }

  Tensor encode(bool absolute) {
    const Shape rows{{"batch", shape_.batch}, {"length", shape_.source_length}};
    source_ = graph_.input("source", rows, DType::I32, where_);
    Tensor position;
    if (shape_.packed) source_segment_ = graph_.input("source_segment", rows, DType::I32, where_);
    if (shape_.packed && absolute) position = graph_.input("source_position", rows, DType::I32, where_);
    return encode_source(model_, config_, source_, position, source_segment_);
  }

  Graph& graph_;
  const TransformerConfig& config_;
  const ModelShape& shape_;
  ModelMode mode_;
  Where where_;
  Transformer model_;
  Tensor source_, source_segment_, target_, segment_;
};

}  // namespace

Tensor encode_source(Transformer& model, const TransformerConfig& config, const Tensor& ids,
                     const Tensor& position, const Tensor& segment) {
  const std::int64_t length = ids.shape().size("length");
  Transformer::Stack stack;
  stack.name = "encoder";
  stack.layers = config.encoder_layers;
  stack.bidirectional = true;
  stack.query_positions = model.range_of("length", length);
  stack.memory_positions = model.range_of("memory_length", length);
  see_source(stack.self_mask, segment, ids, segment);
  stack.self_memory = [](const Tensor& x, const nn::AttentionWeights& weights) {
    return nn::attention_memory(x, weights);
  };
  return model.run(stack, model.embed(ids, position, true));
}

TransformerOutputs build_transformer_loss(Graph& graph, const TransformerConfig& config,
                                          const ModelShape& shape, ModelMode mode, Where where) {
  return ModelBuilder(graph, config, shape, mode, where).loss();
}

Tensor build_logits(Graph& graph, const TransformerConfig& config, const ModelShape& shape, Where where) {
  return ModelBuilder(graph, config, shape, ModelMode::Evaluate, where).logits();
}

}  // namespace tessera
