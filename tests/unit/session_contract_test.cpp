// Gradients of weights that are larger than a batch's activations: ranks make the rows that they update from
// all ranks' activations, read where they lie, instead of reducing whole gradients.
#include <gtest/gtest.h>

#include <random>

#include "support/simulate.h"
#include "tessera/grad.h"
#include "tessera/optimizer.h"
#include "unit/session_models.h"

namespace tessera::testing {
namespace {

// x [batch, in] through two weights; each is moved against its gradient.
struct Layers {
  Graph graph;
  Tensors targets;
  Tensor x;

  Layers(std::int64_t rows, std::int64_t in_size, std::int64_t mid_size, std::int64_t out_size, DType dtype) {
    const Dim batch{"batch", rows}, in{"in", in_size}, mid{"mid", mid_size}, out{"out", out_size};
    x = graph.input("x", {batch, in}, dtype);
    const Tensors weights{graph.parameter("w", {in, mid}, Initializer::normal(0.3), dtype),
                          graph.parameter("v", {mid, out}, Initializer::normal(0.3), dtype)};
    const Tensor h = tanh(einsum({x, weights[0]}, {batch, mid}));
    const Tensor y = einsum({h, weights[1]}, {batch, out});
    const Tensor loss = reduce_sum(square(y));
    OptimizerConfig config;
    config.kind = OptimizerKind::Momentum;
    const DType wide = dtype == DType::F64 ? DType::F64 : DType::F32;
    const UpdateInputs inputs{graph.input("rate", {}, wide), graph.input("step", {}, DType::I32), {}};
    targets = build_updates(graph, weights, gradients({loss}, weights), config, inputs).assignments;
    targets.push_back(loss);
  }

  FeedMap feeds() const {
    Array values(x.type());
    for (std::int64_t i = 0; i < values.elements(); ++i)
      values.set(i, std::sin(0.7 * static_cast<double>(i) + 0.3));
    const DType wide = x.dtype() == DType::F64 ? DType::F64 : DType::F32;
    return {{"x", values}, {"rate", Array({{}, wide}, {0.003})}, {"step", Array({{}, DType::I32}, {0.0})}};
  }
};

std::map<std::string, Array> trained(const Layers& model, const char* mesh, const char* layout,
                                     const SessionOptions& options = {}) {
  Session session(model.graph, Mesh::parse(mesh), Layout::parse(layout), options);
  const int program = session.compile(model.targets);
  for (int step = 0; step < 2; ++step) session.run(program, model.feeds(), {.step = step, .windows = {}});
  std::map<std::string, Array> result;
  for (const std::string& name : session.store().names()) result[name] = session.store().read(name);
  return result;
}

ProgramStats counts_of(const Layers& model, const char* mesh, const char* layout,
                       const SessionOptions& options = {}) {
  Session session(model.graph, Mesh::parse(mesh), Layout::parse(layout), options);
  return stats(session.program(session.compile(model.targets)));
}

TEST(SessionContract, ReplacesReductionsOfLargeGradients) {
  const Layers large(4, 12, 20, 16, DType::F32);
  const ProgramStats counts = counts_of(large, "a:2", "batch:a");
  EXPECT_EQ(counts.count.at("contract"), 2);
  EXPECT_EQ(counts.count.count("reduce_scatter"), 0U);
  // The other rank's 2 rows: half of x [.., 12] and all of dy [.., 20]; half of h [.., 20] and dy [.., 16].
  const std::int64_t read = 4 * 2 * (6 + 20) + 4 * 2 * (10 + 16), loss = 4;
  EXPECT_EQ(counts.collective_bytes, read + loss);
  // The work of either way is the same.
  SessionOptions without;
  without.lower.without = {"split_output"};
  const ProgramStats reduced = counts_of(large, "a:2", "batch:a", without);
  EXPECT_EQ(reduced.count.at("reduce_scatter"), 2);
  EXPECT_EQ(counts.contraction_flops, reduced.contraction_flops);
}

TEST(SessionContract, LeavesSmallGradientsToReductions) {
  const ProgramStats counts = counts_of(Layers(64, 12, 20, 16, DType::F32), "a:2", "batch:a");
  EXPECT_EQ(counts.count.count("contract"), 0U);
  EXPECT_EQ(counts.count.at("reduce_scatter"), 2);
}

TEST(SessionContract, TrainsTheSameParameters) {
  const std::uint32_t seed = std::random_device()();
  std::mt19937 random(seed);
  const auto size = [&](int from, int to) {
    return from + static_cast<std::int64_t>(random()) % (to - from);
  };
  const std::pair<const char*, const char*> cases[] = {{"a:2", "batch:a"},
                                                       {"a:3", "batch:a"},
                                                       {"a:4", "batch:a"},
                                                       {"a:2;b:2", "batch:a;mid:b"},
                                                       {"a:2;b:2", "batch:a;out:b"},
                                                       {"a:2;b:2", "batch:a+b"},
                                                       {"a:2;b:3", "batch:b"},
                                                       {"a:3", "batch:a;params.*:a"},
                                                       {"a:2;b:2", "batch:a;mid:b;params.*:a"}};
  int contracts = 0;
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16}) {
    const double allowed = dtype == DType::F64 ? 1e-12 : dtype == DType::F32 ? 1e-5 : 0.02;
    for (int i = 0; i < 4; ++i) {
      // A batch shorter than the mesh leaves some ranks without rows.
      const Layers model(size(1, 9), size(9, 40), size(9, 40), size(9, 40), dtype);
      const auto expected = trained(model, "a:1", "");
      for (const auto& [mesh, layout] : cases) {
        SCOPED_TRACE(std::string(to_string(dtype)) + " " + mesh + " " + layout + " of " +
                     to_string(model.x.type()) + " seed " + std::to_string(seed));
        SessionOptions options;
        options.random_delays = i == 0;
        for (const auto& [name, value] : trained(model, mesh, layout, options)) {
          double largest = 1;
          for (std::int64_t e = 0; e < value.elements(); ++e)
            largest = std::max(largest, std::abs(value.get(e)));
          EXPECT_LT(largest_difference(expected.at(name), value), allowed * largest) << name;
        }
        const auto counts = counts_of(model, mesh, layout).count;
        if (counts.count("contract") != 0) contracts += static_cast<int>(counts.at("contract"));
      }
    }
  }
  EXPECT_GT(contracts, 30) << "seed " << seed;
}

// The oracle of programs does what the ranks do.
TEST(SessionContract, IsSimulated) {
  const Layers model(5, 21, 13, 17, DType::F64);
  const Mesh mesh = Mesh::parse("a:3");
  const Layout layout = Layout::parse("batch:a;params.*:a");
  LowerOptions lowering;
  lowering.shared_variables = true;
  const Program program = lower(model.graph, model.targets, mesh, layout, lowering);
  EXPECT_GT(stats(program).count.at("contract"), 0);
  SimulateOptions options;
  options.graph = &model.graph;
  options.feeds = model.feeds();
  options.seed = 1;
  const Simulated simulated = simulate(program, options);
  Session session(model.graph, mesh, layout, SessionOptions{});
  session.run(session.compile(model.targets), model.feeds());
  for (const std::string& name : session.store().names())
    EXPECT_LT(largest_difference(simulated.assigned.at(name), session.store().read(name)), 1e-12) << name;
}

}  // namespace
}  // namespace tessera::testing
