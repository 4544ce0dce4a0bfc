// Whole models through the Session: each dimension split by itself, uneven micro-batches with dropout, and
// decoding with split caches give the numbers of one processor.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tessera/grad.h"
#include "tessera/models.h"
#include "tessera/optimizer.h"
#include "tessera/session.h"

namespace tessera {
namespace {

constexpr int kUpdates = 3;

TransformerConfig session_config(ModelKind kind) {
  TransformerConfig c;
  c.kind = kind;
  c.encoder_layers = c.layers = 1;
  c.d_model = 6;
  c.heads = 3;
  c.d_kv = 2;
  c.d_ff = 5;
  c.vocab = 7;
  c.max_length = 9;
  c.dropout = 0.2;
  c.dtype = DType::F64;
  c.tied_softmax = kind == ModelKind::EncoderDecoder;
  c.positions = kind == ModelKind::LanguageModel ? Positions::Learned : Positions::Relative;
  c.relative_buckets = 8;
  c.relative_max_distance = 6;
  return c;
}

// Rows [from, from + rows) of a fixed table of ids, some of them padding.
Array id_rows(std::int64_t from, std::int64_t rows, std::int64_t length, std::int64_t salt) {
  Array array({{{"batch", rows}, {"length", length}}, DType::I32});
  for (std::int64_t i = 0; i < rows * length; ++i) {
    const std::int64_t k = i + from * length;
    array.set(i, (k * 7 + salt) % 4 == 0 ? 0 : static_cast<double>((k * 5 + salt) % 6 + 1));
  }
  return array;
}

Array scalar(double value, DType dtype) {
  return Array({{}, dtype}, {value});
}

// Relative L2 distance of all parameters together.
double distance(const std::map<std::string, Array>& a, const std::map<std::string, Array>& b) {
  double worst = 0;
  for (const auto& [name, x] : a) {
    double difference = 0, size = 0;
    for (std::int64_t i = 0; i < x.elements(); ++i) {
      difference += std::pow(x.get(i) - b.at(name).get(i), 2);
      size += std::pow(x.get(i), 2);
    }
    worst = std::max(worst, std::sqrt(difference / size));
  }
  return worst;
}

std::map<std::string, Array> parameters_in(Session& session, const Graph& graph) {
  std::map<std::string, Array> result;
  for (const Variable& v : graph.variables()) {
    if (v.kind == VariableKind::Parameter) result[v.name] = session.store().read(v.name);
  }
  return result;
}

struct Trained {
  double loss = 0, correct = 0, norm = 0;
  std::map<std::string, Array> parameters;
};

// A training graph of either kind, in one program.
struct TrainingGraph {
  Graph graph;
  FeedMap feeds;
  Tensors targets;

  explicit TrainingGraph(ModelKind kind) {
    const bool has_source = kind == ModelKind::EncoderDecoder;
    const TransformerOutputs out = build_transformer_loss(
        graph, session_config(kind), {.batch = 4, .source_length = has_source ? 3 : 0, .target_length = 5});
    const Tensors parameters = trainable_parameters(graph, {});
    OptimizerConfig config;
    config.clip_norm = 1;
    config.kind = has_source ? OptimizerKind::Adafactor : OptimizerKind::Adam;
    config.adafactor.min_factored_size = 2;
    const UpdateInputs inputs{graph.input("learning_rate", {}, DType::F64),
                              graph.input("step", {}, DType::I32), out.loss.weight};
    const Updates updates =
        build_updates(graph, parameters, gradients({out.loss.sum}, parameters), config, inputs);
    targets = {out.loss.sum, out.correct, updates.gradient_norm};
    targets.insert(targets.end(), updates.assignments.begin(), updates.assignments.end());
    feeds = {{"target", id_rows(0, 4, 5, 1)}, {"learning_rate", scalar(0.1, DType::F64)}};
    if (has_source) feeds["source"] = id_rows(0, 4, 3, 2);
  }

  Trained train(const std::string& mesh, const std::string& layout) {
    Session session(graph, Mesh::parse(mesh), Layout::parse(layout));
    const int program = session.compile(targets);
    Trained result;
    for (int step = 0; step < kUpdates; ++step) {
      feeds["step"] = scalar(step, DType::I32);
      const Results r = session.run(program, feeds, {.step = step, .windows = {}});
      result = {r.scalar(0), r.scalar(1), r.scalar(2), {}};
    }
    result.parameters = parameters_in(session, graph);
    return result;
  }
};

class EitherModel : public ::testing::TestWithParam<ModelKind> {};
INSTANTIATE_TEST_SUITE_P(Session, EitherModel,
                         ::testing::Values(ModelKind::EncoderDecoder, ModelKind::LanguageModel),
                         [](const auto& item) { return std::string(to_string(item.param)); });

TEST_P(EitherModel, EachDimensionSplitOverThreeTrainsTheSame) {
  TrainingGraph model(GetParam());
  std::set<std::string> dims;
  for (const Node& node : model.graph.nodes()) {
    for (const Type& type : node.outputs) {
      for (const Dim& dim : type.shape) dims.insert(dim.name);
    }
  }
  EXPECT_GE(dims.size(), 9u);
  const Trained expected = model.train("", "");
  for (const std::string& dim : dims) {
    const Trained got = model.train("idle:2;rows:3", dim + ":rows");
    EXPECT_NEAR(got.loss, expected.loss, 1e-11) << dim;
    EXPECT_EQ(got.correct, expected.correct) << dim;
    EXPECT_NEAR(got.norm, expected.norm, 1e-11) << dim;
    EXPECT_LT(distance(expected.parameters, got.parameters), 1e-12) << dim;
  }
}

// Three updates, each from micro-batches with the bounds `cuts`.
Trained train_micro(const std::vector<std::int64_t>& cuts, const std::string& layout) {
  std::vector<std::unique_ptr<Graph>> graphs;
  std::vector<Tensors> targets;
  for (std::size_t m = 0; m + 1 < cuts.size(); ++m) {
    Graph& g = *graphs.emplace_back(std::make_unique<Graph>());
    const TransformerOutputs out =
        build_transformer_loss(g, session_config(ModelKind::EncoderDecoder),
                               {.batch = cuts[m + 1] - cuts[m], .source_length = 3, .target_length = 5});
    const Tensors parameters = trainable_parameters(g, {});
    targets.push_back(build_accumulation(g, parameters, gradients({out.loss.sum}, parameters),
                                         {{"loss", out.loss.sum}, {"weight", out.loss.weight}}));
  }
  OptimizerConfig config;
  config.clip_norm = 1;
  Graph apply;
  const ApplyOutputs outputs = build_apply(*graphs[0], apply, config, "weight");
  Tensors apply_targets{outputs.sums[0].second, outputs.sums[1].second};
  apply_targets.insert(apply_targets.end(), outputs.updates.assignments.begin(),
                       outputs.updates.assignments.end());
  Session session(*graphs[0], Mesh::parse("rows:2;cols:2"), Layout::parse(layout));
  std::vector<int> programs;
  for (std::size_t m = 0; m < targets.size(); ++m)
    programs.push_back(session.compile(*graphs[m], targets[m]));
  const int update = session.compile(apply, apply_targets);
  Trained result;
  for (int step = 0; step < kUpdates; ++step) {
    for (std::size_t m = 0; m < programs.size(); ++m) {
      const std::int64_t rows = cuts[m + 1] - cuts[m];
      session.run(programs[m],
                  FeedMap{{"source", id_rows(cuts[m], rows, 3, 2)}, {"target", id_rows(cuts[m], rows, 5, 1)}},
                  {.step = step, .windows = {{"batch", {cuts[m], cuts.back()}}}});
    }
    const Results r = session.run(
        update, FeedMap{{"learning_rate", scalar(0.1, DType::F64)}, {"step", scalar(step, DType::I32)}},
        {.step = step, .windows = {}});
    result = {r.scalar(0), r.scalar(1), 0, {}};
  }
  result.parameters = parameters_in(session, *graphs[0]);
  return result;
}

TEST(MicroBatchPrograms, UnevenOnesWithDropoutEqualTheWholeBatchOnEveryLayout) {
  const Trained expected = train_micro({0, 7}, "");
  EXPECT_GT(expected.loss, 1);
  for (const char* layout :
       {"", "batch:rows", "batch:rows;heads:cols;params.*:rows", "batch:rows;vocab:cols;slots.*:rows"}) {
    for (const std::vector<std::int64_t>& cuts : {std::vector<std::int64_t>{0, 7}, {0, 4, 7}, {0, 3, 5, 7}}) {
      const Trained got = train_micro(cuts, layout);
      EXPECT_NEAR(got.loss, expected.loss, 1e-11) << layout << ", " << cuts.size() - 1;
      EXPECT_EQ(got.correct, expected.correct) << layout;  // the sum of the weights
      EXPECT_LT(distance(expected.parameters, got.parameters), 1e-12) << layout << ", " << cuts.size() - 1;
    }
  }
}

// Logits of three greedy steps after a re-ordering of the rows.
std::vector<double> decoded(const std::string& layout) {
  const TransformerConfig config = session_config(ModelKind::EncoderDecoder);
  const DecodeShape shape{.batch = 6, .beam = 2, .steps = 1, .capacity = 5, .source_length = 3};
  Graph step, prefill, reorder;
  const DecodeOutputs out = build_decode(step, config, shape);
  Tensors targets{out.logits};
  targets.insert(targets.end(), out.assignments.begin(), out.assignments.end());
  const Tensors fill = build_prefill(prefill, config, shape), move = build_reorder(reorder, config, shape);
  Session session(step, Mesh::parse("rows:2;cols:2"), Layout::parse(layout));
  const int next = session.compile(targets);
  session.run(session.compile(prefill, fill), FeedMap{{"source", id_rows(0, 3, 3, 2)}});
  const int moved = session.compile(reorder, move);
  std::vector<double> all;
  for (int p = 0; p < 3; ++p) {
    const Array logits =
        session.run(next, FeedMap{{"token", id_rows(p, 6, 1, p)}, {"position", scalar(p, DType::I32)}})
            .gather(0);
    for (std::int64_t i = 0; i < logits.elements(); ++i) all.push_back(logits.get(i));
    session.run(moved, FeedMap{{"rows", Array({{{"batch", 6}}, DType::I32}, {1, 1, 2, 3, 5, 4})}});
  }
  return all;
}

TEST(DecodePrograms, SplitCachesGiveTheSameLogits) {
  const std::vector<double> expected = decoded("");
  for (const char* layout : {"batch:rows", "heads:rows;vocab:cols;d_ff:cols", "memory_length:rows;batch:cols",
                             "d_model:rows", "batch:rows+cols", "d_kv:cols;batch:rows"}) {
    const std::vector<double> got = decoded(layout);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], expected[i], 1e-12) << layout << " " << i;
  }
}

}  // namespace
}  // namespace tessera
