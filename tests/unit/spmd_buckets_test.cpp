// The pass "buckets": which reductions share a collective, and which must not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/simulate.h"
#include "tessera/error.h"
#include "tessera/explain.h"
#include "tessera/grad.h"
#include "tessera/ops.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;

// A flop takes a second.
class Post final : public Target {
 public:
  double latency = 0, seconds_per_byte = 0, meeting = 0, memory = 0;
  std::string name() const override { return "post"; }
  std::int64_t workspace(const Step&, const std::vector<Type>&, const std::vector<Type>&) const override {
    return 0;
  }
  bool in_place(const Step& step, int, int) const override {
    return step.kind == Step::Kind::Fused || step.kind == Step::Kind::Start;
  }
  double work_seconds(const Program& program, const Step& step) const override {
    return step.kind == Step::Kind::Run ? product_flops(largest_call(program, step)) : 0;
  }
  double wire_seconds(const Collective& c) const override {
    return latency + seconds_per_byte * static_cast<double>(c.bytes);
  }
  double meeting_seconds() const override { return meeting; }
  double memory_seconds(std::int64_t bytes) const override { return memory * static_cast<double>(bytes); }
};

constexpr int kLayers = 6;
constexpr std::int64_t kWidth = 32, kLarge = kWidth * kWidth * 4, kSmall = kWidth * 4;

// Layers with a weight, a scale and a bias each, and an update by the gradient.
struct Tower {
  Graph graph;
  Tensors targets;

  Tower() {
    const Dim batch{"batch", 4};
    Dim in{"width_a", kWidth}, out{"width_b", kWidth};
    Tensor x = graph.input("x", {batch, in});
    Tensors parameters;
    for (int l = 0; l < kLayers; ++l, std::swap(in, out)) {
      for (const auto& [name, shape] :
           {std::pair<const char*, Shape>{"w", {in, out}}, {"scale", {out}}, {"bias", {out}}})
        parameters.push_back(graph.parameter(name + std::to_string(l), shape, Initializer::normal(0.1)));
      const Tensors p(parameters.end() - 3, parameters.end());
      x = tanh(einsum({x, p[0]}, {batch, out}) * p[1] + p[2]);
    }
    const Tensor loss = reduce_sum(square(x));
    const Tensors gradients = tessera::gradients({loss}, parameters);
    const Graph::RegionScope update(graph, Region::Update);
    targets = {loss};
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const std::string name = graph.node(parameters[p].node()).name;
      const Tensor gradient = graph.add(*find_op("identity"), {gradients[p]}, {{"storage_of", name}},
                                        Location("tower.cc", __LINE__))[0];
      targets.push_back(graph.assign(parameters[p], parameters[p] - 0.1 * gradient));
    }
  }

  Program lowered(const Target& target, std::set<std::string> without = {"overlap", "split_output"},
                  const char* mesh = "data:2", const char* layout = "batch:data") const {
    LowerOptions options;
    options.shared_variables = true;
    options.target = &target;
    options.without = std::move(without);
    return lower(graph, targets, Mesh::parse(mesh), Layout::parse(layout), options);
  }
  Program without_buckets(const Target& target) const {
    return lowered(target, {"overlap", "split_output", "buckets"});
  }
};

// The sizes of the collectives of a kind: how many parts each has, ascending.
std::vector<std::size_t> parts_of(const Program& program, CollectiveKind kind) {
  std::vector<std::size_t> parts;
  for (const Step& step : program.steps)
    if (step.kind == Step::Kind::Start && step.collective.kind == kind) parts.push_back(step.in.size());
  std::sort(parts.begin(), parts.end());
  return parts;
}
using Parts = std::vector<std::size_t>;

Parts repeated(std::size_t count, std::size_t value, Parts then = {}) {
  then.insert(then.begin(), count, value);
  return then;
}

// What has to do with the weights, in order: their products, reductions and updates.
std::string weights_of(const Program& program) {
  std::string text;
  for (const Step& step : program.steps) {
    const bool large = std::any_of(step.out.begin(), step.out.end(), [&](int id) {
      return program.values[static_cast<std::size_t>(id)].type.bytes() == kLarge;
    });
    const bool product = step.kind == Step::Kind::Run && step.call.op->products != nullptr;
    if ((large || product) && step.kind != Step::Kind::Free) text += step.name + "\n";
  }
  return text;
}

// 12.8 seconds of payload a vector, less than what a meeting costs: all wait for the last one. Weights do
// not.
TEST(Buckets, SmallGradientsWaitForEachOtherAndLargeOnesDoNot) {
  const Tower tower;
  Post post;
  post.latency = 100, post.seconds_per_byte = 0.1, post.meeting = 200;
  const Program with = tower.lowered(post), without = tower.without_buckets(post);
  EXPECT_EQ(parts_of(without, CollectiveKind::ReduceScatter), repeated(3 * kLayers, 1));
  EXPECT_EQ(parts_of(with, CollectiveKind::ReduceScatter), repeated(kLayers, 1, {2 * kLayers}));
  EXPECT_EQ(parts_of(with, CollectiveKind::AllReduce), Parts{1});  // the loss
  EXPECT_EQ(stats(with).collective_bytes, stats(without).collective_bytes);
  EXPECT_EQ(stats(with).bytes_per_axis, stats(without).bytes_per_axis);
  EXPECT_EQ(stats(with).count.at("reduce_scatter"), kLayers + 1);
  EXPECT_EQ(weights_of(with), weights_of(without));
  EXPECT_LE(plan_memory(with, post).arena_bytes,
            plan_memory(without, post).arena_bytes + 2 * kLayers * kSmall);
}

// Where the payload costs more than a meeting, only those share one that come within a latency.
TEST(Buckets, OnlyNeighboursWhereWaitingCostsMore) {
  const Tower tower;
  Post post;
  post.latency = 100, post.seconds_per_byte = 0.1, post.meeting = 10;
  EXPECT_EQ(parts_of(tower.lowered(post), CollectiveKind::ReduceScatter),
            repeated(kLayers, 1, repeated(kLayers, 2)));
  EXPECT_EQ(weights_of(tower.lowered(post)), weights_of(tower.without_buckets(post)));
}

// A link that is busy all the time carries what has come together meanwhile. The weights are small to it.
TEST(Buckets, ABusyLinkGathers) {
  const Tower tower;
  Post post;
  post.latency = 1e6, post.seconds_per_byte = 1e-3;
  const Program with = tower.lowered(post);
  EXPECT_EQ(parts_of(with, CollectiveKind::ReduceScatter), Parts{3 * kLayers});
  EXPECT_EQ(stats(with).collective_bytes, stats(tower.without_buckets(post)).collective_bytes);
}

// What lies about costs: a vector 12.8 seconds again.
TEST(Buckets, MemoryThatLiesAboutCounts) {
  const Tower tower;
  Post post;
  post.memory = 0.1;
  post.meeting = 20;
  EXPECT_EQ(parts_of(tower.lowered(post), CollectiveKind::ReduceScatter),
            repeated(kLayers, 1, {2 * kLayers}));
  post.meeting = 10;
  EXPECT_EQ(to_string(tower.lowered(post)), to_string(tower.without_buckets(post)));
}

TEST(Buckets, NothingWhereCollectivesCostNothing) {
  const Tower tower;
  Post post;
  post.seconds_per_byte = 1;
  EXPECT_EQ(to_string(tower.lowered(post)), to_string(tower.without_buckets(post)));
}

// Programs of sums, on which everything comes at once.
struct Sums {
  Graph graph;
  Tensors targets;
  Array feed;

  Tensor input(const Shape& shape) {
    const Tensor x = graph.input("x", shape);
    feed = Array(x.type());
    for (std::int64_t i = 0; i < feed.elements(); ++i) feed.set(i, static_cast<double>(i * 7 % 11 - 5));
    return x;
  }

  // The program with buckets; checks it against the one without.
  Program checked(const char* mesh, const char* layout) const {
    Post post;
    post.latency = 1, post.meeting = 1;
    LowerOptions options;
    options.target = &post;
    const auto lowered = [&] {
      return lower(graph, targets, Mesh::parse(mesh), Layout::parse(layout), options);
    };
    const Program with = lowered();
    options.without = {"buckets"};
    const Program without = lowered();
    EXPECT_EQ(stats(with).collective_bytes, stats(without).collective_bytes);
    EXPECT_EQ(stats(with).bytes_per_axis, stats(without).bytes_per_axis);
    SimulateOptions simulation;
    simulation.graph = &graph;
    simulation.feeds = {{"x", feed}};
    const Simulated got = simulate(with, simulation), want = simulate(without, simulation);
    EXPECT_EQ(got.replica_mismatch, "");
    for (std::size_t f = 0; f < want.fetches.size(); ++f)
      EXPECT_TRUE(same_bits(got.fetches[f], want.fetches[f])) << "fetch " << f;
    return with;
  }
};

// Sums over one axis, over the other one and over both: two of each.
TEST(Buckets, NeverOverOtherAxes) {
  Sums sums;
  const Dim batch{"batch", 5}, width{"width", 3};
  const Tensor x = sums.input({batch, width});
  for (const std::vector<std::string>& dims :
       {std::vector<std::string>{"batch"}, {"width"}, {"batch", "width"}})
    for (const Tensor& t : {x, square(x)}) sums.targets.push_back(reduce_sum(t, dims));
  const Program program = sums.checked("a:2;b:4", "batch:a;width:b");
  EXPECT_EQ(parts_of(program, CollectiveKind::AllReduce), (Parts{2, 2, 2}));
  std::set<std::vector<int>> groups;
  for (const Step& step : program.steps)
    if (step.kind == Step::Kind::Start) groups.insert(step.collective.axes);
  EXPECT_EQ(groups, (std::set<std::vector<int>>{{0}, {1}, {0, 1}}));
}

TEST(Buckets, NeverOfOtherReductions) {
  Sums sums;
  const Dim batch{"batch", 5}, width{"width", 3};
  const Tensor x = sums.input({batch, width});
  sums.targets = {reduce_sum(x, {"batch"}), reduce_max(x, {"batch"}), reduce_sum(square(x), {"batch"}),
                  reduce_max(square(x), {"batch"}), reduce_min(x, {"batch"})};
  EXPECT_EQ(parts_of(sums.checked("idle:2;a:3", "batch:a"), CollectiveKind::AllReduce), (Parts{1, 2, 2}));
}

// The second sum needs the first one's result; the third needs none.
TEST(Buckets, NeverWhereOneNeedsTheOther) {
  for (const bool third_last : {false, true}) {
    Sums sums;
    const Dim batch{"batch", 5}, width{"width", 3};
    const Tensor x = sums.input({batch, width});
    const Tensor first = reduce_sum(x, {"batch"});
    Tensor third;
    if (!third_last) third = reduce_sum(exp(x), {"batch"});
    const Tensor second = reduce_sum(square(x - first), {"batch"});
    if (third_last) third = reduce_sum(exp(x), {"batch"});
    sums.targets = {first, second, third};
    EXPECT_EQ(parts_of(sums.checked("a:3", "batch:a"), CollectiveKind::AllReduce), (Parts{1, 2}));
  }
}

// More ranks than rows: some hold nothing.
TEST(Buckets, OfEmptyParts) {
  Sums sums;
  const Dim batch{"batch", 2}, width{"width", 2};
  const Tensor x = sums.input({batch, width});
  sums.targets = {reduce_sum(x, {"batch"}), reduce_sum(exp(x), {"batch"}), reduce_sum(x), reduce_sum(exp(x))};
  EXPECT_EQ(parts_of(sums.checked("a:5;b:3", "batch:a;width:b"), CollectiveKind::AllReduce), (Parts{2, 2}));
}

TEST(Buckets, EveryPartIsExplained) {
  const Tower tower;
  Post post;
  post.latency = 100, post.seconds_per_byte = 0.1, post.meeting = 200;
  const Program program = tower.lowered(post);
  const MemoryPlan plan = plan_memory(program, post);
  const Program alone = tower.without_buckets(post);
  const std::string text = explain(program, plan, {}), list = to_string(program),
                    json = explain_json(program, plan);
  EXPECT_THAT(text, HasSubstr("12 in one:"));
  for (const Step& step : alone.steps) {
    if (step.kind != Step::Kind::Start) continue;
    const std::string origin = step.name + " (" + to_string(step.where) + ")";
    EXPECT_THAT(text, HasSubstr(origin));
    EXPECT_THAT(list, HasSubstr(origin));
    EXPECT_THAT(json, HasSubstr("\"op\": \"" + step.name + "\""));
  }
  const std::vector<StepClass> classes = step_classes(program);
  for (std::size_t s = 0; s < program.steps.size(); ++s) {
    if (program.steps[s].kind == Step::Kind::Start && program.steps[s].in.size() > 1) {
      EXPECT_EQ(classes[s], StepClass::Update);
    }
  }
}

TEST(Buckets, MalformedOnesAreBugs) {
  const Tower tower;
  Post post;
  post.meeting = 1e6;
  const Program good = tower.lowered(post);
  const auto bucket = std::find_if(good.steps.begin(), good.steps.end(), [](const Step& step) {
    return step.kind == Step::Kind::Start && step.in.size() > 1;
  });
  ASSERT_NE(bucket, good.steps.end());
  const auto broken = [&](const auto& change) {
    Program program = good;
    change(program.steps[static_cast<std::size_t>(bucket - good.steps.begin())]);
    EXPECT_THROW(verify(program), InternalError);
  };
  broken([](Step& step) { step.collective.bytes -= 1; });
  broken([](Step& step) { step.collective.parts.pop_back(); });
  broken([](Step& step) { step.collective.parts.clear(); });
  broken([](Step& step) { step.collective.kind = CollectiveKind::AllGather; });
  broken([](Step& step) { step.collective.reduce = Reduction::Max; });
  broken([](Step& step) { step.out[0] = step.out[1]; });
}

}  // namespace
}  // namespace tessera::testing
