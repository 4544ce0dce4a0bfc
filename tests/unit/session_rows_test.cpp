// Replicas of a variable share one buffer in a process: each rank updates rows of its own, and gradients are
// reduced only there.
#include <gtest/gtest.h>

#include "tessera/grad.h"
#include "tessera/nn.h"
#include "tessera/optimizer.h"
#include "unit/session_models.h"

namespace tessera::testing {
namespace {

// Parameters whose first dimension is uneven, shorter than the mesh, of size 1, absent.
struct Rows {
  Graph graph;
  Tensors parameters, targets;
  Tensor x;

  explicit Rows(const OptimizerConfig& config) {
    const Dim batch{"batch", 6}, in{"in", 7}, one{"one", 1}, hidden{"hidden", 5}, two{"two", 2};
    x = graph.input("x", {batch, in}, DType::F64);
    const auto parameter = [&](const char* name, const Shape& shape) {
      parameters.push_back(graph.parameter(name, shape, Initializer::normal(0.5), DType::F64));
      return parameters.back();
    };
    const Tensor w = parameter("w", {in, hidden}), c = parameter("c", {one, hidden});
    const Tensor v = parameter("v", {two, hidden}), s = parameter("s", {});
    const Tensor h = tanh(einsum({x, w}, {batch, hidden}) + reduce_sum(c, {"one"})) * s;
    const Tensor loss = reduce_sum(square(einsum({h, v}, {batch, two})));
    const UpdateInputs inputs{graph.input("rate", {}, DType::F64), graph.input("step", {}, DType::I32), {}};
    const Updates updates = build_updates(graph, parameters, gradients({loss}, parameters), config, inputs);
    targets = {loss, updates.gradient_norm};
    targets.insert(targets.end(), updates.assignments.begin(), updates.assignments.end());
  }

  FeedMap feeds(int step) const {
    Array values(x.type());
    for (std::int64_t i = 0; i < values.elements(); ++i)
      values.set(i, std::sin(0.9 * static_cast<double>(i)));
    return {{"x", values},
            {"rate", Array({{}, DType::F64}, {0.01})},
            {"step", Array({{}, DType::I32}, {static_cast<double>(step)})}};
  }
};

// Every variable after three steps, and the norms of the gradients.
std::map<std::string, Array> trained(const OptimizerConfig& config, const char* mesh, const char* layout,
                                     bool own_rows) {
  const Rows model(config);
  SessionOptions options;
  if (!own_rows) options.lower.without = {"own_rows"};
  Session session(model.graph, Mesh::parse(mesh), Layout::parse(layout), options);
  const int program = session.compile(model.targets);
  std::map<std::string, Array> result;
  for (int step = 0; step < 3; ++step) {
    const Results results = session.run(program, model.feeds(step), {.step = step, .windows = {}});
    result["norm " + std::to_string(step)] = results.gather(1);
  }
  for (const std::string& name : session.store().names()) result[name] = session.store().read(name);
  return result;
}

TEST(SessionOwnRows, TrainTheSameParameters) {
  const std::pair<const char*, const char*> cases[] = {{"a:4", "batch:a"},
                                                       {"a:2;b:2", "batch:a;hidden:b"},
                                                       {"a:2;b:3", "batch:a"},
                                                       {"a:2;b:2", "batch:a;slots.hidden:b"},
                                                       {"a:2;b:2", "batch:a;params.in:b?"},
                                                       {"a:2;b:3", "hidden:b"},
                                                       {"a:4", "in:a"}};
  for (const OptimizerConfig& config : three_optimizers()) {
    const auto expected = trained(config, "a:1", "", true);
    for (const auto& [mesh, layout] : cases) {
      const auto with = trained(config, mesh, layout, true), without = trained(config, mesh, layout, false);
      for (const auto& [name, value] : expected) {
        SCOPED_TRACE(std::string(mesh) + " " + layout + " " + name);
        double largest = 1;
        for (std::int64_t i = 0; i < value.elements(); ++i)
          largest = std::max(largest, std::abs(value.get(i)));
        EXPECT_LT(largest_difference(with.at(name), value), 1e-12 * largest);
        EXPECT_LT(largest_difference(without.at(name), value), 1e-12 * largest);
      }
    }
  }
}

// The gradients of parameters cross once, a part each; what is gathered is nothing.
TEST(SessionOwnRows, GradientsAreReducedOnlyWhereTheyAreUsed) {
  const Rows model(OptimizerConfig{});
  for (const bool own_rows : {true, false}) {
    SessionOptions options;
    options.lower.without = {"split_output"};  // a contract would replace the largest reduction
    if (!own_rows) options.lower.without.insert("own_rows");
    Session session(model.graph, Mesh::parse("a:2"), Layout::parse("batch:a"), options);
    const ProgramStats counts = stats(session.program(session.compile(model.targets)));
    EXPECT_EQ(counts.count.count("all_gather"), 0U);
    EXPECT_EQ(counts.count.count("reduce_scatter") > 0 ? counts.count.at("reduce_scatter") : 0,
              own_rows ? 3 : 0);
    if (own_rows) {
      EXPECT_EQ(counts.collective_bytes, (35 + 5 + 10 + 1) * 8 + 2 * 8);
    }
  }
}

// Adam's slots times constants are ready before any gradient: nothing of the update waits for the end, or is
// done on more than the rank's rows.
TEST(SessionOwnRows, UpdatesFollowTheirGradients) {
  OptimizerConfig config;
  config.weight_decay = 0.01;
  const Rows model(config);
  SessionOptions options;
  options.lower.without = {"fuse", "split_output"};
  Session session(model.graph, Mesh::parse("a:2"), Layout::parse("batch:a"), options);
  const Program& program = session.program(session.compile(model.targets));
  int gradients = 0, assigned = 0;
  for (int s = 0; s < static_cast<int>(program.steps.size()); ++s) {
    const Step& step = program.steps[static_cast<std::size_t>(s)];
    EXPECT_NE(step.kind, Step::Kind::Slice) << step.name;
    if (step.kind == Step::Kind::Wait && step.collective.kind == CollectiveKind::ReduceScatter) {
      EXPECT_EQ(assigned, 3 * gradients) << "the update before is not over";  // the parameter and two slots
      ++gradients;
    }
    if (step.kind != Step::Kind::Assign) continue;
    const Placement& placement = program.values[static_cast<std::size_t>(step.in[0])].placement;
    if (placement.cuts.empty()) continue;  // a scalar is updated by all
    ++assigned;
    EXPECT_FALSE(placement.cuts[0].axes.empty() && placement.cuts[1].axes.empty()) << step.name;
  }
  EXPECT_EQ(gradients, 3);
}

// The gradient of an embedding goes to the table's rows from all tokens: no rank makes a table of it, alone
// or added to the gradient of a tied projection.
TEST(SessionOwnRows, EmbeddingGradientsAreMadeInParts) {
  const Dim batch{"batch", 6}, length{"length", 5}, width{"width", 4}, vocab{"vocab", 701};
  for (const bool tied : {false, true}) {
    std::vector<Array> tables;
    for (const char* layout : {"", "batch:a"}) {
      Graph g;
      const Tensor ids = g.input("ids", {batch, length}, DType::I32);
      const Tensor table = g.parameter("table", {vocab, width}, Initializer::normal(0.5), DType::F64);
      const Tensor x = nn::embedding(table, ids, DType::F64);
      Tensor loss = reduce_sum(square(x));
      if (tied) loss = loss + nn::projected_loss(tanh(x), table, ids, {}, {}, true).sum;
      OptimizerConfig config;
      const UpdateInputs inputs{g.input("rate", {}, DType::F64), g.input("step", {}, DType::I32), {}};
      const Updates updates = build_updates(g, {table}, gradients({loss}, {table}), config, inputs);
      Tensors targets{loss, updates.gradient_norm};
      targets.insert(targets.end(), updates.assignments.begin(), updates.assignments.end());
      Session session(g, Mesh::parse("a:3"), Layout::parse(layout));
      const int program = session.compile(targets);
      Array tokens(ids.type());
      for (std::int64_t i = 0; i < tokens.elements(); ++i)
        tokens.set(i, static_cast<double>(i * i * 7 % vocab.size));
      for (int step = 0; step < 2; ++step)
        session.run(program,
                    {{"ids", tokens},
                     {"rate", Array({{}, DType::F64}, {0.1})},
                     {"step", Array({{}, DType::I32}, {static_cast<double>(step)})}},
                    {.step = step, .windows = {}});
      tables.push_back(session.store().read("table"));
      int scattered = 0;
      for (const Step& step : session.program(program).steps) {
        if (step.kind != Step::Kind::Run || std::string(step.call.op->name) != "scatter_add") continue;
        ++scattered;
        const Placement& placement =
            session.program(program).values[static_cast<std::size_t>(step.out[0])].placement;
        EXPECT_TRUE(placement.complete()) << layout;
        EXPECT_EQ(placement.cuts[0].axes.empty(), std::string(layout).empty());
      }
      EXPECT_EQ(scattered, 1);
    }
    EXPECT_LT(largest_difference(tables[0], tables[1]), 1e-12);
  }
}

}  // namespace
}  // namespace tessera::testing
