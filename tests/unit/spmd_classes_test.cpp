// What steps and bytes are booked under: classes of whole programs, exact bytes of small ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "session_models.h"
#include "spmd/explain.h"
#include "tessera/explain.h"

namespace tessera {
namespace {

using testing::Mlp;

constexpr std::int64_t kScratch = 192;

// Contractions want a workspace, nothing but updates is done in place: bytes that can be worked out by hand.
class PlainTarget final : public Target {
 public:
  std::string name() const override { return "plain"; }
  std::int64_t workspace(const Step& step, const std::vector<Type>&,
                         const std::vector<Type>&) const override {
    return step.kind == Step::Kind::Run && step.call.op->products != nullptr ? kScratch : 0;
  }
  bool in_place(const Step& step, int, int) const override { return step.kind == Step::Kind::Fused; }
};

// y = x w, and w follows the gradient of sum(y^2) by a slot. On the gradient: x, dy and dw are alive.
struct Layer {
  Graph graph;
  std::vector<Tensor> targets;

  explicit Layer(DType activations = DType::F32) {
    const Dim batch{"batch", 12}, in{"in", 40}, out{"out", 20};
    const Tensor x = graph.input("x", {batch, in}, activations);
    const Tensor w = graph.parameter("w", {in, out}, Initializer::normal(0.1));
    const Tensor loss = reduce_sum(square(einsum({x, cast(w, activations)}, {batch, out})));
    const Tensor gradient = gradients({loss}, {w})[0];
    const Graph::RegionScope update(graph, Region::Update);
    const Tensor m = graph.variable(VariableKind::Slot, "w/m", w.type(), {}, "w");
    const Tensor next = 0.9 * m + gradient;
    targets = {loss, graph.assign(m, next), graph.assign(w, w - 0.1 * next)};
  }

  Program lowered(const std::string& mesh, const std::string& layout) {
    LowerOptions options;
    return lower(graph, targets, Mesh::parse(mesh), Layout::parse(layout), options);
  }
};

std::map<std::string, std::pair<std::int64_t, std::int64_t>> bytes(const Program& program,
                                                                   const MemoryPlan& plan) {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> result;
  const MemoryByClass memory = memory_by_class(program, plan);
  for (std::size_t c = 0; c < memory.size(); ++c)
    result[to_string(static_cast<MemoryClass>(c))] = {memory[c].rank, memory[c].process};
  return result;
}
using Bytes = std::map<std::string, std::pair<std::int64_t, std::int64_t>>;

constexpr std::int64_t kWeights = 4 * 40 * 20, kLoss = 64;  // a scalar takes a cache line

TEST(MemoryByClass, OneRank) {
  Layer layer;
  const Program program = layer.lowered("", "");
  const MemoryPlan plan = plan_memory(program, PlainTarget());
  EXPECT_EQ(program.steps[static_cast<std::size_t>(plan.peak_step)].region, Region::Backward);
  const std::int64_t x = 4 * 12 * 40, dy = 4 * 12 * 20;
  const std::int64_t unused = plan.arena_bytes - plan.liveness_bound;
  EXPECT_EQ(plan.liveness_bound, x + dy + kWeights + kLoss + kScratch);
  EXPECT_EQ(bytes(program, plan), (Bytes{{"parameters", {kWeights, kWeights}},
                                         {"slots", {kWeights, kWeights}},
                                         {"gradients", {kWeights, kWeights}},
                                         {"activations", {dy + kLoss, dy + kLoss}},
                                         {"buffers", {x + kScratch, x + kScratch}},
                                         {"unused", {unused, unused}}}));
}

// An uneven batch over 5 of 10 ranks: a rank has 3 of 12 rows at most, variables are there once in a process.
// The peak is the reduction of the gradient: its partial sum and the result.
TEST(MemoryByClass, RanksShareVariables) {
  Layer layer;
  const Program program = layer.lowered("rows:5;idle:2", "batch:rows");
  const MemoryPlan plan = plan_memory(program, PlainTarget());
  EXPECT_EQ(program.steps[static_cast<std::size_t>(plan.peak_step)].region, Region::Update);
  const std::int64_t unused = plan.arena_bytes - plan.liveness_bound;
  EXPECT_EQ(bytes(program, plan), (Bytes{{"parameters", {kWeights, kWeights}},
                                         {"slots", {kWeights, kWeights}},
                                         {"gradients", {2 * kWeights, 20 * kWeights}},
                                         {"activations", {kLoss, 10 * kLoss}},
                                         {"buffers", {0, 0}},
                                         {"unused", {unused, 10 * unused}}}));
}

// Split storage: each of 3 ranks holds 14 of 40 rows at most, a process the whole. The weights that are
// gathered and cast for the products are buffers.
TEST(MemoryByClass, SplitStorage) {
  Layer layer(DType::BF16);
  const Program program = layer.lowered("rows:3", "batch:rows;params.in:rows;slots.in:rows");
  const MemoryPlan plan = plan_memory(program, PlainTarget());
  const Bytes got = bytes(program, plan);
  const std::int64_t part = 4 * 14 * 20;
  EXPECT_EQ(got.at("parameters"), std::make_pair(part, kWeights));
  EXPECT_EQ(got.at("slots"), std::make_pair(part, kWeights));
  const std::vector<MemoryClass> classes = value_classes(program);
  int gathered = 0;
  for (const Step& step : program.steps) {
    if (step.kind != Step::Kind::Wait || step.collective.kind != CollectiveKind::AllGather) continue;
    ++gathered;
    EXPECT_EQ(classes[static_cast<std::size_t>(step.out[0])], MemoryClass::Buffers);
  }
  EXPECT_GE(gathered, 1);
}

// What is said of a process is what a session allocates.
TEST(MemoryByClass, IsWhatASessionHolds) {
  for (const auto& [mesh, layout] : std::vector<std::pair<std::string, std::string>>{
           {"", ""},
           {"a:3", "batch:a"},
           {"a:2;b:2", "batch:a;hidden:b"},
           {"a:2;b:3", "batch:a;hidden:b;params.*:a;slots.*:a"}}) {
    SCOPED_TRACE(layout);
    Mlp model(13);
    Session session(model.graph, Mesh::parse(mesh), Layout::parse(layout));
    const int id = session.compile(model.step());
    std::int64_t rank = 0, process = 0;
    const Bytes got = bytes(session.program(id), session.plan(id));
    for (const auto& [name, held] : got) {
      rank += held.first;
      process += held.second;
    }
    std::int64_t largest = 0;
    for (int r = 0; r < session.mesh().ranks(); ++r)
      largest = std::max(largest, session.store().bytes_of_rank(r));
    EXPECT_EQ(got.at("parameters").second + got.at("slots").second, session.store().bytes());
    EXPECT_GE(got.at("parameters").first + got.at("slots").first, largest);
    EXPECT_EQ(process, session.store().bytes() + session.mesh().ranks() * session.arena_bytes_per_rank());
    EXPECT_GT(got.at("activations").first, 0);
    EXPECT_EQ(got.at("slots"), got.at("parameters"));  // momentum
    const auto json = nlohmann::json::parse(explain_json(session.program(id), session.plan(id))).at("memory");
    std::int64_t listed = 0, classes = 0;
    for (const auto& value : json.at("peak_values")) listed += value.at("bytes").get<std::int64_t>();
    for (const auto& [name, held] : json.at("classes").items())
      classes += held.at("rank").get<std::int64_t>();
    EXPECT_EQ(classes, rank);
    EXPECT_LE(listed, json.at("liveness_bound").get<std::int64_t>());
    EXPECT_FALSE(json.at("peak").at("source").get<std::string>().empty());
  }
}

// In a chain of steps that share one buffer, the value that lies there at the peak is named.
TEST(MemoryByClass, NamesTheValueThatLiesInABuffer) {
  Graph graph;
  const Dim n{"n", 160};
  const Tensor x = graph.input("x", {n}), y = graph.input("y", {n});
  const Tensor a = tanh(x), b = sin(a);
  const Tensor c = b + reduce_sum(y * b);
  LowerOptions options;
  options.without = {"fuse"};
  class InPlace final : public Target {
   public:
    std::string name() const override { return "in place"; }
    std::int64_t workspace(const Step& step, const std::vector<Type>&,
                           const std::vector<Type>&) const override {
      return step.kind == Step::Kind::Run && std::string(step.call.op->name) == "mul" ? 64 : 0;
    }
    bool in_place(const Step&, int, int) const override { return true; }
  };
  const Program program = lower(graph, {c}, Mesh(), Layout(), options);
  const MemoryPlan plan = plan_memory(program, InPlace());
  std::vector<std::string> names;
  for (const ExplainedValue& value : peak_values(program, plan)) names.push_back(value.name);
  EXPECT_THAT(names, ::testing::UnorderedElementsAre(b.name(), (y * b).name().substr(0, 3)));
}

std::map<StepClass, int> counts_by_class(const Program& program) {
  std::map<StepClass, int> result;
  const std::vector<StepClass> classes = step_classes(program);
  EXPECT_EQ(classes.size(), program.steps.size());
  for (std::size_t s = 0; s < classes.size(); ++s)
    if (program.steps[s].kind != Step::Kind::Free) ++result[classes[s]];
  return result;
}

TEST(StepClasses, FollowRecordsRegionsAndReaders) {
  Mlp model;
  for (const bool split : {false, true}) {
    LowerOptions options;
    const Program program = lower(model.graph, model.step(), Mesh::parse(split ? "a:2;b:2" : ""),
                                  Layout::parse(split ? "batch:a;hidden:b" : ""), options);
    const std::vector<StepClass> classes = step_classes(program);
    int forward_sums = 0;
    for (std::size_t s = 0; s < classes.size(); ++s) {
      const Step& step = program.steps[s];
      const bool run = step.kind == Step::Kind::Run;
      if (step.kind == Step::Kind::Free) continue;
      SCOPED_TRACE(step.name);
      if (step.region == Region::Update || step.kind == Step::Kind::Assign)
        EXPECT_EQ(classes[s], StepClass::Update);
      else if (run && step.call.op->products != nullptr)
        EXPECT_EQ(classes[s], StepClass::Contraction);
      else if (run && std::string(step.call.op->name).find("cross_entropy") == 0)
        EXPECT_EQ(classes[s], StepClass::Loss);
      else if (step.kind == Step::Kind::Wait && step.region == Region::Forward) {
        EXPECT_EQ(classes[s], StepClass::Movement);
        ++forward_sums;
      }
    }
    EXPECT_EQ(forward_sums > 0, split);
    const auto counts = counts_by_class(program);
    EXPECT_EQ(counts.at(StepClass::Contraction), 5);  // two layers, dw1, dw2, dh; dx is not needed
    EXPECT_EQ(counts.at(StepClass::Loss), 2);
    EXPECT_GT(counts.at(StepClass::ComponentWise), 0);
    EXPECT_GT(counts.at(StepClass::Update), 0);
  }
}

// Sums that are reduced at once stand in the backward pass: those of gradients belong to the update all the
// same, those of activations do not.
TEST(StepClasses, GradientReductionsInTheBackwardPass) {
  Graph graph;
  const Dim batch{"batch", 6}, in{"in", 5}, mid{"mid", 4}, out{"out", 3};
  const Tensor x = graph.input("x", {batch, in});
  const Tensor w1 = graph.parameter("w1", {in, mid}, Initializer::normal(1)),
               w2 = graph.parameter("w2", {mid, out}, Initializer::normal(1));
  const Tensor h = tanh(tanh(x) * reduce_sum(w1, {"mid"}));
  const Tensor loss = reduce_sum(square(einsum({einsum({h, w1}, {batch, mid}), w2}, {batch, out})));
  const Tensors grads = gradients({loss}, {w1, w2});
  const Graph::RegionScope update(graph, Region::Update);
  LowerOptions options;
  options.without = {"delay", "fuse"};
  const Program program =
      lower(graph, {loss, graph.assign(w1, w1 - grads[0]), graph.assign(w2, w2 - grads[1])},
            Mesh::parse("rows:2;cols:2"), Layout::parse("batch:rows;out:cols"), options);
  const std::vector<StepClass> classes = step_classes(program);
  std::map<std::pair<std::string, StepClass>, int> waits;
  for (std::size_t s = 0; s < classes.size(); ++s) {
    const Step& step = program.steps[s];
    if (step.kind == Step::Kind::Wait) ++waits[{step.collective.dim, classes[s]}];
  }
  // Over the batch: both gradients (w1's comes in two parts) and the loss; over out: dh.
  EXPECT_GE((waits[{"batch", StepClass::Update}]), 2);
  EXPECT_EQ((waits[{"out", StepClass::Update}]), 0);
  EXPECT_GE((waits[{"out", StepClass::Movement}]), 1);
}

TEST(StepClasses, AnExpansionKeepsTheClassOfItsNode) {
  Graph graph;
  const Dim batch{"batch", 4}, vocab{"vocab", 10};
  const Tensor logits = graph.input("logits", {batch, vocab}),
               labels = graph.input("labels", {batch}, DType::I32);
  const Tensor table = graph.input("table", {vocab, {"d_model", 3}});
  const Tensor loss = reduce_sum(cross_entropy(logits, labels, "vocab"));
  const Tensor rows = gather(table, labels, "vocab");
  LowerOptions options;
  const Program program =
      lower(graph, {loss, rows}, Mesh::parse("cols:3"), Layout::parse("vocab:cols"), options);
  const auto counts = counts_by_class(program);
  EXPECT_GT(counts.at(StepClass::Loss), 3);
  EXPECT_EQ(counts.at(StepClass::Embedding), 1);
  EXPECT_GT(counts.at(StepClass::Movement), 0);
}

}  // namespace
}  // namespace tessera
