// Memory: plans near the lower bound, buffers that do not overlap while they live, arenas that are refused
// before allocation, runs that do not allocate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "exec/arena.h"
#include "exec/cpu_target.h"
#include "exec_allocations.h"
#include "session_models.h"
#include "tessera/error.h"

namespace tessera {
namespace {

using testing::Mlp;

Program lowered(const Mlp& model, const std::string& mesh, const std::string& layout) {
  LowerOptions options;
  return lower(model.graph, model.step(), Mesh::parse(mesh), Layout::parse(layout), options);
}

int base(const Program& program, int id) {
  while (program.values[static_cast<std::size_t>(id)].view_of >= 0)
    id = program.values[static_cast<std::size_t>(id)].view_of;
  return id;
}

std::int64_t largest_bytes(const Program& program, int id) {
  const ProgramValue& v = program.values[static_cast<std::size_t>(id)];
  return largest_elements(program.mesh, v.type.shape, v.placement) *
         static_cast<std::int64_t>(size_of(v.type.dtype));
}

// The reductions of a program, by input and output.
std::set<std::pair<int, int>> reductions_of(const Program& program) {
  std::set<std::pair<int, int>> pairs;
  for (const Step& step : program.steps)
    if (step.kind == Step::Kind::Wait && step.collective.kind == CollectiveKind::AllReduce)
      pairs.emplace(step.in[0], step.out[0]);
  return pairs;
}

// First writing and last reading step of each value, views counted for their base.
struct Life {
  int first = 1 << 30, last = -1;
};
std::vector<Life> lives(const Program& program) {
  std::vector<Life> result(program.values.size());
  auto touch = [&](int id, int s) {
    Life& life = result[static_cast<std::size_t>(base(program, id))];
    life.first = std::min(life.first, s);
    life.last = std::max(life.last, s);
  };
  for (int s = 0; s < static_cast<int>(program.steps.size()); ++s) {
    const Step& step = program.steps[static_cast<std::size_t>(s)];
    if (step.kind == Step::Kind::Free) continue;
    for (int id : step.in) touch(id, s);
    for (int id : step.out) touch(id, s);
  }
  for (std::size_t v = 0; v < program.values.size(); ++v)
    if (program.values[v].kind == ProgramValue::Kind::Feed) touch(static_cast<int>(v), 0);
  for (int id : program.fetches) touch(id, static_cast<int>(program.steps.size()) - 1);
  return result;
}

TEST(MemoryPlan, LiveBuffersDoNotOverlapAndThePlanIsNearTheBound) {
  Mlp model(64);
  for (const auto& [mesh, layout] : std::vector<std::pair<std::string, std::string>>{
           {"", ""}, {"a:3", "batch:a"}, {"a:2;b:2", "batch:a;hidden:b"}}) {
    SCOPED_TRACE(layout);
    const Program program = lowered(model, mesh, layout);
    for (bool in_place : {false, true}) {
      const MemoryPlan plan = plan_memory(program, CpuTarget(1, in_place));
      EXPECT_LE(static_cast<double>(plan.arena_bytes), 1.2 * static_cast<double>(plan.liveness_bound));
      const std::vector<Life> life = lives(program);
      for (std::size_t a = 0; a < life.size(); ++a) {
        const int id = static_cast<int>(a);
        if (base(program, id) != id || life[a].last < 0 || plan.offset[a] < 0) continue;
        EXPECT_EQ(plan.offset[a] % 64, 0);
        EXPECT_LE(plan.offset[a] + largest_bytes(program, id), plan.arena_bytes);
        for (std::size_t b = a + 1; b < life.size(); ++b) {
          if (base(program, static_cast<int>(b)) != static_cast<int>(b) || life[b].last < 0 ||
              plan.offset[b] < 0)
            continue;
          const bool touch_in_time = life[a].first <= life[b].last && life[b].first <= life[a].last;
          const bool handed_over =
              in_place && (life[a].last == life[b].first || life[b].last == life[a].first);
          const bool reduced =
              in_place && reductions_of(program).count({static_cast<int>(a), static_cast<int>(b)}) != 0;
          if (!touch_in_time || handed_over || reduced) continue;
          EXPECT_TRUE(plan.offset[a] + largest_bytes(program, id) <= plan.offset[b] ||
                      plan.offset[b] + largest_bytes(program, static_cast<int>(b)) <= plan.offset[a])
              << program.values[a].name << " and " << program.values[b].name;
        }
      }
    }
  }
}

TEST(MemoryPlan, AChainNeedsOneBufferInPlace) {
  Graph graph;
  const Dim n{"n", 1000};
  const Tensor x = graph.input("x", {n});
  const Tensor y = exp(tanh(sin(x)));
  LowerOptions options;
  options.without = {"fuse"};
  const Program program = lower(graph, {y}, Mesh(), Layout(), options);
  constexpr std::int64_t kBuffer = 4032;  // 1000 floats in whole cache lines
  EXPECT_EQ(plan_memory(program, CpuTarget(1, false)).arena_bytes, 2 * kBuffer);
  EXPECT_EQ(plan_memory(program, CpuTarget(1, true)).arena_bytes, kBuffer);
}

TEST(MemoryPlan, AnAllReduceOverwritesItsInput) {
  Graph graph;
  const Dim batch{"batch", 6}, n{"n", 5000};
  const Tensor x = graph.input("x", {batch, n});
  const Tensor sum = reduce_sum(x, {"batch"}), small = reduce_sum(sum * 1.0, {"n"});
  Session session(graph, Mesh::parse("a:3"), Layout::parse("batch:a"));
  const int id = session.compile({sum, small});
  const Program& program = session.program(id);
  int reductions = 0;
  for (const Step& step : program.steps) {
    if (step.kind != Step::Kind::Wait) continue;
    ++reductions;
    EXPECT_EQ(session.plan(id).offset[static_cast<std::size_t>(step.in[0])],
              session.plan(id).offset[static_cast<std::size_t>(step.out[0])]);
  }
  EXPECT_GE(reductions, 1);
  Array feed(x.type());
  for (std::int64_t i = 0; i < feed.elements(); ++i) feed.set(i, static_cast<double>(i % 7));
  const Results results = session.run(id, {{"x", feed}});
  double total = 0;
  const Array summed = results.gather(0);
  for (std::int64_t k = 0; k < 5000; ++k) {
    double expected = 0;
    for (std::int64_t b = 0; b < 6; ++b) expected += static_cast<double>((b * 5000 + k) % 7);
    ASSERT_EQ(summed.get(k), expected);
    total += expected;
  }
  EXPECT_EQ(results.scalar(1), total);
}

// A rank may still read what it gave to a reduction when another one is done with it and hands out results.
TEST(MemoryPlan, WhatIsReadDuringItsReductionIsNotOverwritten) {
  Graph graph;
  const Tensor x = graph.input("x", {{"batch", 4}, {"n", 64}});
  const Tensor y = exp(reduce_sum(x, {"batch"}));
  LowerOptions options;
  Program program = lower(graph, {y}, Mesh::parse("a:2"), Layout::parse("batch:a"), options);
  const auto wait = std::find_if(program.steps.begin(), program.steps.end(),
                                 [](const Step& step) { return step.kind == Step::Kind::Wait; });
  const auto in = static_cast<std::size_t>(wait->in[0]), out = static_cast<std::size_t>(wait->out[0]);
  const auto overwrites = [&] {
    const MemoryPlan plan = plan_memory(program, CpuTarget(1, true));
    return plan.offset[in] == plan.offset[out];
  };
  EXPECT_TRUE(overwrites());
  Step reader = wait[1].kind == Step::Kind::Free ? wait[2] : wait[1];
  reader.in = {wait->in[0]};
  reader.out = {static_cast<int>(program.values.size())};
  program.values.push_back(program.values[in]);
  program.steps.insert(wait, reader);
  EXPECT_FALSE(overwrites());
}

// The program's first result is exp(x) squared.
void expect_squared_exponentials(Session& session, int id, const Tensor& x) {
  Array feed(x.type());
  for (std::int64_t i = 0; i < feed.elements(); ++i) feed.set(i, static_cast<double>(i % 11) / 8);
  const Array squares = session.run(id, {{"x", feed}}).gather(0);
  for (std::int64_t i = 0; i < feed.elements(); ++i)
    ASSERT_NEAR(squares.get(i), std::exp(2 * feed.get(i)), 1e-4) << i;
}

// Each rank's part of a gathered value is made where it goes.
TEST(MemoryPlan, AnAllGatherIsMadeAroundItsInput) {
  struct Case {
    const char *shape, *mesh, *layout;
    bool inside;
  };
  for (const Case& c : std::vector<Case>{{"r:6;k:32", "a:3", "r:a", true},
                                         {"one:1;r:6;k:32", "a:3", "r:a", true},
                                         {"r:12;k:32", "a:3;b:2", "r:a+b", true},
                                         {"r:7;k:16", "a:3", "r:a", true},  // uneven parts
                                         {"r:2;k:16", "a:3", "r:a", true},  // an empty one
                                         {"r:8;k:32", "a:2;b:2", "r:a;k:b", true},
                                         {"r:8;k:20", "a:2;b:2", "r:a;k:b", false},  // half of a cache line
                                         {"r:7;k:15", "a:3", "r:a", false},          // not of whole lines
                                         {"k:32;r:6", "a:3", "r:a", false}}) {       // not contiguous
    SCOPED_TRACE(std::string(c.shape) + " on " + c.mesh);
    Graph graph;
    const Shape shape = parse_shape(c.shape);
    const Tensor x = graph.input("x", shape);
    const Tensor whole = rename(exp(x), {{"r", "whole"}});
    const Tensor y = whole * whole;
    Session session(graph, Mesh::parse(c.mesh), Layout::parse(c.layout));
    const int id = session.compile({y});
    const Program& program = session.program(id);
    const MemoryPlan& plan = session.plan(id);
    int gathers = 0, inside = 0;
    for (const Step& step : program.steps) {
      if (step.kind != Step::Kind::Wait || step.collective.kind != CollectiveKind::AllGather) continue;
      ++gathers;
      inside += plan.gathered_in[static_cast<std::size_t>(base(program, step.in[0]))] == step.out[0];
    }
    EXPECT_EQ(gathers, 1);
    EXPECT_EQ(inside, c.inside);
    expect_squared_exponentials(session, id, x);
  }
}

// With an expert a rank both sides of the exchange are alike, and the ranks swap what each needs of the
// other.
TEST(MemoryPlan, AnAllToAllOfMirroredPartsSwapsThem) {
  struct Case {
    const char *shape, *mesh;
    bool swaps;
  };
  for (const Case& c : std::vector<Case>{{"e:2;r:6;k:5", "a:2", true},
                                         {"one:1;e:3;r:6;k:5", "a:3", true},
                                         {"r:3;e:6;k:5", "a:3", true},
                                         {"e:4;r:8;k:5", "a:2;b:2", false},  // two experts a rank
                                         {"e:3;r:7;k:5", "a:3", false},      // uneven
                                         {"k:2;e:3;r:6", "a:3", false}}) {
    SCOPED_TRACE(std::string(c.shape) + " on " + c.mesh);
    Graph graph;
    const Tensor x = graph.input("x", parse_shape(c.shape));
    const Tensor y = rename(exp(x), {{"r", "whole"}, {"e", "experts"}});
    Session session(graph, Mesh::parse(c.mesh), Layout::parse("r:a;experts:a"));
    const int id = session.compile({y * y});
    int exchanges = 0, swaps = 0;
    for (const Step& step : session.program(id).steps) {
      if (step.kind != Step::Kind::Wait || step.collective.kind != CollectiveKind::AllToAll) continue;
      ++exchanges;
      swaps += session.plan(id).offset[static_cast<std::size_t>(step.in[0])] ==
               session.plan(id).offset[static_cast<std::size_t>(step.out[0])];
    }
    EXPECT_EQ(exchanges, 1);
    EXPECT_EQ(swaps, c.swaps);
    expect_squared_exponentials(session, id, x);
  }
}

TEST(MemoryPlan, VariablesAreOutsideAndThePeakIsListedLargestFirst) {
  Mlp model(512);
  const Program program = lowered(model, "", "");
  const MemoryPlan plan = plan_memory(program, CpuTarget(1, true));
  for (std::size_t v = 0; v < program.values.size(); ++v) {
    const bool variable = program.values[v].kind == ProgramValue::Kind::Variable;
    EXPECT_FALSE(variable && plan.offset[v] != -1) << program.values[v].name;
  }
  ASSERT_FALSE(plan.peak_values.empty());
  EXPECT_GE(largest_bytes(program, plan.peak_values[0]), largest_bytes(program, plan.peak_values.back()));
}

// An update is computed in the variable's memory, and ranks that share it do a part each: all elements change
// once.
TEST(MemoryPlan, UpdatesAreComputedInTheVariablesMemory) {
  for (const std::string shape : {"n:1000", "n:2;k:7", "n:1;k:1", ""}) {
    for (const std::string mesh : {"", "a:3", "a:2;b:2"}) {
      SCOPED_TRACE(shape + " on " + mesh);
      Graph graph;
      const Type type{parse_shape(shape), DType::F64};
      const Tensor x = graph.input("x", type.shape, DType::F64);
      const Tensor w = graph.parameter("w", type.shape, Initializer::constant(3), DType::F64);
      const Tensor set = graph.assign(w, add(w, x));
      Session session(graph, Mesh::parse(mesh), Layout());
      const int step = session.compile({set});
      const MemoryPlan& plan = session.plan(step);
      EXPECT_EQ(std::count_if(plan.stored_in.begin(), plan.stored_in.end(), [](int v) { return v >= 0; }), 1);
      EXPECT_EQ(plan.arena_bytes, (type.bytes() + 63) / 64 * 64);  // the fed value alone
      Array feed(type);
      for (std::int64_t i = 0; i < feed.elements(); ++i) feed.set(i, static_cast<double>(i));
      session.run(step, {{"x", feed}});
      session.run(step, {{"x", feed}});
      const Array after = session.store().read("w");
      for (std::int64_t i = 0; i < feed.elements(); ++i)
        ASSERT_EQ(after.get(i), 3 + 2 * static_cast<double>(i));
    }
  }
}

TEST(MemoryPlan, TooLargeIsRefusedBeforeAllocation) {
  Graph graph;
  const Dim rows{"rows", std::int64_t{1} << 22}, cols{"cols", std::int64_t{1} << 20};
  const Tensor big = random_uniform(graph, {rows, cols});  // 16 TiB
  Session session(graph, Mesh::parse("a:2"), Layout::parse("rows:a"));
  try {
    session.compile({reduce_sum(big)});
    FAIL();
  } catch (const SystemError& e) {
    EXPECT_EQ(e.code(), ExitCode::Memory);
    EXPECT_THAT(e.what(), ::testing::HasSubstr("arenas of 8.0 TiB for 2 ranks"));
    EXPECT_THAT(e.what(), ::testing::HasSubstr("f32[rows:4194304;cols:1048576] 8.0 TiB a rank"));
  }
  EXPECT_EQ(session.arena_bytes_per_rank(), 0);
}

TEST(Arena, IsAlignedZeroedAndTouched) {
  Arena arena(3 << 20);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.data()) % 64, 0u);
  arena.touch();
  for (std::int64_t i = 0; i < arena.bytes(); i += 1111) ASSERT_EQ(arena.data()[i], std::byte{0});
  EXPECT_GT(available_memory(), std::int64_t{1} << 20);
}

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * 4096;
}

// The planned arena is the real memory: touched when compiled, nothing more while running.
TEST(Session, ResidentMemoryGrowsByArenasAndVariablesOnly) {
  if (!testing::counts_allocations()) GTEST_SKIP() << "sanitizers keep memory of their own";
  constexpr std::int64_t kSlack = 16 << 20;
  Mlp model(300'000);
  const FeedMap feeds = model.feeds();
  const std::int64_t before = resident_bytes();
  Session session(model.graph, Mesh::parse("a:2"), Layout::parse("batch:a"));
  const int step = session.compile(model.step());
  const std::int64_t arenas = 2 * session.arena_bytes_per_rank();
  EXPECT_GT(arenas, 2 * kSlack);
  const std::int64_t compiled = resident_bytes();
  EXPECT_GE(compiled - before, arenas - kSlack);
  EXPECT_LE(compiled - before, arenas + session.store().bytes() + kSlack);
  for (int s = 0; s < 5; ++s) session.run(step, feeds);
  EXPECT_LE(resident_bytes() - compiled, kSlack);
}

long page_faults(int who) {
  rusage usage{};
  getrusage(who, &usage);
  return usage.ru_minflt;
}

// A page lies in the memory of the processor that touches it first: the ranks do, each its slice, and not the
// controller's thread.
TEST(Session, VariablesAreTouchedFirstByTheirRanks) {
  if (!testing::counts_allocations()) GTEST_SKIP() << "sanitizers touch memory themselves";
  constexpr long kPages = (64 << 20) / 4096;
  prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);       // a fault a page of 4 KiB, so that they can be counted
  for (const char* layout : {"rows:a", ""}) {  // a shard each, or one shard that both share
    Graph graph;
    const Tensor w = graph.parameter("w", {{"rows", 4096}, {"cols", 4096}}, Initializer::zeros());
    const Tensor half = graph.assign(w, w * 0.5);
    Session session(graph, Mesh::parse("a:2"), Layout::parse(layout));
    const long mine = page_faults(RUSAGE_THREAD), all = page_faults(RUSAGE_SELF);
    session.compile({half});
    EXPECT_LT(page_faults(RUSAGE_THREAD) - mine, kPages / 8);
    EXPECT_GT(page_faults(RUSAGE_SELF) - all, kPages / 2);
  }
  prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
}

TEST(Session, AStepAllocatesNothingLarge) {
  if (!testing::counts_allocations()) GTEST_SKIP() << "sanitizers have their own allocators";
  Mlp model(4096, DType::F32);
  Session session(model.graph, Mesh::parse("a:2"), Layout::parse("batch:a"));
  const int step = session.compile(model.step());
  const FeedMap feeds = model.feeds();
  session.run(step, feeds);
  testing::start_watching();
  session.run(step, feeds);
  EXPECT_LE(testing::largest_allocation(), 64 * 1024);
  // The watch sees what it should.
  testing::start_watching();
  const std::vector<char> large(1 << 20);
  EXPECT_GE(testing::largest_allocation(), static_cast<long>(large.size()));
}

}  // namespace
}  // namespace tessera
