// What a model's configuration must obey, whoever wrote it.
#include "base/check.h"

#include <algorithm>

#include "tessera/models.h"

namespace tessera {

const char* to_string(ModelKind kind) {
  return kind == ModelKind::LanguageModel ? "lm" : "encoder_decoder";
}

const char* to_string(Positions positions) {
  switch (positions) {
    case Positions::Learned:
      return "learned";
    case Positions::Sinusoidal:
      return "sinusoidal";
    case Positions::Relative:
      return "relative";
    case Positions::None:
      break;
  }
  return "none";
}

void check(const TransformerConfig& c) {
  const auto at_least = [](const char* name, std::int64_t value, std::int64_t low) {
    TESSERA_CHECK(value >= low, "model: {} = {} is too small; it must be at least {}", name, value, low);
  };
  at_least("layers", c.layers, 1);
  if (c.kind == ModelKind::EncoderDecoder) at_least("encoder_layers", c.encoder_layers, 1);
  at_least("d_model", c.d_model, 1);
  at_least("heads", c.heads, 1);
  at_least("d_kv", c.d_kv, 1);
  at_least("d_ff", c.d_ff, 1);
  at_least("vocab", c.vocab, 2);
  at_least("max_length", c.max_length, 1);
  TESSERA_CHECK(c.dropout >= 0 && c.dropout < 1, "model: dropout = {} is not in [0, 1)", c.dropout);
  TESSERA_CHECK(c.label_smoothing >= 0 && c.label_smoothing < 1,
                "model: label_smoothing = {} is not in [0, 1)", c.label_smoothing);
  TESSERA_CHECK(c.z_loss >= 0, "model: z_loss = {} is negative", c.z_loss);
  TESSERA_CHECK(is_floating(c.dtype), "model: dtype = {} holds no activations; use f32, bf16 or f64",
                to_string(c.dtype));
  TESSERA_CHECK(c.positions != Positions::Sinusoidal || c.d_model % 2 == 0,
                "model: sinusoidal positions need an even d_model, not {}; change d_model or positions",
                c.d_model);
  TESSERA_CHECK(
      c.positions != Positions::Relative ||
          (c.relative_buckets >= 4 && c.relative_max_distance > c.relative_buckets / 2),
      "model: relative_buckets = {} must be at least 4 and relative_max_distance = {} above half of them",
      c.relative_buckets, c.relative_max_distance);
  TESSERA_CHECK(!c.activation.empty(), "model: activation names no function; use for example \"relu\"");
  const Strings& known = nn::activation_names();
  for (const std::string& name : c.activation) {
    TESSERA_CHECK(std::find(known.begin(), known.end(), name) != known.end(),
                  "model: there is no activation '{}'; choose among {}", name, fmt::join(known, ", "));
  }
}

namespace {

// The group of a parameter, by its name (tessera/models.h lists them).
std::int64_t& group_of(ParameterCount& count, const std::string& name) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  if (has("norm/")) return count.norms;
  if (has("positions") || has("relative_bias")) return count.positions;
  if (has("_attention/")) return count.attention;
  if (has("/ffn/")) return count.feed_forward;
  return count.embeddings;
}

}  // namespace

ParameterCount parameter_count(const TransformerConfig& config) {
  Graph graph;
  const bool has_source = config.kind == ModelKind::EncoderDecoder;
  build_logits(graph, config, {.batch = 1, .source_length = has_source ? 1 : 0, .target_length = 1});
  ParameterCount count;
  for (const Variable& variable : graph.variables()) {
    if (variable.kind != VariableKind::Parameter) continue;
    group_of(count, variable.name) += graph.node(variable.node).outputs[0].shape.elements();
  }
  return count;
}

}  // namespace tessera
