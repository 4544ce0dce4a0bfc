// The overlap pass: collectives under way while the ranks compute.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/deep_mlp.h"

namespace tessera::testing {
namespace {

// A flop takes a second, and a byte takes `wire` of them; ranks drift apart by `spread` of the program's
// work.
class Clockwork final : public Target {
 public:
  explicit Clockwork(double wire, double spread = 0) : wire_(wire), spread_(spread) {}
  std::string name() const override { return "clockwork"; }
  std::int64_t workspace(const Step&, const std::vector<Type>&, const std::vector<Type>&) const override {
    return 0;
  }
  bool in_place(const Step& step, int, int) const override { return step.kind == Step::Kind::Fused; }
  double work_seconds(const Program& program, const Step& step) const override {
    return step.kind == Step::Kind::Run ? product_flops(largest_call(program, step)) : 0;
  }
  double wire_seconds(const Collective& c) const override { return wire_ * static_cast<double>(c.bytes); }
  double arrival_spread() const override { return spread_; }

 private:
  double wire_, spread_;
};

struct Timed {
  double work = 0, wire = 0, total = 0;
  int most_in_flight = 0;
};

// Executes the steps in order; the link carries one collective after the other.
Timed time_of(const Program& program, const Target& target) {
  Timed t;
  double link_free = 0;
  int in_flight = 0;
  std::map<int, double> arrivals;
  for (int s = 0; s < static_cast<int>(program.steps.size()); ++s) {
    const Step& step = program.steps[static_cast<std::size_t>(s)];
    if (step.kind == Step::Kind::Start) {
      const double wire = target.wire_seconds(step.collective);
      t.wire += wire;
      arrivals[s] = link_free = std::max(link_free, t.total) + wire;
      t.most_in_flight = std::max(t.most_in_flight, ++in_flight);
    } else if (step.kind == Step::Kind::Wait) {
      t.total = std::max(t.total, arrivals.at(step.start));
      --in_flight;
    }
    const double work = target.work_seconds(program, step);
    t.work += work;
    t.total += work;
  }
  return t;
}

Program lowered(const DeepMlp& model, const char* layout, bool rows, const Target* target) {
  LowerOptions options;
  options.shared_variables = rows;
  options.target = target;
  return lower(model.graph, model.targets, Mesh::parse("data:2"), Layout::parse(layout), options);
}

TEST(Overlap, GradientsAreReducedUnderTheBackwardPass) {
  const DeepMlp model(12, 64, 64);
  for (const bool rows : {false, true}) {
    const Clockwork one(1);
    const Timed alone = time_of(lowered(model, "batch:data", rows, nullptr), one);
    const Clockwork half(0.5 * alone.work / alone.wire);
    const Timed with = time_of(lowered(model, "batch:data", rows, &half), half),
                without = time_of(lowered(model, "batch:data", rows, nullptr), half);
    EXPECT_EQ(with.work, without.work);
    EXPECT_EQ(with.wire, without.wire);
    EXPECT_GE(without.total, 1.4 * without.work);
    EXPECT_LE(with.total, 1.1 * with.work);
  }
}

// Stored parameters could all be gathered at once: they are gathered just ahead of their use.
TEST(Overlap, GathersStartShortlyBeforeTheirUse) {
  const DeepMlp model(24, 64, 64);
  const char* layout = "batch:data;params.*:data";
  const Clockwork one(1);
  const Timed alone = time_of(lowered(model, layout, true, nullptr), one);
  const Clockwork half(0.5 * alone.work / alone.wire);
  const Program with = lowered(model, layout, true, &half), without = lowered(model, layout, true, nullptr);
  EXPECT_LE(time_of(with, half).total, 1.15 * alone.work);
  EXPECT_GE(time_of(without, half).total, 1.4 * alone.work);
  EXPECT_LE(time_of(with, half).most_in_flight, 6);
  const std::int64_t weight = std::int64_t{64} * 64 * 4;
  EXPECT_LE(plan_memory(with, half).arena_bytes, plan_memory(without, half).arena_bytes + 6 * weight);
}

TEST(Overlap, ChangesNothingWhereNothingIsHidden) {
  const DeepMlp model(3, 10, 6);
  const Clockwork none(0);
  EXPECT_EQ(to_string(lowered(model, "batch:data", true, &none)),
            to_string(lowered(model, "batch:data", true, nullptr)));
}

// Collectives that take no time are still not waited for at once: a product lies in between, for the slower
// rank, in all but the last ones. No more than that: the arena grows by a gradient at most.
TEST(Overlap, LetsRanksArriveOneAfterTheOther) {
  const DeepMlp model(12, 64, 64);
  const Clockwork drifting(0, 0.001), none(0);
  const Program program = lowered(model, "batch:data", true, &drifting);
  int sums = 0, apart = 0;
  for (int s = 0; s < static_cast<int>(program.steps.size()); ++s) {
    const Step& wait = program.steps[static_cast<std::size_t>(s)];
    if (wait.kind != Step::Kind::Wait || wait.collective.reduce != Reduction::Sum) continue;
    ++sums;
    double between = 0;
    for (int i = wait.start; i < s; ++i)
      between += drifting.work_seconds(program, program.steps[static_cast<std::size_t>(i)]);
    if (between > 0) ++apart;
  }
  EXPECT_EQ(sums, 13);  // the loss is one
  EXPECT_GE(apart, 11);
  const std::int64_t weight = std::int64_t{64} * 64 * 4;
  EXPECT_LE(plan_memory(program, drifting).arena_bytes,
            plan_memory(lowered(model, "batch:data", true, &none), none).arena_bytes + weight);
}

// Which steps there are, by kind and what they make.
std::string outline(const Program& program) {
  std::string text;
  for (const Step& step : program.steps) {
    const std::string name =
        step.out.empty() ? "" : program.values[static_cast<std::size_t>(step.out[0])].name;
    if (step.kind == Step::Kind::Run && step.call.op->products != nullptr) text += "einsum ";
    if (step.kind == Step::Kind::Start) text += "start ";
    if (step.kind == Step::Kind::Wait) text += "wait ";
    if (step.kind == Step::Kind::Assign) text += name + " ";
  }
  return text;
}

// Three products forward, then two a layer, the last layer first; the first layer's input needs no gradient.
// The last reduction is the loss.
TEST(Overlap, MovesUpdatesBehindTheNextProducts) {
  const DeepMlp model(3, 64, 16);
  const Clockwork slow(8);
  EXPECT_EQ(
      outline(lowered(model, "batch:data", false, nullptr)),
      "einsum einsum einsum einsum einsum start wait w2 einsum einsum start wait w1 einsum start wait w0 "
      "start wait ");
  EXPECT_EQ(outline(lowered(model, "batch:data", false, &slow)),
            "einsum einsum einsum start einsum einsum start einsum wait w2 einsum start einsum wait w1 start "
            "wait wait w0 ");
}

TEST(Overlap, KeepsTheBits) {
  const DeepMlp model(4, 10, 6);
  for (const auto& [mesh, layout] : {std::pair{"a:3", "batch:a"},
                                     {"a:2;b:2", "batch:a;width_b:b"},
                                     {"a:4", "batch:a;params.*:a"},
                                     {"idle:2;a:3", "width_a:a"}}) {
    std::vector<std::vector<std::byte>> bits[2];
    for (const bool with : {false, true}) {
      SessionOptions options;
      options.link_latency_seconds = 1e-4;
      options.random_delays = with;
      if (!with) options.lower.without = {"overlap"};
      Session session(model.graph, Mesh::parse(mesh), Layout::parse(layout), options);
      const int program = session.compile(model.targets);
      for (int step = 0; step < 3; ++step) {
        const Array loss = session.run(program, model.feeds()).gather(0);
        bits[with].emplace_back(loss.data.begin(), loss.data.end());
      }
      for (const std::string& name : session.store().names()) {
        const Array value = session.store().read(name);
        bits[with].emplace_back(value.data.begin(), value.data.end());
      }
    }
    EXPECT_EQ(bits[0], bits[1]) << mesh << " " << layout;
  }
}

TEST(Overlap, ALinkTakesItsTime) {
  const DeepMlp model(1, 4, 6);
  SessionOptions options;
  options.link_latency_seconds = 0.02;
  Session session(model.graph, Mesh::parse("a:2"), Layout::parse("batch:a"), options);
  const int program = session.compile(model.targets);
  session.run(program, model.feeds());
  session.reset_stats();
  session.run(program, model.feeds());
  EXPECT_GE(session.stats().seconds, 0.02 * static_cast<double>(session.stats().collectives));
}

}  // namespace
}  // namespace tessera::testing
