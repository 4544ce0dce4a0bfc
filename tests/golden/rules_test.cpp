// The rule sets that the paper ships (batch; vocab, d_ff and heads; both on a 2-D mesh) on whole
// Transformers: the collectives of forward and backward pass equal the formulas in exact bytes per axis,
// nothing is gathered, and no rank works more than its part.
//
// The formulas, for r ranks along the axis of batch and c along that of vocab, d_ff and heads (either may be
// absent, r or c = 1). P(size, n) is the largest part; ts, tt are source and target tokens of a rank,
// P(batch, r) * length; w = 4 bytes.
//
// Model axis, per rank: a block ends in a contraction over heads or d_ff, whose sum [tokens, d_model] must be
// complete before the next norm; its backward pass begins with a contraction over heads or d_ff, whose sum
// must be complete before the norm's gradient. So a block is one all-reduce of tokens * d_model forward and
// one backward: self-attention + ffn = 4 a layer, with cross-attention 6 a layer. The gradient of the
// encoder's output is one sum over the cross-attentions of all layers: sums are added first, so it is one
// all-reduce, not one a layer. The embedding lookup in a split table is one all-reduce (its gradient none),
// the projection to a split vocabulary one backward. The split softmax of the paper reduces three numbers a
// token: maximum, sum of exponentials, logit of the label (without "joint").
//   encoder: ts * d * w * (1 + 2 L + 2 L + 1)      decoder: tt * d * w * (1 + b L + b L + 1) + 3 tt * w, b =
//   2 or 3 blocks
// Computed together, the ranks tell each other three numbers a token (maximum, sum, class of the maximum), so
// that each receives (c - 1) 3 tt * w, and the loss is one sum over both axes.
//
// Data axis: the gradient of each parameter once, at the size of its part on the model axis, and two scalars
// (loss and weight). Of learned positions only the rows that a sequence has are used, and they are reduced
// once a sequence (source, target).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "golden/cases.h"
#include "tessera/models.h"
#include "tessera/optimizer.h"

namespace tessera::testing {
namespace {

using Bytes = std::map<std::string, std::int64_t>;
constexpr std::int64_t kWidth = 4;

struct Rules {
  const char *mesh, *layout;
  const char *data = "", *model = "";  // axis of batch; of vocab, d_ff and heads
};
// Pure forms, and data x model on the paper's shapes of meshes, on uneven ones, and with an axis that nothing
// uses.
const Rules kRules[] = {
    {"all:4", ""},
    {"all:8", "batch:all", "all"},
    {"all:3", "batch:all", "all"},
    {"all:8", "vocab:all;d_ff:all;heads:all", "", "all"},
    {"all:3", "vocab:all;d_ff:all;heads:all", "", "all"},
    {"batch:2;model:4", "batch:batch;vocab:model;d_ff:model;heads:model", "batch", "model"},
    {"batch:4;model:2", "batch:batch;vocab:model;d_ff:model;heads:model", "batch", "model"},
    {"batch:3;model:5", "batch:batch;vocab:model;d_ff:model;heads:model", "batch", "model"},
    {"batch:32;model:8", "batch:batch;vocab:model;d_ff:model;heads:model", "batch", "model"},
    {"batch:2;idle:3;model:2", "batch:batch;vocab:model;d_ff:model;heads:model", "batch", "model"},
};

TransformerConfig small(ModelKind kind) {
  TransformerConfig c;
  c.kind = kind;
  c.encoder_layers = 2;
  c.layers = 3;
  c.d_model = 16;
  c.heads = 8;
  c.d_kv = 4;
  c.d_ff = 30;
  c.vocab = 40;
  c.max_length = 12;
  c.label_smoothing = 0.1;
  c.z_loss = 1e-3;
  return c;
}

std::int64_t part(std::int64_t size, std::int64_t n) {
  return (size + n - 1) / n;
}

// Sizes of one rank's part of the model.
struct Part {
  Part(const TransformerConfig& config, const ModelShape& shape, std::int64_t r, std::int64_t c)
      : batch(part(shape.batch, r)),
        heads(part(config.heads, c)),
        d_ff(part(config.d_ff, c)),
        vocab(part(config.vocab, c)) {}
  std::int64_t batch, heads, d_ff, vocab;
};

bool translates(const TransformerConfig& c) {
  return c.kind == ModelKind::EncoderDecoder;
}

std::int64_t model_bytes(const TransformerConfig& c, const ModelShape& shape, const Part& p) {
  std::int64_t source = p.batch * shape.source_length, target = p.batch * shape.target_length;
  std::int64_t blocks = translates(c) ? 3 : 2;
  std::int64_t encoder = translates(c) ? source * c.d_model * (2 + 4 * c.encoder_layers) : 0;
  std::int64_t decoder = target * c.d_model * (2 + 2 * blocks * c.layers);
  return kWidth * (encoder + decoder);
}

std::int64_t data_bytes(const Graph& g, const ModelShape& shape, const Part& p) {
  std::int64_t elements = 0;
  for (const Variable& v : g.variables()) {
    std::int64_t size = 1;
    for (const Dim& dim : g.node(v.node).outputs[0].shape) {
      if (dim.name == "positions")
        size *= shape.source_length + shape.target_length;
      else if (dim.name == "heads")
        size *= p.heads;
      else if (dim.name == "d_ff")
        size *= p.d_ff;
      else if (dim.name == "vocab")
        size *= p.vocab;
      else
        size *= dim.size;
    }
    elements += size;
  }
  return kWidth * elements;
}

// Contractions forward have two of the same size backward. Attention has two products of all visible pairs
// forward and five backward, which makes the weights again.
double contraction_flops(const TransformerConfig& c, const ModelShape& shape, const Part& p) {
  const auto real = [](std::int64_t n) { return static_cast<double>(n); };
  auto attention = [&](std::int64_t queries, std::int64_t memory, double seen) {
    std::int64_t projections = 2 * p.batch * (queries + memory) * c.d_model * p.heads * c.d_kv;  // q, o; k, v
    return 3 * real(projections) + 7 * seen * real(p.batch * p.heads * queries * memory * c.d_kv);
  };
  auto ffn = [&](std::int64_t length) { return 3 * real(2 * p.batch * length * c.d_model * p.d_ff); };
  std::int64_t s = shape.source_length, t = shape.target_length;
  double causal = real(t + 1) / real(2 * t);
  double decoder = attention(t, t, causal) + ffn(t) + (translates(c) ? attention(t, s, 1) : 0);
  double encoder = translates(c) ? real(c.encoder_layers) * (attention(s, s, 1) + ffn(s)) : 0;
  return 2 * (encoder + real(c.layers) * decoder + 3 * real(p.batch * t * c.d_model * p.vocab));
}

class RuleSet : public ::testing::TestWithParam<ModelKind> {
 protected:
  void SetUp() override {
    config_ = small(GetParam());
    if (!translates(config_)) shape_.source_length = 0;
    TransformerOutputs out = build_transformer_loss(graph_, config_, shape_);
    targets_ = {out.loss.sum, out.loss.weight};
    Tensors grads = gradients({out.loss.sum}, trainable_parameters(graph_, OptimizerConfig()));
    targets_.insert(targets_.end(), grads.begin(), grads.end());
  }

  ProgramStats lowered(const Rules& rules, const std::set<std::string>& without = {}) {
    LowerOptions options;
    options.without = without;
    return stats(lower(graph_, targets_, Mesh::parse(rules.mesh), Layout::parse(rules.layout), options));
  }

  static std::int64_t size_of_axis(const Rules& rules, std::string_view axis) {
    Mesh mesh = Mesh::parse(rules.mesh);
    return axis.empty() ? 1 : mesh.axis_size(mesh.find(axis));
  }
  Part part_of(const Rules& rules) const {
    return Part(config_, shape_, size_of_axis(rules, rules.data), size_of_axis(rules, rules.model));
  }

  Graph graph_;
  TransformerConfig config_;
  ModelShape shape_{.batch = 40, .source_length = 10, .target_length = 6};
  Tensors targets_;
};

TEST_P(RuleSet, CommunicatesWhatTheFormulaSays) {
  for (const Rules& rules : kRules) {
    for (const bool joint : {true, false}) {
      SCOPED_TRACE(
          fmt::format("mesh {} layout {}{}", rules.mesh, rules.layout, joint ? "" : " without joint"));
      ProgramStats s = lowered(rules, joint ? std::set<std::string>{} : std::set<std::string>{"joint"});
      const Part p = part_of(rules);
      const std::int64_t numbers = 3 * p.batch * shape_.target_length;
      const std::string data = rules.data, model = rules.model;
      Bytes want;
      if (!model.empty()) want[model] = model_bytes(config_, shape_, p);
      if (!data.empty()) want[data] = data_bytes(graph_, shape_, p) + kWidth;  // weight
      if (!model.empty() && joint) {
        want[model] += (size_of_axis(rules, model) - 1) * kWidth * numbers;
        want[data.empty() ? model : data + "+" + model] += kWidth;  // loss
      } else {
        if (!model.empty()) want[model] += kWidth * numbers;
        if (!data.empty()) want[data] += kWidth;
      }
      EXPECT_EQ(s.bytes_per_axis, want);
      EXPECT_EQ(s.count["joint"], joint && !model.empty() ? 1 : 0);
      s.count.erase("all_reduce");
      s.count.erase("joint");
      EXPECT_EQ(s.count, Bytes{}) << "sums only: nothing is gathered or moved";
    }
  }
}

// One a parameter over batch (positions: one a sequence), with loss and weight; over the model the blocks and
// the loss, or the softmax.
TEST_P(RuleSet, CountsOfAllReduces) {
  std::int64_t tables = translates(config_) ? 2 : 1;  // sequences that use the rows of learned positions
  std::int64_t parameters = static_cast<std::int64_t>(graph_.variables().size());
  EXPECT_EQ(lowered({"all:4", "batch:all"}).count["all_reduce"], parameters - 1 + tables + 2);
  std::int64_t encoder = translates(config_) ? 2 + 4 * config_.encoder_layers : 0;
  std::int64_t decoder = 2 + (translates(config_) ? 6 : 4) * config_.layers;
  const Rules model{"all:4", "vocab:all;d_ff:all;heads:all"};
  EXPECT_EQ(lowered(model).count["all_reduce"], encoder + decoder + 1);
  EXPECT_EQ(lowered(model, {"joint"}).count["all_reduce"], encoder + decoder + 3);
}

TEST_P(RuleSet, NoRankWorksMoreThanItsPart) {
  for (const Rules& rules : kRules) {
    SCOPED_TRACE(fmt::format("mesh {} layout {}", rules.mesh, rules.layout));
    EXPECT_DOUBLE_EQ(lowered(rules).contraction_flops, contraction_flops(config_, shape_, part_of(rules)));
  }
}

INSTANTIATE_TEST_SUITE_P(, RuleSet, ::testing::Values(ModelKind::EncoderDecoder, ModelKind::LanguageModel),
                         [](const auto& kind) { return std::string(to_string(kind.param)); });

}  // namespace
}  // namespace tessera::testing
