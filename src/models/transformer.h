// The Transformer on the way into a graph: what training, evaluation and decoding share. One object builds
// one graph; every table is created once, so parameter names are the same whichever graph is built.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "tessera/models.h"

namespace tessera {

class Transformer {
 public:
  Transformer(Graph& graph, const TransformerConfig& config, ModelMode mode, Where where);

  bool training() const { return mode_ == ModelMode::Train; }
  DType wide() const { return nn::wide_dtype(config_.dtype); }
  nn::AttentionOptions attention_options() const;

  // Tokens [batch, length] -> [batch, length, d_model]. `positions` (i32, broadcast by name) or, when
  // invalid, 0, 1, ...
  Tensor embed(const Tensor& ids, const Tensor& positions, bool source);
  Tensor output_table();
  Tensor logits(const Tensor& x);

  // Where a self-attention finds its memory: the training graph projects the sequence itself, decoding reads
  // a cache.
  using Memory = std::function<nn::KeyValue(const Tensor& x, const nn::AttentionWeights& weights)>;

  struct Stack {
    std::string name;  // "encoder", "decoder"
    std::int64_t layers = 0;
    Tensor query_positions, memory_positions;  // i32, of relative positions
    bool bidirectional = false;
    AttentionMask self_mask, cross_mask;
    Memory self_memory, cross_memory;  // cross_memory empty: no such attention
  };
  Tensor run(const Stack& stack, Tensor x);

  Tensor range_of(const char* dim, std::int64_t size);  // i32 0, 1, ... [dim]
  std::string layer_name(const Stack& stack, std::int64_t layer) const;

 private:
  Tensor table(bool source);
  Tensor learned_positions(const Tensor& x, const Tensor& positions, bool source);
  Tensor relative(const Stack& stack);
  Tensor layer(const Stack& stack, Tensor x, const Tensor& shared_bias);
  Tensor attention(const std::string& name, const Tensor& x, const Memory& memory,
                   const std::function<AttentionMask()>& mask);
  Tensor sublayer(const std::string& name, const Tensor& x, const std::function<Tensor(const Tensor&)>& body);
  Tensor normed(const Tensor& x, const std::string& name);
  Tensor dropped(const Tensor& x);
  Strings dropout_shared() const;
  bool recomputed() const;

  Graph& graph_;
  const TransformerConfig& config_;
  ModelMode mode_;
  Where where_;
  std::map<std::string, Tensor> tables_;
  int recomputing_ = 0;  // depth: a block inside a recomputed one is not marked again
};

// The encoder's output for source ids [batch, length]; `position` and `segment` may be invalid.
Tensor encode_source(Transformer& model, const TransformerConfig& config, const Tensor& ids,
                     const Tensor& position, const Tensor& segment);

}  // namespace tessera
