// Buckets of small reductions in running sessions: the same bits as without, on every mesh and link; fewer
// collectives and no more bytes; faults at and in them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "exec/session_impl.h"
#include "support/deep_mlp.h"
#include "tessera/error.h"
#include "tessera/nn.h"
#include "tessera/optimizer.h"
#include "unit/session_models.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Parameters of every small shape: uneven, shorter than the mesh, of one element, a scalar. In `dtype` are
// the activations, and with them the gradients on their way to the update.
struct Small {
  Graph graph;
  Tensors parameters, gradients;
  Tensor x, loss, weight;

  explicit Small(std::int64_t rows, DType dtype = DType::F32) {
    const Dim batch{"batch", rows}, in{"in", 7}, one{"one", 1}, hidden{"hidden", 5}, two{"two", 2};
    x = graph.input("x", {batch, in});
    const auto parameter = [&](const char* name, const Shape& shape) {
      parameters.push_back(graph.parameter(name, shape, Initializer::normal(0.5)));
      return cast(parameters.back(), dtype);
    };
    const Tensor w = parameter("w", {in, hidden}), b = parameter("b", {hidden}),
                 c = parameter("c", {one, hidden}), v = parameter("v", {two, hidden}), s = parameter("s", {});
    const Tensor h = tanh(einsum({cast(x, dtype), w}, {batch, hidden}) + b + reduce_sum(c, {"one"})) * s;
    loss = reduce_sum(square(cast(einsum({h, v}, {batch, two}), DType::F32)));
    weight = reduce_sum(square(x));
    gradients = tessera::gradients({loss}, parameters);
  }

  FeedMap feeds(int step) const {
    Array values(x.type());
    for (std::int64_t i = 0; i < values.elements(); ++i)
      values.set(i, std::sin(0.9 * static_cast<double>(i) + step));
    return {{"x", values}};
  }
};

FeedMap with_scalars(FeedMap feeds, int step) {
  feeds["rate"] = Array({{}, DType::F32}, {0.01});
  feeds["step"] = Array({{}, DType::I32}, {static_cast<double>(step)});
  return feeds;
}

struct Outcome {
  std::map<std::string, Array> values;
  std::int64_t collectives = 0, bytes = 0;
};

void add_variables(Session& session, Outcome& outcome) {
  for (const std::string& name : session.store().names()) outcome.values[name] = session.store().read(name);
}

SessionOptions options_for(bool with, double latency) {
  SessionOptions options;
  options.link_latency_seconds = latency;
  options.random_delays = with;
  if (!with) options.lower.without = {"buckets"};
  return options;
}

// Three steps of a program.
Outcome trained(const OptimizerConfig& config, DType dtype, const char* mesh, const char* layout, bool with,
                double latency) {
  Small model(6, dtype);
  const UpdateInputs inputs{model.graph.input("rate", {}), model.graph.input("step", {}, DType::I32), {}};
  const Updates updates = build_updates(model.graph, model.parameters, model.gradients, config, inputs);
  Tensors targets{model.loss, model.weight, updates.gradient_norm};
  targets.insert(targets.end(), updates.assignments.begin(), updates.assignments.end());
  Session session(model.graph, Mesh::parse(mesh), Layout::parse(layout), options_for(with, latency));
  const int program = session.compile(targets);
  Outcome outcome;
  for (int step = 0; step < 3; ++step) {
    const Results results =
        session.run(program, with_scalars(model.feeds(step), step), {.step = step, .windows = {}});
    for (std::size_t f = 0; f < 3; ++f)
      outcome.values["fetch " + std::to_string(3 * step) + std::to_string(f)] = results.gather(f);
  }
  add_variables(session, outcome);
  const ProgramStats counts = stats(session.program(program));
  for (const auto& [kind, count] : counts.count) outcome.collectives += count;
  outcome.bytes = counts.collective_bytes;
  return outcome;
}

void expect_same(const Outcome& with, const Outcome& without) {
  for (const auto& [name, value] : without.values)
    EXPECT_TRUE(same_bits(with.values.at(name), value)) << name;
  EXPECT_EQ(with.bytes, without.bytes);
}

TEST(SessionBuckets, KeepTheBits) {
  for (const OptimizerConfig& config : three_optimizers()) {
    for (const auto& [mesh, layout] : {std::pair{"a:4", "batch:a"},
                                       {"a:2;b:2", "batch:a;hidden:b"},
                                       {"idle:2;a:3", "batch:a"},
                                       {"a:2;b:2", "batch:a;slots.hidden:b"},
                                       {"a:3", "batch:a;params.*:a;slots.*:a"}}) {
      for (const auto& [dtype, latency] : {std::pair{DType::F32, 1e-4}, {DType::BF16, 3e-4}}) {
        SCOPED_TRACE(std::string(mesh) + " " + layout + " " + to_string(dtype));
        const Outcome with = trained(config, dtype, mesh, layout, true, latency),
                      without = trained(config, dtype, mesh, layout, false, latency);
        expect_same(with, without);
        EXPECT_LE(with.collectives + 3, without.collectives);
      }
    }
  }
}

// Two micro-batches of different sizes, then the update from their sums: there all gradients are there at
// once.
Outcome accumulated(const char* mesh, const char* layout, bool with, double latency) {
  Small first(6), second(3);
  OptimizerConfig config;
  config.clip_norm = 0.5;
  const auto accumulate = [](Small& m) {
    return build_accumulation(m.graph, m.parameters, m.gradients, {{"loss", m.loss}, {"weight", m.weight}});
  };
  const Tensors add_first = accumulate(first), add_second = accumulate(second);
  Graph apply;
  const ApplyOutputs outputs = build_apply(first.graph, apply, config, "weight");
  Tensors targets;
  for (const auto& [name, value] : outputs.sums) targets.push_back(value);
  targets.insert(targets.end(), outputs.updates.assignments.begin(), outputs.updates.assignments.end());
  Session session(first.graph, Mesh::parse(mesh), Layout::parse(layout), options_for(with, latency));
  const int a = session.compile(add_first), b = session.compile(second.graph, add_second),
            c = session.compile(apply, targets);
  FeedMap scalars;
  for (const Node& node : apply.nodes())
    if (node.op == &kInputOp)
      scalars[node.attrs.text("name")] =
          Array(node.outputs[0], {node.outputs[0].dtype == DType::I32 ? 1.0 : 0.01});
  Outcome outcome;
  for (int step = 0; step < 3; ++step) {
    session.run(a, first.feeds(step));
    session.run(b, second.feeds(step));
    const Results results = session.run(c, scalars, {.step = step, .windows = {}});
    for (std::size_t f = 0; f < outputs.sums.size(); ++f)
      outcome.values["sum " + std::to_string(step) + std::to_string(f)] = results.gather(f);
  }
  add_variables(session, outcome);
  for (const int program : {a, b, c}) {
    const ProgramStats counts = stats(session.program(program));
    for (const auto& [kind, count] : counts.count) outcome.collectives += count;
    outcome.bytes += counts.collective_bytes;
  }
  return outcome;
}

TEST(SessionBuckets, OfMicroBatchesKeepTheBits) {
  for (const auto& [mesh, layout] :
       {std::pair{"a:3", "batch:a"}, {"a:2;b:2", "batch:a;hidden:b"}, {"a:2;b:2", "batch:a;slots.*:b"}}) {
    SCOPED_TRACE(std::string(mesh) + " " + layout);
    const Outcome with = accumulated(mesh, layout, true, 1e-4),
                  without = accumulated(mesh, layout, false, 1e-4);
    expect_same(with, without);
    EXPECT_LE(with.collectives + 3, without.collectives);
  }
}

TEST(SessionBuckets, LeaveThreadsAlone) {
  const Small model(6);
  const auto text = [&](bool with) {
    Session session(model.graph, Mesh::parse("a:2"), Layout::parse("batch:a"), options_for(with, 0));
    Tensors targets = model.gradients;
    targets.push_back(model.loss);
    return to_string(session.program(session.compile(targets)));
  };
  EXPECT_EQ(text(true), text(false));
}

// Twelve gradients and the loss, each 3 ms on the link: the work is nothing beside them.
TEST(SessionBuckets, PayALinksLatencyOnce) {
  const DeepMlp model(12, 4, 6);
  const auto seconds = [&](bool with) {
    SessionOptions options = options_for(with, 0.003);
    options.random_delays = false;
    Session session(model.graph, Mesh::parse("a:2"), Layout::parse("batch:a"), options);
    const int program = session.compile(model.targets);
    session.run(program, model.feeds());
    session.reset_stats();
    for (int step = 0; step < 5; ++step) session.run(program, model.feeds());
    return session.stats().seconds / 5;
  };
  const double without = seconds(false);
  EXPECT_GE(without, 13 * 0.003);
  EXPECT_LT(seconds(true), 0.5 * without);
}

// What comes of a run in which `hook` is asked at every Start and Wait of a bucket.
std::vector<RunEnd> faults(const std::function<bool(int rank)>& hook, int ranks_at_fault) {
  std::vector<RunEnd> runs;
  for (int faulty = 0; faulty < ranks_at_fault; ++faulty) {
    for (const Step::Kind kind : {Step::Kind::Start, Step::Kind::Wait}) {
      const Mlp model;
      SessionOptions options;
      options.deadline_seconds = 20;
      options.link_latency_seconds = 1e-4;
      Session session(model.graph, Mesh::parse("a:4"), Layout::parse("batch:a"), options);
      const int step = session.compile(model.step());
      const Program& program = session.program(step);
      const auto bucket = std::find_if(program.steps.begin(), program.steps.end(), [&](const Step& s) {
        return s.kind == kind && s.collective.parts.size() > 1;
      });
      EXPECT_NE(bucket, program.steps.end());
      const int at = static_cast<int>(bucket - program.steps.begin());
      SessionHooks::set_step_hook(session,
                                  [&](int rank, int s) { return rank != faulty || s != at || hook(rank); });
      runs.push_back(end_of([&] { session.run(step, model.feeds()); }));
    }
  }
  return runs;
}

TEST(SessionBuckets, ARankThatThrowsInOneEndsTheRunOfAll) {
  const auto runs = faults([](int) -> bool { throw UserError("the disk is full"); }, 4);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    EXPECT_EQ(runs[i].message, "rank " + std::to_string(i / 2) + ": the disk is full");
    EXPECT_EQ(runs[i].code, ExitCode::Usage);
    EXPECT_LT(runs[i].seconds, 3);
  }
}

TEST(SessionBuckets, ARankThatLeavesIsNamedWithAllParts) {
  const auto runs = faults([](int) { return false; }, 4);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    EXPECT_THAT(runs[i].message, StartsWith("rank " + std::to_string(i / 2) + " left the program before "));
    EXPECT_EQ(runs[i].code, ExitCode::NoProgress);
    EXPECT_LT(runs[i].seconds, 3);
    if (i % 2 != 0) continue;  // it did not start it
    EXPECT_THAT(runs[i].message, HasSubstr("all_reduce of '"));
    EXPECT_THAT(runs[i].message, HasSubstr("), '"));
  }
}

}  // namespace
}  // namespace tessera::testing
