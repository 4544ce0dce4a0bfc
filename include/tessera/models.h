// Transformers: configurations, presets, and builders of their graphs. Layer models.
//
//   Graph g;
//   const TransformerConfig& config = preset("demo").model;
//   auto out = build_transformer_loss(g, config, {.batch = 32, .source_length = 40, .target_length = 40});
//   session.compile({out.loss.sum, out.loss.weight, ...});
//
// Dimensions: batch length memory_length d_model heads d_kv d_ff vocab positions buckets. Source and target
// of one graph may differ in length: `length` is the length of the sequence at hand.
//
// Parameters have the same names and types in every graph of one configuration (training, decoding, ...):
//   embedding/table (or embedding/source, embedding/target), embedding/positions, softmax/table,
//   {encoder,decoder}/layer_000/{self_attention,cross_attention}/{norm/scale,q,k,v,o},
//   {encoder,decoder}/layer_000/ffn/{norm/scale,wi,wo}, {encoder,decoder}/{final_norm/scale,relative_bias}
#pragma once

#include <string>
#include <vector>

#include "tessera/nn.h"

namespace tessera {

enum class ModelKind : std::uint8_t { LanguageModel, EncoderDecoder };  // "lm", "encoder_decoder"
// "learned", "sinusoidal", "relative", "none"
enum class Positions : std::uint8_t { Learned, Sinusoidal, Relative, None };

struct TransformerConfig {
  ModelKind kind = ModelKind::EncoderDecoder;
  std::int64_t encoder_layers = 6;  // encoder_decoder only
  std::int64_t layers = 6;          // of the decoder; the language model is a decoder
  std::int64_t d_model = 512, heads = 8, d_kv = 64, d_ff = 2048;
  std::int64_t vocab = 32000;
  std::int64_t max_length = 256;  // learned positions: rows of the table, a longer sequence is an error

  bool shared_embedding = true;  // encoder_decoder: source and target share tables (and learned positions)
  bool tied_softmax = true;      // the output projection is the target's embedding table
  bool scale_embedding = true;   // embeddings times sqrt(d_model)

  Positions positions = Positions::Learned;
  std::int64_t relative_buckets = 32, relative_max_distance = 128;
  bool relative_shared = true;  // one table for all layers of a stack, else one a layer

  double dropout = 0.1;  // on embeddings, sub-layer outputs, attention weights and hidden activations
  bool dropout_shared_over_length = false;  // the same mask at all positions of a sequence
  Strings activation{"relu"};               // several: gated (nn::FeedForwardOptions)
  nn::NormKind norm = nn::NormKind::Rms;
  double norm_epsilon = 1e-6;
  bool pre_norm = true;  // norm before each sub-layer and at the end; else after each residual sum
  double label_smoothing = 0, z_loss = 0;  // in training only
  bool fold_attention_scale = false;       // nn::AttentionOptions::fold_scale

  DType dtype = DType::F32;  // of activations; parameters are f32 (f64 with f64)
  Strings recompute;  // globs of scopes computed again in the backward pass: "decoder/layer_*", "*/ffn"

  bool operator==(const TransformerConfig&) const = default;
};

const char* to_string(ModelKind kind);
const char* to_string(Positions positions);

// Throws UserError when fields contradict each other or are out of range.
void check(const TransformerConfig& config);

// --- training and evaluation ----------------------------------------------------------------------

enum class ModelMode : std::uint8_t {
  Train,
  Evaluate,  // no dropout, label smoothing, z-loss or recomputation: the loss is nats
};

struct ModelShape {
  std::int64_t batch = 1;
  std::int64_t source_length = 0;  // encoder_decoder
  std::int64_t target_length = 1;
  bool packed = false;            // several sequences a row
  bool explicit_weights = false;  // else: weight 1 where the target is not 0
  bool explicit_inputs = false;   // else: the decoder sees the targets moved right by one, 0 first
};

// Inputs, all i32 but the weights:
//   source, target [batch,length]               0 is padding
//   source_segment, segment [batch,length]      packed: equal numbers see each other, 0 is padding
//   source_position, position [batch,length]    packed with learned or sinusoidal: from 0 in each segment
//   weight [batch,length]                       explicit_weights: f32 (f64 for f64 activations)
//   target_input [batch,length]                 explicit_inputs
// The language model has no source_... ones.
struct TransformerOutputs {
  nn::Loss loss;
  Tensor correct;  // scalar: weight of the tokens whose largest logit is the label's
  Tensor logits;   // [batch, length, vocab] in the activations' type
};
TransformerOutputs build_transformer_loss(Graph& graph, const TransformerConfig& config,
                                          const ModelShape& shape, ModelMode mode = ModelMode::Train,
                                          Where where = Where::current());

// Logits alone, in Evaluate mode; the same inputs without weight. (With explicit_inputs, `target` is not
// needed.)
Tensor build_logits(Graph& graph, const TransformerConfig& config, const ModelShape& shape,
                    Where where = Where::current());

// --- decoding -------------------------------------------------------------------------------------
// A host loop runs one program per step; keys and values are kept in State variables of the Store, dimensions
// batch memory_length heads d_kv, so the layout that splits heads or batch splits them too. A beam is a part
// of `batch`.

struct DecodeShape {
  std::int64_t batch = 1;          // rows: sentences times beam, the rows of a sentence side by side
  std::int64_t beam = 1;           // rows a sentence: the source is read once for all of them
  std::int64_t steps = 1;          // tokens a run takes: 1, or a longer common prefix
  std::int64_t capacity = 1;       // positions the cache holds; positions beyond overwrite the last ones
  std::int64_t source_length = 0;  // encoder_decoder
  std::string cache = "cache";     // first part of the variables' names: one per set of sizes in use
};

// encoder_decoder: input source [batch / beam, length] -> assignments of CACHE/source and of keys and values
// of every cross-attention. Run once per batch of sentences.
Tensors build_prefill(Graph& graph, const TransformerConfig& config, const DecodeShape& shape,
                      Where where = Where::current());

struct DecodeOutputs {
  Tensor logits;        // [batch, length, vocab], wide type
  Tensors assignments;  // of the self-attention caches
};
// Inputs: token i32 [batch, length: steps] (the first token of a sequence is 0), position i32 scalar (index
// of token 0 of this run; 0 starts a new batch, old contents are never seen).
DecodeOutputs build_decode(Graph& graph, const TransformerConfig& config, const DecodeShape& shape,
                           Where where = Where::current());

// Input rows i32 [batch] -> assignments that make row i of every self-attention cache the old row rows[i].
// Source-side variables stay: a beam moves within its sentence.
Tensors build_reorder(Graph& graph, const TransformerConfig& config, const DecodeShape& shape,
                      Where where = Where::current());

// --- counts and presets ---------------------------------------------------------------------------

struct ParameterCount {
  std::int64_t attention = 0, feed_forward = 0;  // matrices
  std::int64_t embeddings = 0;                   // tables of tokens, output projection included
  std::int64_t positions = 0;                    // learned positions and relative biases
  std::int64_t norms = 0;
  std::int64_t total() const { return attention + feed_forward + embeddings + positions + norms; }
};
// Counted from the built graph.
ParameterCount parameter_count(const TransformerConfig& config);

struct Preset {
  std::string name, about;
  TransformerConfig model;
  std::int64_t batch = 0, length = 0;  // sequences a step and their length
  std::int64_t steps = 0;
  std::string optimizer, schedule;  // text of tessera/optimizer.h
  std::string mesh, layout;         // the paper's
};
// tiny, tiny_lm, demo, peers_lm, and the paper's lm_0.143b ... lm_4.899b and mt_0.155b ... mt_2.886b.
const std::vector<Preset>& presets();
const Preset& preset(std::string_view name);  // throws UserError with the nearest name

}  // namespace tessera
