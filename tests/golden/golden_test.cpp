// Lowering as text: each case's program must equal tests/golden/NAME.txt (TESSERA_UPDATE_GOLDEN=1 rewrites
// the files), and the simulated program must give what one rank gives.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "golden/cases.h"
#include "support/evaluate.h"
#include "support/expect_error.h"
#include "support/simulate.h"
#include "tessera/error.h"
#include "tessera/session.h"

namespace tessera::testing {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class Golden : public ::testing::TestWithParam<GoldenCase> {
 protected:
  void SetUp() override {
    targets_ = GetParam().build(graph_);
    LowerOptions options;
    options.without = {"fuse"};  // golden files show lowering, delayed sums and reduce-scatter creation
    program_ =
        lower(graph_, targets_, Mesh::parse(GetParam().mesh), Layout::parse(GetParam().layout), options);
  }
  // Small whole numbers around zero for every input: (i * step) mod size, less size / 2.
  std::map<std::string, Array> feeds(std::int64_t step, std::int64_t size) const {
    std::map<std::string, Array> result;
    for (const Node& node : graph_.nodes()) {
      if (node.op != &kInputOp) continue;
      Array feed(node.outputs[0]);
      for (std::int64_t i = 0; i < feed.elements(); ++i) {
        feed.set(i, static_cast<double>((i * step) % size - size / 2));
      }
      result[node.attrs.text("name")] = feed;
    }
    return result;
  }
  Graph graph_;
  std::vector<Tensor> targets_;
  Program program_;
};

TEST_P(Golden, TextIsAsKept) {
  std::string path = std::string(TESSERA_SOURCE_DIR) + "/tests/golden/" + GetParam().name + ".txt";
  std::string text = to_string(program_);
  if (std::getenv("TESSERA_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
  EXPECT_EQ(text, read_file(path)) << path;
}

TEST_P(Golden, GivesWhatOneRankGives) {
  SimulateOptions options;
  options.graph = &graph_;
  EvaluateOptions oracle;
  options.feeds = oracle.feeds = feeds(7, 5);
  Simulated got = simulate(program_, options);
  std::vector<Array> want = evaluate(targets_, oracle);
  EXPECT_EQ(got.replica_mismatch, "");
  std::size_t fetch = 0;
  for (std::size_t t = 0; t < targets_.size(); ++t) {
    const Node& node = graph_.node(targets_[t].node());
    const Array& value =
        node.op == &kAssignOp ? got.assigned.at(node.attrs.text("name")) : got.fetches[fetch++];
    EXPECT_EQ(difference(value, want[t], 1e-5, 1e-5), "") << "target " << t;
  }
}

// Every pass may be left out, and all together; the values stay.
TEST_P(Golden, ResultsDoNotDependOnPasses) {
  SimulateOptions options;
  options.graph = &graph_;
  options.feeds = feeds(5, 7);
  Simulated want = simulate(program_, options);
  std::vector<std::set<std::string>> choices{{}};
  for (const Pass& pass : passes()) {
    choices.push_back({pass.name});
    choices[0].insert(pass.name);
  }
  for (const std::set<std::string>& without : choices) {
    LowerOptions lower_options;
    lower_options.without = without;
    Program program = lower(graph_, targets_, Mesh::parse(GetParam().mesh), Layout::parse(GetParam().layout),
                            lower_options);
    Simulated got = simulate(program, options);
    for (std::size_t f = 0; f < want.fetches.size(); ++f) {
      EXPECT_EQ(difference(got.fetches[f], want.fetches[f], 1e-6, 1e-6), "")
          << "fetch " << f << " without " << without.size() << " passes";
    }
    for (const auto& [name, value] : want.assigned)
      EXPECT_EQ(difference(got.assigned.at(name), value, 1e-6, 1e-6), "") << name;
  }
}

// Two layers with momentum, a view between them, a bias, and classes in bf16.
std::vector<Tensor> trained_layers(Graph& g) {
  Dim batch{"batch", 6}, d_in{"d_in", 5}, mid{"mid", 7}, d_out{"d_out", 3}, classes{"classes", 8192};
  const Tensor x = g.input("x", {batch, d_in});
  const Tensors weights{g.parameter("w1", {d_in, mid}, Initializer::normal(0.1)),
                        g.parameter("w2", {{"wide", 7}, d_out}, Initializer::normal(0.1)),
                        g.parameter("bias", {mid}, Initializer::normal(0.1))};
  const Tensor h = rename(einsum({x, weights[0]}, {batch, mid}) + weights[2], {{"mid", "wide"}});
  const Tensor y = einsum({exp(tanh(h)), weights[1]}, {batch, d_out});
  const Tensor table = g.parameter("table", {classes, d_out}, Initializer::normal(0.1));
  const auto half = [](const Tensor& t) { return cast(t, DType::BF16); };
  const Tensor fit = linear_cross_entropy_sum(half(y), half(table), g.input("label", {batch}, DType::I32),
                                              g.input("weight", {batch}), "classes", {})
                         .sum;
  const Tensor loss = reduce_sum(square(y)) + fit;
  const Tensors grads = gradients({loss}, weights);
  const Graph::RegionScope update(g, Region::Update);
  std::vector<Tensor> targets{loss};
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::string name = g.node(weights[i].node()).name;
    const Tensor m = g.variable(VariableKind::Slot, name + "/m", weights[i].type(), {}, name);
    const Tensor next = 0.9 * m + (i == 0 ? grads[i] + 0.5 * grads[i] : grads[i]);
    targets.push_back(g.assign(m, next));
    targets.push_back(g.assign(weights[i], weights[i] - 0.01 * next));
  }
  return targets;
}

// The session's program of these layers, when passes are left out, on a link that takes its time.
template <class Text>
std::string compiled(const std::set<std::string>& without, Text text) {
  Graph g;
  const std::vector<Tensor> targets = trained_layers(g);
  SessionOptions options;
  options.lower.without = without;
  options.link_latency_seconds = 1e-6;
  Session session(g, Mesh::parse("rows:2;cols:2"), Layout::parse("batch:rows;slots.*:rows;classes:cols"),
                  options);
  const int id = session.compile(targets);
  return text(session.program(id), session.plan(id));
}

// With the places of its values.
std::string compiled(const std::set<std::string>& without) {
  return compiled(
      without, [](const Program& program, const MemoryPlan& plan) { return program_json(program, &plan); });
}

// What a pass does to collectives and updates: those lines without it, then with it.
TEST(Passes, BucketsAreAsKept) {
  std::string text;
  for (const std::set<std::string>& without : {std::set<std::string>{"overlap", "buckets"}, {"overlap"}}) {
    std::istringstream lines(
        compiled(without, [](const Program& program, const MemoryPlan&) { return to_string(program); }));
    text += without.size() == 2 ? "before\n" : "after\n";
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("start") || line.starts_with("assign") || line.find("= wait") != std::string::npos)
        text += line + "\n";
  }
  const std::string path = std::string(TESSERA_SOURCE_DIR) + "/tests/golden/buckets.txt";
  if (std::getenv("TESSERA_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
  EXPECT_EQ(text, read_file(path)) << path;
}

TEST(Passes, EachThatCanBeLeftOutDoesSomething) {
  const std::string with = compiled({});
  for (const Pass& pass : passes()) {
    if (std::string_view(pass.name) == "help") continue;  // one of runs, not of programs
    EXPECT_NE(compiled({pass.name}), with) << pass.name;
  }
}

TEST(Passes, UnknownOnesAreRefused) {
  const std::string known =
      " (passes that can be left out: delay, reduce_scatter, split_output, joint, fuse, early_update, "
      "buckets, overlap, copies, own_rows, help, in_place, views)";
  expect_error<UserError>([] { compiled({"early_updates"}); },
                          "there is no pass 'early_updates'; did you mean 'early_update'?" + known);
  expect_error<UserError>([] { compiled({"threading"}); }, "there is no pass 'threading'" + known);
}

INSTANTIATE_TEST_SUITE_P(, Golden, ::testing::ValuesIn(golden_cases()),
                         [](const auto& c) { return c.param.name; });

// Counts that the files must show, so that an update cannot quietly accept more.
std::map<std::string, std::int64_t> counts(const std::string& name) {
  for (const GoldenCase& c : golden_cases()) {
    if (c.name != name) continue;
    Graph g;
    std::vector<Tensor> targets = c.build(g);
    LowerOptions options;
    return stats(lower(g, targets, Mesh::parse(c.mesh), Layout::parse(c.layout), options)).count;
  }
  return {};
}
using Counts = std::map<std::string, std::int64_t>;

TEST(GoldenCounts, MegatronHasOneAllReduceForwardAndOneBackward) {
  EXPECT_EQ(counts("feed_forward_megatron"), (Counts{{"all_reduce", 2}}));
}
TEST(GoldenCounts, AttentionReducesOnce) {
  EXPECT_EQ(counts("attention_heads"), (Counts{{"all_reduce", 1}}));
}
TEST(GoldenCounts, SplitVocabularyReducesMaximumSumAndLabel) {
  EXPECT_EQ(counts("split_vocab_loss"), (Counts{{"all_reduce", 3}}));
}
// The loss over both axes, and each gradient over the axis that its sum is split over.
TEST(GoldenCounts, SplitProjectionRunsTogetherAndReducesWhatItAddsUp) {
  EXPECT_EQ(counts("split_vocab_projection"), (Counts{{"all_reduce", 3}, {"joint", 1}}));
}
TEST(GoldenCounts, RenameIsOneAllToAll) {
  EXPECT_EQ(counts("rename_all_to_all"), (Counts{{"all_to_all", 1}}));
}
TEST(GoldenCounts, RowParallelIntoSplitConsumerIsReduceScatter) {
  EXPECT_EQ(counts("row_parallel_reduce_scatter"), (Counts{{"reduce_scatter", 1}}));
}
// Gather for the forward and for the backward use, one reduce-scatter of the gradient, one all-reduce of the
// scalar loss.
TEST(GoldenCounts, Zero3) {
  EXPECT_EQ(counts("zero3"), (Counts{{"all_gather", 2}, {"reduce_scatter", 1}, {"all_reduce", 1}}));
}
// The gradient is scattered, the updated parameter gathered.
TEST(GoldenCounts, Zero1) {
  EXPECT_EQ(counts("zero1"), (Counts{{"all_gather", 1}, {"reduce_scatter", 1}, {"all_reduce", 1}}));
}

}  // namespace
}  // namespace tessera::testing
