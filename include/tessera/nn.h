// Layers: functions that create parameters and ordinary nodes in a scope named after the layer. Layer nn.
//
//   Graph g;
//   Tensor x = nn::embedding(nn::embedding_table(g, "embedding", vocab, d_model, options), ids, DType::F32);
//   Tensor h = nn::feed_forward(nn::rms_norm(x, "norm", "d_model"), "ffn", {.d_ff = {"d_ff", 2048}});
//
// Parameters are f32 (f64 when activations are f64) and are cast to the activations' type where they are
// used. A layer called twice under one name throws UserError: its parameters exist already. Nothing here
// knows a mesh. Dimension names the layers fix: `length` (positions of the sequence at hand), `memory_length`
// (positions attended to).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/ops.h"

namespace tessera::nn {

// Type of the parameters used with activations of type `activations`: f64 for f64, else f32.
DType parameter_dtype(DType activations);
// Type in which logits, norms and losses are computed: f64 for f64, else f32.
DType wide_dtype(DType activations);

// --- dense ----------------------------------------------------------------------------------------

struct DenseOptions {
  bool bias = false;  // zeros at first, with the added dimensions
  std::optional<Initializer>
      weight;  // default: normal with standard deviation (product of reduced sizes)^-1/2
};
// Contracts dimensions `reduced` of x with a weight [reduced..., added...]; result: the other dimensions of
// x, then `added`. Parameters: NAME/weight, NAME/bias.
Tensor dense(Arg x, const std::string& name, const Strings& reduced, const std::vector<Dim>& added,
             const DenseOptions& options = {});

// --- norms and dropout ----------------------------------------------------------------------------

enum class NormKind : std::uint8_t { Rms, Layer };
// Over dimension `dim`, statistics in f32. Parameters: NAME/scale (ones) and, for Layer, NAME/bias (zeros).
Tensor norm(Arg x, const std::string& name, const std::string& dim, NormKind kind, double epsilon = 1e-6);
Tensor rms_norm(Arg x, const std::string& name, const std::string& dim, double epsilon = 1e-6);
Tensor layer_norm(Arg x, const std::string& name, const std::string& dim, double epsilon = 1e-6);

// Dropout whose mask is the same along the dimensions `shared` (those of them that x has). Rate 0: x itself.
Tensor shared_dropout(Arg x, double rate, const Strings& shared = {});

// --- feed-forward ---------------------------------------------------------------------------------

// "relu", "gelu" (tanh form), "gelu_erf", "swish", "tanh", "sigmoid", "linear". Throws UserError with the
// nearest name.
Tensor activate(Arg x, const std::string& kind);
const Strings& activation_names();

struct FeedForwardOptions {
  Dim d_ff{"d_ff", 0};
  Strings activations{
      "relu"};  // several: the product of that many dense layers (gated; {"swish", "linear"} is SwiGLU)
  double dropout = 0;      // on the hidden layer
  Strings dropout_shared;  // dimensions along which its mask is the same
};
// Parameters (with an empty name, of the current scope): NAME/wi (gated: NAME/wi_0, NAME/wi_1, ...) [d_model,
// d_ff] and NAME/wo [d_ff, d_model].
Tensor feed_forward(Arg x, const std::string& name, const FeedForwardOptions& options);

// --- embedding ------------------------------------------------------------------------------------

// Parameter NAME [vocab, width], normal with standard deviation `stddev`.
Tensor embedding_table(Graph& graph, const std::string& name, const Dim& vocab, const Dim& width,
                       double stddev, DType activations, Where where = Where::current());
// Rows of the table for i32 ids [...]: [..., width], in type `activations`, times `factor`. Ids outside give
// zeros.
Tensor embedding(Arg table, Arg ids, DType activations, double factor = 1);
// Logits [..., vocab] of x [..., width] against a table [vocab, width].
Tensor output_projection(Arg x, Arg table);

// --- positions ------------------------------------------------------------------------------------

// Sine of position / 10000^(i / (width/2 - 1)) in the first half of `width`, cosine in the second; positions:
// i32 of any shape. Throws UserError for an odd width.
Tensor sinusoidal_positions(Arg positions, const Dim& width, DType activations);

struct RelativeOptions {
  std::int64_t buckets = 32;
  std::int64_t max_distance = 128;
  bool bidirectional = true;
};
// The bucket of a distance memory - query. One-sided: 0 for the future; two-sided: the upper half of the
// buckets is for the future. Near distances have a bucket each, far ones share on a logarithmic scale, the
// last is open.
std::int64_t relative_bucket(std::int64_t distance, const RelativeOptions& options);
// Parameter NAME [heads, buckets], normal(0.1).
Tensor relative_table(Graph& graph, const std::string& name, const Dim& heads, const RelativeOptions& options,
                      DType activations, Where where = Where::current());
// The table's bias of each distance from -max_distance to max_distance (beyond, all share a bucket),
// [distance, heads] in the wide type: AttentionMask::distance_bias.
Tensor relative_bias(Arg table, const RelativeOptions& options);

// --- attention ------------------------------------------------------------------------------------

// `length` renamed to `memory_length`.
Tensor as_memory(Arg x);

struct AttentionOptions {
  Dim heads{"heads", 0};
  Dim d_kv{"d_kv", 0};
  double dropout = 0;       // on the attention weights
  Strings dropout_shared;   // dimensions along which its mask is the same
  bool fold_scale = false;  // 1/sqrt(d_kv) in the initial value of q instead of a multiplication at run time
};

// Parameters q, k, v [d_model, heads, d_kv] and o [heads, d_kv, d_model] of the current scope.
struct AttentionWeights {
  Tensor q, k, v, o;
};
AttentionWeights attention_weights(Graph& graph, const Dim& d_model, const AttentionOptions& options,
                                   DType activations, Where where = Where::current());

struct KeyValue {
  Tensor k, v;  // [batch..., memory_length, heads, d_kv]
};
// Keys and values of `memory` [batch..., length, d_model]; `length` is renamed after the projection, so that
// a split length is gathered once, projected.
KeyValue attention_memory(Arg memory, const AttentionWeights& weights);
// Attention of x [batch..., length, d_model] over `memory`: the op `attention` between projections. A query
// that sees nothing gets zeros.
Tensor attend(Arg x, const AttentionWeights& weights, const KeyValue& memory, const AttentionMask& mask,
              const AttentionOptions& options);

// The whole layer in scope NAME: memory is x itself (self-attention) or an encoder's output.
Tensor self_attention(Arg x, const std::string& name, const AttentionMask& mask,
                      const AttentionOptions& options);
Tensor cross_attention(Arg x, Arg memory, const std::string& name, const AttentionMask& mask,
                       const AttentionOptions& options);

// --- loss -----------------------------------------------------------------------------------------

struct Loss {
  Tensor sum;     // scalar: weighted sum of the token losses
  Tensor weight;  // scalar: sum of the weights, the number of real tokens by default
  Tensor tokens;  // the loss of each token, unweighted
  Tensor best;    // projected_loss without gradients: the class of each token with the largest logit
};
// Cross-entropy of logits [..., vocab] against i32 labels. `weights` (same dimensions as labels) or, when it
// is an empty Tensor, 1 where the label is not 0. Optimizers divide gradients of `sum` by the total of
// `weight` over all shards and micro-batches, so a token counts the same wherever it lies.
Loss cross_entropy_loss(Arg logits, Arg labels, const std::string& vocab, const CrossEntropy& options = {},
                        const Tensor& weights = {});
// The same of the logits output_projection(x, table), which need not exist whole. With `gradients` they are
// made in one go with the loss: for steps that differentiate `sum`.
Loss projected_loss(Arg x, Arg table, Arg labels, const CrossEntropy& options, const Tensor& weights,
                    bool gradients);
// a / b, and 0 where b is 0. Scalars.
Tensor ratio(Arg a, Arg b);

// --- blocks ---------------------------------------------------------------------------------------

// Runs `body` and, when `on`, marks its nodes for recomputation in the backward pass.
Tensor block(Graph& graph, bool on, const std::function<Tensor()>& body);

// True when `text` matches the glob: '*' any characters, '?' one character.
bool glob_match(std::string_view glob, std::string_view text);

}  // namespace tessera::nn
