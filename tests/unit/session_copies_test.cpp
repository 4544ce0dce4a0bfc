// Working copies of parameters in bf16, and gradients in bf16 that are reduced where their update is.
#include <gtest/gtest.h>

#include "session_models.h"
#include "tessera/explain.h"
#include "tessera/program.h"
#include "unit/cpu_harness.h"

namespace tessera::testing {
namespace {

constexpr const char* kCopies[] = {"w1@bf16", "w2@bf16"};

// Two layers in bf16 with f32 masters and momentum; the first layer's parameter is large enough to be kept,
// the bias is not.
struct HalfNetwork {
  Graph graph;
  Tensor x, y, loss;
  Tensors parameters, updates;

  HalfNetwork() {
    const Dim batch{"batch", 10}, in{"in", 130}, mid{"mid", 190}, out{"out", 131};
    x = graph.input("x", {batch, in});
    parameters = {graph.parameter("w1", {in, mid}, Initializer::normal(0.1)),
                  graph.parameter("w2", {mid, out}, Initializer::normal(0.1)),
                  graph.parameter("b", {out}, Initializer::normal(0.1))};
    const auto half = [](const Tensor& t) { return cast(t, DType::BF16); };
    const Tensor h = relu(einsum({half(x), half(parameters[0])}, {batch, mid}));
    y = einsum({h, half(parameters[1])}, {batch, out}) + half(parameters[2]);
    loss = reduce_sum(square(cast(y, DType::F32)));
    const Tensors grads = gradients({loss}, parameters);
    const Graph::RegionScope update(graph, Region::Update);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Tensor p = parameters[i];
      const std::string name = graph.node(p.node()).name;
      const Tensor m = graph.variable(VariableKind::Slot, name + "/m", p.type(), {}, name);
      const Tensor g = graph.add(*find_op("identity"), {grads[i]}, {{"storage_of", name}}, Location())[0];
      const Tensor next = 0.9 * m + g;
      updates.push_back(graph.assign(m, next));
      updates.push_back(graph.assign(p, p - 1e-3 * next));
    }
  }
  Tensors step() const {
    Tensors targets{loss};
    targets.insert(targets.end(), updates.begin(), updates.end());
    return targets;
  }
  FeedMap feeds(int step) const { return {{"x", random_array(x.type(), 7 + static_cast<unsigned>(step))}}; }
};

SessionOptions without(const std::set<std::string>& passes) {
  SessionOptions options;
  options.lower.without = passes;
  return options;
}

struct Trained {
  std::vector<double> losses;
  std::vector<Array> variables;
};

Trained train(const HalfNetwork& model, const char* mesh, const char* layout, const SessionOptions& options) {
  Session session(model.graph, Mesh::parse(mesh), Layout::parse(layout), options);
  const int step = session.compile(model.step());
  Trained trained;
  for (int s = 0; s < 3; ++s) trained.losses.push_back(session.run(step, model.feeds(s)).scalar(0));
  for (const std::string& name : session.store().names())
    trained.variables.push_back(session.store().read(name));
  return trained;
}

constexpr const char* kLayouts[][2] = {
    {"a:1", ""},
    {"a:2", "batch:a"},
    {"a:3", "batch:a"},
    {"a:2", "mid:a"},
    {"a:2;b:2", "batch:a;mid:b"},
    {"a:2;b:2", "batch:b"},
    {"a:2", "batch:a;slots.*:a"},
    {"a:2", "batch:a;params.*:a;slots.*:a"},
};

TEST(SessionCopies, ChangeNoBit) {
  const HalfNetwork model;
  for (const auto& [mesh, layout] : kLayouts) {
    SCOPED_TRACE(std::string(mesh) + " " + layout);
    const Trained with = train(model, mesh, layout, {}),
                  plain = train(model, mesh, layout, without({"copies"}));
    EXPECT_EQ(with.losses, plain.losses);
    ASSERT_EQ(with.variables.size(), plain.variables.size()) << "copies are no variables of the graph";
    for (std::size_t v = 0; v < plain.variables.size(); ++v)
      EXPECT_TRUE(same_bits(with.variables[v], plain.variables[v])) << v;
  }
}

// The step writes the copies with the masters, in the loop of the update, and casts no large parameter;
// replicas share them.
TEST(SessionCopies, AreWrittenByTheUpdate) {
  const HalfNetwork model;
  Session session(model.graph, Mesh::parse("a:2"), Layout::parse("batch:a"));
  const int id = session.compile(model.step());
  const Program& program = session.program(id);
  int assigned = 0;
  for (const Step& step : program.steps) {
    if (step.kind == Step::Kind::Assign) {
      const auto in = static_cast<std::size_t>(step.in[0]);
      const ProgramValue& to = program.values[static_cast<std::size_t>(step.out[0])];
      if (to.type.dtype != DType::BF16) continue;
      ++assigned;
      EXPECT_GE(session.plan(id).stored_in[in], 0) << "copied there by a step of its own";
    }
    if (step.kind != Step::Kind::Run || std::string(step.call.op->name) != "cast") continue;
    EXPECT_LT(step.call.in[0].shape.elements(), 10000) << step.name << ": in the loop of the update, too";
  }
  EXPECT_EQ(assigned, 2);
  const std::int64_t masters = (130 * 190 + 190 * 131 + 131) * 4, copies = (130 * 190 + 190 * 131) * 2;
  EXPECT_EQ(session.store().bytes(), 2 * masters + copies);
  for (const char* copy : kCopies) EXPECT_EQ(session.store().type(copy).dtype, DType::BF16);
}

// What the copies are made from may change behind them.
TEST(SessionCopies, FollowTheirParameters) {
  const HalfNetwork model;
  std::vector<double> losses[2];
  for (const bool kept : {true, false}) {
    Session session(model.graph, Mesh::parse("a:2"), Layout::parse("batch:a"),
                    without(kept ? std::set<std::string>{} : std::set<std::string>{"copies"}));
    const int look = session.compile({model.loss}), step = session.compile(model.step()),
              only_w2 = session.compile({model.updates[3]});
    const auto note = [&](int id, int s) {
      losses[kept].push_back(session.run(id, model.feeds(s)).scalar(0));
    };
    note(look, 0);
    note(step, 1);
    note(look, 2);  // another program's copies are these
    session.store().write("w1", random_array(session.store().type("w1"), 3, -0.2, 0.2));
    note(look, 2);
    Array row({{{"in", 1}, {"mid", 190}}, DType::F32});
    session.store().write("w1", Box{{4, 0}, {1, 190}}, row.data.data());
    note(step, 3);
    session.run(only_w2, model.feeds(4));
    note(look, 5);
  }
  EXPECT_EQ(losses[1], losses[0]);
}

// An update that reads no parameter in bf16 itself still writes the copies that others made.
TEST(SessionCopies, AProgramThatOnlyUpdatesWritesThem) {
  const HalfNetwork model;
  Graph other;
  const Tensor w = other.parameter("w1", model.parameters[0].shape(), Initializer::normal(0.1));
  const Tensor shrink = other.assign(w, 0.5 * w);
  Session session(model.graph, Mesh::parse("a:2"), Layout::parse("batch:a"));
  session.compile({model.loss});
  const int id = session.compile(other, {shrink});
  const std::string text = to_string(session.program(id));
  EXPECT_NE(text.find("w1@bf16"), std::string::npos) << text;
}

// A gradient in bf16 is summed where its update is: no rank makes all of it, and it is cast there.
TEST(SessionCopies, GradientsInHalfPrecisionAreReducedInParts) {
  const HalfNetwork model;
  for (const char* layout : {"batch:a", "batch:a;slots.*:a", "batch:a;params.*:a;slots.*:a"}) {
    Session session(model.graph, Mesh::parse("a:2"), Layout::parse(layout), without({"split_output"}));
    const ProgramStats counts = stats(session.program(session.compile(model.step())));
    EXPECT_EQ(counts.count.at("reduce_scatter"), 3) << layout;
    EXPECT_EQ(counts.count.at("all_reduce"), 1) << layout << ": the loss";
  }
}

TEST(SessionCopies, AreMadeByProgramsOnly) {
  Graph graph;
  EXPECT_THROW(graph.variable(VariableKind::Copy, "w@bf16", {Shape{}, DType::BF16}), UserError);
}

}  // namespace
}  // namespace tessera::testing
