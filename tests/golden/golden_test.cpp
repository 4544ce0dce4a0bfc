// Lowering as text: each case's program must equal tests/golden/NAME.txt (TESSERA_UPDATE_GOLDEN=1 rewrites
// the files), and the simulated program must give what one rank gives.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "golden/cases.h"
#include "support/evaluate.h"
#include "support/simulate.h"

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
  for (std::set<std::string> without : {std::set<std::string>{},
                                        {"delay"},
                                        {"reduce_scatter"},
                                        {"early_update"},
                                        {"views"},
                                        {"delay", "reduce_scatter", "early_update", "views", "fuse"}}) {
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
