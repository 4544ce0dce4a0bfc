// Whole models on one processor: cached decoding, packing and padding must not change a token's numbers;
// parameters have the same names in every graph.
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/error.h"
#include "tessera/grad.h"
#include "tessera/models.h"
#include "tessera/optimizer.h"
#include "unit/nn_eval.h"

namespace tessera {
namespace {

using nn_testing::Evaluator;
using nn_testing::values_of;
using Feeds = std::map<std::string, Array>;

TransformerConfig tiny_config(ModelKind kind, Positions positions = Positions::Learned) {
  TransformerConfig config;
  config.kind = kind;
  config.encoder_layers = 1;
  config.layers = 2;
  config.d_model = 6;
  config.heads = 3;
  config.d_kv = 2;
  config.d_ff = 5;
  config.vocab = 7;
  config.max_length = 9;
  config.positions = positions;
  config.relative_buckets = 8;
  config.relative_max_distance = 6;
  config.dropout = 0;
  config.dtype = DType::F64;
  return config;
}

Array ids(std::int64_t batch, std::int64_t length, const std::vector<double>& values) {
  return Array({{{"batch", batch}, {"length", length}}, DType::I32}, values);
}

Array position(std::int64_t value) {
  return Array({{}, DType::I32}, {static_cast<double>(value)});
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    worst = std::max(worst, std::abs(a[i] - b[i]));
  return worst;
}

// The slice of logits [batch, length, vocab] at one position.
std::vector<double> at_position(const Array& logits, std::int64_t p) {
  const Shape& shape = logits.type.shape;
  std::vector<double> result;
  for (std::int64_t b = 0; b < shape[0].size; ++b) {
    for (std::int64_t v = 0; v < shape[2].size; ++v) {
      result.push_back(logits.get((b * shape[1].size + p) * shape[2].size + v));
    }
  }
  return result;
}

class EveryPosition : public ::testing::TestWithParam<Positions> {};
INSTANTIATE_TEST_SUITE_P(Models, EveryPosition,
                         ::testing::Values(Positions::Learned, Positions::Sinusoidal, Positions::Relative,
                                           Positions::None),
                         [](const auto& param) { return std::string(to_string(param.param)); });

TEST_P(EveryPosition, CachedStepsOfALanguageModelEqualTheFullForward) {
  const TransformerConfig config = tiny_config(ModelKind::LanguageModel, GetParam());
  const std::vector<double> tokens{0, 3, 5, 2, 6, 0, 1, 1, 4, 3};
  Evaluator eval;
  Graph full;
  const Tensor logits = build_logits(full, config, {.batch = 2, .target_length = 5, .explicit_inputs = true});
  const Array expected = eval.run({logits}, {{"target_input", ids(2, 5, tokens)}})[0];

  // A prefix of two tokens in one run, then single steps; the cache is longer than the sequence.
  Graph prefix, step;
  const DecodeOutputs first = build_decode(prefix, config, {.batch = 2, .steps = 2, .capacity = 7});
  const DecodeOutputs next = build_decode(step, config, {.batch = 2, .steps = 1, .capacity = 7});
  Tensors targets{first.logits};
  targets.insert(targets.end(), first.assignments.begin(), first.assignments.end());
  Array out = eval.run(targets, {{"token", ids(2, 2, {0, 3, 0, 1})}, {"position", position(0)}})[0];
  EXPECT_LT(largest_difference(at_position(out, 1), at_position(expected, 1)), 1e-12);
  targets = {next.logits};
  targets.insert(targets.end(), next.assignments.begin(), next.assignments.end());
  for (std::int64_t p = 2; p < 5; ++p) {
    const auto i = static_cast<std::size_t>(p);
    out = eval.run(targets, {{"token", ids(2, 1, {tokens[i], tokens[5 + i]})}, {"position", position(p)}})[0];
    EXPECT_LT(largest_difference(at_position(out, 0), at_position(expected, p)), 1e-12) << "position " << p;
  }
}

TEST_P(EveryPosition, CachedStepsOfAnEncoderDecoderEqualTheFullForward) {
  const TransformerConfig config = tiny_config(ModelKind::EncoderDecoder, GetParam());
  const Array source = ids(2, 3, {4, 2, 1, 5, 1, 0});
  const std::vector<double> tokens{0, 3, 5, 2, 0, 6, 1, 4};
  Evaluator eval;
  Graph full;
  const Tensor logits = build_logits(
      full, config, {.batch = 2, .source_length = 3, .target_length = 4, .explicit_inputs = true});
  const Array expected = eval.run({logits}, {{"source", source}, {"target_input", ids(2, 4, tokens)}})[0];

  const DecodeShape shape{.batch = 2, .steps = 1, .capacity = 4, .source_length = 3};
  Graph prefill, step;
  eval.run(build_prefill(prefill, config, shape), {{"source", source}});
  const DecodeOutputs next = build_decode(step, config, shape);
  Tensors targets{next.logits};
  targets.insert(targets.end(), next.assignments.begin(), next.assignments.end());
  for (std::int64_t p = 0; p < 4; ++p) {
    const auto i = static_cast<std::size_t>(p);
    const Array out =
        eval.run(targets, {{"token", ids(2, 1, {tokens[i], tokens[4 + i]})}, {"position", position(p)}})[0];
    EXPECT_LT(largest_difference(at_position(out, 0), at_position(expected, p)), 1e-12) << "position " << p;
  }
}

TEST(Decoding, ReorderedCachesContinueTheChosenRows) {
  const TransformerConfig config = tiny_config(ModelKind::LanguageModel);
  const DecodeShape shape{.batch = 3, .steps = 1, .capacity = 4};
  Evaluator eval;
  Graph step, reorder;
  const DecodeOutputs next = build_decode(step, config, shape);
  Tensors targets{next.logits};
  targets.insert(targets.end(), next.assignments.begin(), next.assignments.end());
  const Tensors moves = build_reorder(reorder, config, shape);
  eval.run(targets, {{"token", ids(3, 1, {2, 3, 4})}, {"position", position(0)}});
  eval.run(moves, {{"rows", Array({{{"batch", 3}}, DType::I32}, {2, 2, 0})}});
  const Array got = eval.run(targets, {{"token", ids(3, 1, {5, 1, 6})}, {"position", position(1)}})[0];

  Graph full;
  const Tensor logits = build_logits(full, config, {.batch = 3, .target_length = 2, .explicit_inputs = true});
  const Array expected = eval.run({logits}, {{"target_input", ids(3, 2, {4, 5, 4, 1, 2, 6})}})[0];
  EXPECT_LT(largest_difference(at_position(got, 0), at_position(expected, 1)), 1e-12);
}

TEST(Decoding, RowsOfABeamShareTheirSentencesSource) {
  const TransformerConfig config = tiny_config(ModelKind::EncoderDecoder);
  const DecodeShape shape{.batch = 4, .beam = 2, .steps = 1, .capacity = 2, .source_length = 3};
  Evaluator eval;
  Graph prefill, step, full;
  eval.run(build_prefill(prefill, config, shape), {{"source", ids(2, 3, {4, 2, 1, 5, 1, 0})}});
  const DecodeOutputs next = build_decode(step, config, shape);
  const Array got =
      eval.run({next.logits}, {{"token", ids(4, 1, {0, 2, 0, 3})}, {"position", position(0)}})[0];
  const Tensor logits = build_logits(
      full, config, {.batch = 4, .source_length = 3, .target_length = 1, .explicit_inputs = true});
  const Array expected = eval.run({logits}, {{"source", ids(4, 3, {4, 2, 1, 4, 2, 1, 5, 1, 0, 5, 1, 0})},
                                             {"target_input", ids(4, 1, {0, 2, 0, 3})}})[0];
  EXPECT_LT(largest_difference(values_of(got), values_of(expected)), 1e-12);
}

TEST(Training, PaddingAndOtherRowsDoNotChangeARow) {
  const TransformerConfig config = tiny_config(ModelKind::EncoderDecoder, Positions::Relative);
  Evaluator eval;
  Graph alone, padded;
  const TransformerOutputs one =
      build_transformer_loss(alone, config, {.batch = 1, .source_length = 2, .target_length = 3});
  const TransformerOutputs many =
      build_transformer_loss(padded, config, {.batch = 2, .source_length = 5, .target_length = 6});
  const std::vector<Array> a = eval.run({one.loss.tokens, one.loss.sum, one.loss.weight},
                                        {{"source", ids(1, 2, {3, 1})}, {"target", ids(1, 3, {5, 2, 1})}});
  const std::vector<Array> b =
      eval.run({many.loss.tokens}, {{"source", ids(2, 5, {6, 5, 4, 3, 1, 3, 1, 0, 0, 0})},
                                    {"target", ids(2, 6, {2, 3, 4, 5, 6, 1, 5, 2, 1, 0, 0, 0})}});
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(a[0].get(i), b[0].get(6 + i), 1e-12);
  EXPECT_EQ(a[2].get(0), 3);
  EXPECT_NEAR(a[1].get(0), a[0].get(0) + a[0].get(1) + a[0].get(2), 1e-12);
}

TEST(Training, PackedSequencesDoNotSeeEachOther) {
  for (const Positions positions : {Positions::Learned, Positions::Relative}) {
    const TransformerConfig config = tiny_config(ModelKind::LanguageModel, positions);
    Evaluator eval;
    Graph apart, together;
    const TransformerOutputs two = build_transformer_loss(apart, config, {.batch = 2, .target_length = 3});
    const TransformerOutputs one =
        build_transformer_loss(together, config, {.batch = 1, .target_length = 6, .packed = true});
    const Array a = eval.run({two.loss.tokens}, {{"target", ids(2, 3, {5, 2, 1, 6, 1, 0})}})[0];
    Feeds feeds{{"target", ids(1, 6, {5, 2, 1, 6, 1, 0})}, {"segment", ids(1, 6, {1, 1, 1, 2, 2, 0})}};
    feeds["position"] = ids(1, 6, {0, 1, 2, 0, 1, 0});
    const std::vector<Array> b = eval.run({one.loss.tokens, one.loss.weight}, feeds);
    for (int i = 0; i < 5; ++i) EXPECT_NEAR(a.get(i), b[0].get(i), 1e-12) << "token " << i;
    EXPECT_EQ(b[1].get(0), 5);
  }
}

TEST(Training, ExplicitWeightsCountRealZerosAndNothingElse) {
  const TransformerConfig config = tiny_config(ModelKind::LanguageModel);
  Evaluator eval;
  Graph graph;
  const TransformerOutputs out =
      build_transformer_loss(graph, config, {.batch = 1, .target_length = 3, .explicit_weights = true});
  const Feeds feeds{{"target", ids(1, 3, {0, 1, 4})},
                    {"weight", Array({{{"batch", 1}, {"length", 3}}, DType::F64}, {1, 1, 0})}};
  const std::vector<Array> values = eval.run({out.loss.tokens, out.loss.sum, out.loss.weight}, feeds);
  EXPECT_EQ(values[2].get(0), 2);
  EXPECT_NEAR(values[1].get(0), values[0].get(0) + values[0].get(1), 1e-12);
}

TEST(Training, LabelsAllPaddingGiveNoLossAndZeroGradients) {
  const TransformerConfig config = tiny_config(ModelKind::LanguageModel);
  Evaluator eval;
  Graph graph;
  const TransformerOutputs out = build_transformer_loss(graph, config, {.batch = 1, .target_length = 2});
  const Tensors parameters = trainable_parameters(graph, {});
  Tensors targets = gradients({out.loss.sum}, parameters);
  targets.push_back(nn::ratio(out.loss.sum, out.loss.weight));
  for (const Array& value : eval.run(targets, {{"target", ids(1, 2, {0, 0})}})) {
    for (const double v : values_of(value)) EXPECT_EQ(v, 0);
  }
}

TEST(Training, RecomputationChangesNoGradient) {
  TransformerConfig config = tiny_config(ModelKind::EncoderDecoder);
  config.dropout = 0.3;
  Evaluator eval;
  const Feeds feeds{{"source", ids(1, 3, {3, 4, 1})}, {"target", ids(1, 3, {5, 2, 1})}};
  std::vector<std::vector<Array>> results;
  std::vector<std::size_t> nodes;
  for (const Strings& recompute :
       {Strings{}, Strings{"decoder/layer_*"}, Strings{"*/ffn", "encoder/layer_000"}}) {
    config.recompute = recompute;
    Graph graph;
    const TransformerOutputs out =
        build_transformer_loss(graph, config, {.batch = 1, .source_length = 3, .target_length = 3});
    results.push_back(eval.run(gradients({out.loss.sum}, trainable_parameters(graph, {})), feeds));
    nodes.push_back(graph.nodes().size());
  }
  EXPECT_GT(nodes[1], nodes[0]);
  EXPECT_GT(nodes[2], nodes[0]);
  for (std::size_t i = 0; i < results[0].size(); ++i) {
    EXPECT_EQ(results[0][i].data, results[1][i].data) << "gradient " << i;
    EXPECT_EQ(results[0][i].data, results[2][i].data) << "gradient " << i;
  }
}

TEST(Training, EvaluationLeavesOutDropoutSmoothingAndZLoss) {
  TransformerConfig config = tiny_config(ModelKind::LanguageModel), plain = config;
  config.dropout = 0.5;
  config.label_smoothing = 0.1;
  config.z_loss = 0.01;
  Evaluator eval;
  Graph train, evaluate, reference;
  const ModelShape shape{.batch = 1, .target_length = 3};
  const Feeds feeds{{"target", ids(1, 3, {5, 2, 1})}};
  const double expected = eval.scalar(build_transformer_loss(reference, plain, shape).loss.sum, feeds);
  EXPECT_EQ(eval.scalar(build_transformer_loss(evaluate, config, shape, ModelMode::Evaluate).loss.sum, feeds),
            expected);
  EXPECT_GT(std::abs(eval.scalar(build_transformer_loss(train, config, shape).loss.sum, feeds) - expected),
            1e-3);
}

std::map<std::string, Type> parameters_of(const Graph& graph) {
  std::map<std::string, Type> result;
  for (const Variable& v : graph.variables()) {
    if (v.kind == VariableKind::Parameter) result[v.name] = graph.node(v.node).outputs[0];
  }
  return result;
}

TEST(Models, ParametersHaveTheSameNamesAndTypesInEveryGraph) {
  for (const bool shared : {true, false}) {
    TransformerConfig config = tiny_config(ModelKind::EncoderDecoder);
    config.shared_embedding = config.tied_softmax = shared;
    Graph train, logits, decode, prefill;
    build_transformer_loss(train, config, {.batch = 4, .source_length = 3, .target_length = 5});
    build_logits(logits, config, {.batch = 2, .source_length = 3, .target_length = 2});
    const DecodeShape shape{.batch = 2, .steps = 1, .capacity = 4, .source_length = 3};
    build_decode(decode, config, shape);
    build_prefill(prefill, config, shape);
    const std::map<std::string, Type> expected = parameters_of(train);
    EXPECT_EQ(parameters_of(logits), expected);
    for (const Graph* part : {&decode, &prefill}) {
      for (const auto& [name, type] : parameters_of(*part)) {
        ASSERT_TRUE(expected.contains(name)) << name;
        EXPECT_EQ(type, expected.at(name)) << name;
      }
    }
  }
}

TEST(Models, PresetsHaveTheTablesParameterCounts) {
  for (const Preset& p : presets()) {
    const bool is_paper = p.name.rfind("lm_", 0) == 0 || p.name.rfind("mt_", 0) == 0;
    if (!is_paper) continue;
    const TransformerConfig& m = p.model;
    const bool is_lm = m.kind == ModelKind::LanguageModel;
    const ParameterCount count = parameter_count(m);
    const std::int64_t layer = is_lm ? 4 * m.d_model * m.heads * m.d_kv + 2 * m.d_model * m.d_ff
                                     : 12 * m.d_model * m.heads * m.d_kv + 4 * m.d_model * m.d_ff;
    EXPECT_EQ(count.attention + count.feed_forward, 6 * layer) << p.name;
    EXPECT_EQ(count.embeddings, 2 * 32768 * m.d_model) << p.name;
    EXPECT_EQ(count.positions, 256 * m.d_model) << p.name;
    EXPECT_EQ(count.norms, (is_lm ? 13 : 32) * m.d_model) << p.name;
    const std::string billions = p.name.substr(3, 5);
    char text[32];
    std::snprintf(text, sizeof text, "%.3f", static_cast<double>(count.total()) / 1e9);
    EXPECT_EQ(billions, text) << p.name;
  }
  EXPECT_EQ(parameter_count(preset("demo").model).total(), 7557376);
  EXPECT_EQ(parameter_count(preset("peers_lm").model).total(), 51780096);
}

TEST(Models, AnUnknownPresetNamesTheNearest) {
  try {
    preset("peer_lm");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("there is no preset 'peer_lm'; did you mean 'peers_lm'?"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tessera
