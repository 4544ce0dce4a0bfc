// A memory budget: values are computed again, with the same bits, no more of them than the budget asks for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/deep_mlp.h"
#include "tessera/error.h"
#include "tessera/models.h"
#include "tessera/optimizer.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;

std::int64_t variable_bytes(const DeepMlp& model) {
  std::int64_t bytes = 0;
  for (const Node& node : model.graph.nodes())
    if (node.op == &kVariableOp) bytes += node.outputs[0].bytes();
  return bytes;
}

struct Outcome {
  std::vector<std::vector<std::byte>> bits;
  std::int64_t arena = 0, steps = 0;
  double flops = 0;
};

Outcome trained(const DeepMlp& model, const char* mesh, const char* layout, std::int64_t memory_bytes) {
  SessionOptions options;
  options.lower.memory_bytes = memory_bytes;
  Session session(model.graph, Mesh::parse(mesh), Layout::parse(layout), options);
  const int program = session.compile(model.targets);
  Outcome outcome;
  for (int step = 0; step < 3; ++step) {
    const Array loss = session.run(program, model.feeds()).gather(0);
    outcome.bits.emplace_back(loss.data.begin(), loss.data.end());
  }
  for (const std::string& name : session.store().names()) {
    const Array value = session.store().read(name);
    outcome.bits.emplace_back(value.data.begin(), value.data.end());
  }
  outcome.arena = session.plan(program).arena_bytes;
  outcome.steps = static_cast<std::int64_t>(session.program(program).steps.size());
  outcome.flops = stats(session.program(program)).contraction_flops;
  return outcome;
}

TEST(MemoryBudget, KeepsTheBudgetAndTheBits) {
  const DeepMlp model(16, 192, 24);  // activations of 18 KiB, weights of 2 KiB
  const std::int64_t variables = variable_bytes(model);
  // Nothing is communicated once more, so fewer values can be made again where activations are reduced, and
  // none whose parameters are gathered.
  for (const auto& [mesh, layout, ranks, least] : {std::tuple{"", "", 1, 0.5},
                                                   {"a:3", "batch:a", 3, 0.5},
                                                   {"a:2;b:2", "batch:a;width_b:b", 4, 0.9},
                                                   {"a:2;idle:2", "batch:a", 4, 0.5}}) {
    const Outcome whole = trained(model, mesh, layout, 0);
    double flops = whole.flops;
    for (const double share : {0.9, 0.7, 0.5}) {
      if (share < least) continue;
      const auto arena = static_cast<std::int64_t>(share * static_cast<double>(whole.arena));
      const Outcome less = trained(model, mesh, layout, variables + ranks * arena);
      EXPECT_LE(less.arena, arena) << mesh << " " << share;
      EXPECT_EQ(less.bits, whole.bits) << mesh << " " << share;
      EXPECT_GT(less.steps, whole.steps);
      EXPECT_GE(less.flops, flops);              // a smaller budget costs more work
      EXPECT_LE(less.flops, 1.5 * whole.flops);  // the forward pass once more, some of it twice
      flops = less.flops;
    }
  }
}

TEST(MemoryBudget, DoesNothingWithinTheBudget) {
  const DeepMlp model(6, 192, 24);
  const Outcome whole = trained(model, "a:2", "batch:a", 0);
  const Outcome same = trained(model, "a:2", "batch:a", variable_bytes(model) + 2 * whole.arena);
  EXPECT_EQ(same.steps, whole.steps);
  EXPECT_EQ(same.arena, whole.arena);
}

TEST(MemoryBudget, SaysWhatTheProgramNeedsAtLeast) {
  const DeepMlp model(6, 192, 24);
  const auto message = [&](std::int64_t bytes) -> std::string {
    try {
      trained(model, "a:2", "batch:a", bytes);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message(1000), HasSubstr("the variables alone take 13.5 KiB in a process of all ranks"));
  EXPECT_THAT(message(variable_bytes(model) + 5000), HasSubstr("whatever is computed again"));
}

// Random masks, norms and attention too.
TEST(MemoryBudget, TransformersTrainTheSame) {
  std::vector<double> losses[2];
  std::int64_t arenas[2];
  for (const bool small : {false, true}) {
    TransformerConfig config;
    config.kind = ModelKind::LanguageModel;
    config.layers = 4;
    config.d_model = 16;
    config.heads = 2;
    config.d_kv = 8;
    config.d_ff = 40;
    config.vocab = 11;
    config.dropout = 0.2;
    config.dtype = DType::F32;
    Graph graph;
    const TransformerOutputs out =
        build_transformer_loss(graph, config, {.batch = 4, .source_length = 0, .target_length = 24});
    const Tensors parameters = trainable_parameters(graph, {});
    const Tensors targets_of_loss = gradients({out.loss.sum}, parameters);
    const UpdateInputs inputs{graph.input("rate", {}), graph.input("step", {}, DType::I32), {}};
    const Updates updates = build_updates(graph, parameters, targets_of_loss, OptimizerConfig{}, inputs);
    Tensors targets{out.loss.sum};
    targets.insert(targets.end(), updates.assignments.begin(), updates.assignments.end());
    SessionOptions options;
    std::int64_t variables = 0;
    for (const Node& node : graph.nodes())
      if (node.op == &kVariableOp) variables += node.outputs[0].bytes();
    if (small) options.lower.memory_bytes = variables + 2 * (arenas[0] * 4 / 5);
    Session session(graph, Mesh::parse("a:2"), Layout::parse("batch:a"), options);
    const int program = session.compile(targets);
    arenas[small] = session.plan(program).arena_bytes;
    for (int step = 0; step < 3; ++step) {
      FeedMap feeds{{"rate", Array({{}, DType::F32}, {0.01})},
                    {"step", Array({{}, DType::I32}, {static_cast<double>(step)})}};
      for (const ProgramValue& v : session.program(program).values) {
        if (v.kind != ProgramValue::Kind::Feed || feeds.count(v.variable) != 0) continue;
        Array ids(v.type);
        for (std::int64_t i = 0; i < ids.elements(); ++i)
          ids.set(i, static_cast<double>(1 + (i * 7 + step) % 5));
        feeds[v.variable] = ids;
      }
      losses[small].push_back(session.run(program, feeds, {.step = step, .windows = {}}).scalar(0));
    }
  }
  EXPECT_LE(arenas[1], arenas[0] * 4 / 5);
  EXPECT_EQ(losses[0], losses[1]);
}

}  // namespace
}  // namespace tessera::testing
