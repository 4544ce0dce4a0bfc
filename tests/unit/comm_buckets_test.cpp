// Several reductions in one collective: buffers of their own, several types, uneven and empty parts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "comm_harness.h"

namespace tessera {
namespace {

using namespace testing;  // NOLINT: the harness
using ::testing::HasSubstr;

// Three parts: f32, bf16 and i32.
struct Buffers {
  std::vector<float> a;
  std::vector<bf16> b;
  std::vector<std::int32_t> c;

  Buffers(std::int64_t na, std::int64_t nb, std::int64_t nc)
      : a(static_cast<std::size_t>(na)), b(static_cast<std::size_t>(nb)), c(static_cast<std::size_t>(nc)) {}
  std::array<void*, 3> addresses() { return {a.data(), b.data(), c.data()}; }
};

CollectivePlan bucket_plan(const char* kind, std::vector<int> group, std::int64_t na, std::int64_t nb,
                           std::int64_t nc) {
  CollectivePlan plan;
  plan.kind = kind;
  plan.what = "'a' (m.cc:1)";
  plan.combine = Combine::Sum;
  plan.group = std::move(group);
  plan.parts = {{"'a' (m.cc:1)", DType::F32, 4 * na},
                {"'b' (m.cc:2)", DType::BF16, 2 * nb},
                {"'c' (m.cc:3)", DType::I32, 4 * nc}};
  for (const BucketPart& part : plan.parts) plan.bytes += part.bytes;
  return plan;
}

void fill(Buffers& in, int rank) {
  for (std::size_t i = 0; i < in.a.size(); ++i) in.a[i] = 0.1f * static_cast<float>(i + 1) + 1e-3f * rank;
  for (std::size_t i = 0; i < in.b.size(); ++i) in.b[i] = bf16(rank == 0 ? 256.0f : 1.0f);
  for (std::size_t i = 0; i < in.c.size(); ++i) in.c[i] = static_cast<std::int32_t>(i) * (rank + 1);
}

// The sums of what fill() makes on n ranks 0 .. n - 1, as they are defined: in the order of the ranks.
float sum_a(std::size_t i, int n) {
  float sum = 0.1f * static_cast<float>(i + 1);
  for (int r = 1; r < n; ++r) sum += 0.1f * static_cast<float>(i + 1) + 1e-3f * static_cast<float>(r);
  return sum;
}

void check(const Buffers& out, const std::array<Range, 3>& parts, int n) {
  for (std::size_t i = 0; i < out.a.size(); ++i)
    ASSERT_EQ(out.a[i], sum_a(i + static_cast<std::size_t>(parts[0].begin), n)) << i;
  for (const bf16 b : out.b)
    ASSERT_EQ(static_cast<float>(b), static_cast<float>(bf16(static_cast<float>(256 + n - 1))));
  for (std::size_t i = 0; i < out.c.size(); ++i)
    ASSERT_EQ(out.c[i],
              static_cast<std::int32_t>(i + static_cast<std::size_t>(parts[2].begin)) * n * (n + 1) / 2);
}

constexpr std::array<std::int64_t, 3> kSizes[] = {{1, 1, 1},      {0, 3, 0},      {5, 0, 130},
                                                  {64, 4097, 65}, {9001, 1, 200}, {0, 0, 0}};

TEST(CommBuckets, AllReduceBesideItsInputsAndOverThem) {
  for (const int n : {2, 3, 5}) {
    std::vector<int> group;
    for (int r = 0; r < n; ++r) group.push_back(r);
    ThreadsWorld world(n, {.deadline_seconds = 20, .random_delays = true});
    for (const auto& [na, nb, nc] : kSizes) {
      for (const bool in_place : {false, true}) {
        run_ranks(world, [&, a = na, b = nb, c = nc](Communicator& communicator, int rank) {
          CollectivePlan plan = bucket_plan("all_reduce", group, a, b, c);
          const std::array<std::int64_t, 3> sizes{a, b, c};
          for (std::size_t p = 0; p < 3; ++p) {
            plan.pieces.push_back(run_of(group, 0, 0, sizes[p]));
            plan.pieces.back().part = p;
          }
          const auto prepared = communicator.prepare(std::move(plan));
          Buffers in(a, b, c), beside(a, b, c);
          Buffers& out = in_place ? in : beside;
          fill(in, rank);
          const auto from = in.addresses(), to = out.addresses();
          communicator.wait(communicator.start(*prepared, from.data(), const_cast<void**>(to.data())));
          check(out, {Range{0, a}, {0, b}, {0, c}}, n);
        });
      }
    }
  }
}

TEST(CommBuckets, ReduceScatterOfUnevenAndEmptyParts) {
  for (const int n : {2, 3, 5}) {
    std::vector<int> group;
    for (int r = 0; r < n; ++r) group.push_back(r);
    ThreadsWorld world(n, {.deadline_seconds = 20, .random_delays = true});
    for (const std::array<std::int64_t, 3>& sizes : kSizes) {
      run_ranks(world, [&](Communicator& communicator, int rank) {
        CollectivePlan plan = bucket_plan("reduce_scatter", group, sizes[0], sizes[1], sizes[2]);
        std::array<Range, 3> mine;
        for (std::size_t p = 0; p < 3; ++p) {
          mine[p] = part(sizes[p], n, rank);
          plan.pieces.push_back(run_of(group, mine[p].begin, 0, mine[p].size()));
          plan.pieces.back().part = p;
        }
        const auto prepared = communicator.prepare(std::move(plan));
        Buffers in(sizes[0], sizes[1], sizes[2]), out(mine[0].size(), mine[1].size(), mine[2].size());
        fill(in, rank);
        const auto from = in.addresses();
        auto to = out.addresses();
        communicator.wait(communicator.start(*prepared, from.data(), to.data()));
        check(out, mine, n);
      });
    }
  }
}

// What one rank does otherwise in the second part is a disagreement, and both are named with all parts.
std::string disagreement(const std::function<void(CollectivePlan&)>& change) {
  ThreadsWorld world(2, {.deadline_seconds = 20, .random_delays = false});
  std::array<std::unique_ptr<PreparedCollective>, 2> prepared;
  std::vector<Buffers> in(2, Buffers(4, 4, 4)), out = in;
  std::array<std::array<void*, 3>, 2> from{in[0].addresses(), in[1].addresses()},
      to{out[0].addresses(), out[1].addresses()};
  try {
    run_ranks(world, [&](Communicator& c, int rank) {
      const auto r = static_cast<std::size_t>(rank);
      CollectivePlan plan = bucket_plan("all_reduce", {0, 1}, 4, 4, 4);
      if (rank == 1) change(plan);
      for (std::size_t p = 0; p < plan.parts.size(); ++p) {
        plan.pieces.push_back(run_of({0, 1}, 0, 0, 4));
        plan.pieces.back().part = p;
      }
      prepared[r] = c.prepare(std::move(plan));
      c.wait(c.start(*prepared[r], from[r].data(), to[r].data()));
    });
  } catch (const SystemError& e) {
    EXPECT_EQ(e.code(), ExitCode::Disagree);
    return e.what();
  }
  return "";
}

TEST(CommBuckets, RanksThatDisagreeOnPartsAreNamed) {
  const std::string good =
      "is at all_reduce of 'a' (m.cc:1), 'b' (m.cc:2), 'c' (m.cc:3), 40 bytes of "
      "bf16, f32, i32 over ranks 0,1";
  const std::string other = disagreement([](CollectivePlan& plan) { plan.parts[1].what = "'d' (m.cc:4)"; });
  EXPECT_THAT(other, HasSubstr("rank 0 " + good));
  EXPECT_THAT(other, HasSubstr("rank 1 is at all_reduce of 'a' (m.cc:1), 'd' (m.cc:4), 'c' (m.cc:3), 40 "));
  // The same parts in another order, one less with the same sum, one that is split differently.
  EXPECT_THAT(disagreement([](CollectivePlan& plan) { std::swap(plan.parts[0], plan.parts[2]); }),
              HasSubstr("'c' (m.cc:3), 'b' (m.cc:2), 'a' (m.cc:1)"));
  EXPECT_NE(disagreement([](CollectivePlan& plan) { plan.parts.pop_back(); }), "");
  EXPECT_NE(disagreement([](CollectivePlan& plan) { plan.parts[0].bytes += 4, plan.parts[1].bytes -= 4; }),
            "");
  EXPECT_EQ(disagreement([](CollectivePlan&) {}), "");
}

TEST(CommBuckets, ALinkTakesItsLatencyOnce) {
  ThreadsWorld world(2,
                     {.deadline_seconds = 20, .link = {.latency_seconds = 0.03, .bytes_per_second = 1000}});
  run_ranks(world, [&](Communicator& c, int rank) {
    CollectivePlan plan = bucket_plan("all_reduce", {0, 1}, 4, 4, 4);
    for (std::size_t p = 0; p < 3; ++p) {
      plan.pieces.push_back(run_of({0, 1}, 0, 0, 4));
      plan.pieces.back().part = p;
    }
    const auto prepared = c.prepare(std::move(plan));
    Buffers in(4, 4, 4), out(4, 4, 4);
    fill(in, rank);
    const auto from = in.addresses();
    auto to = out.addresses();
    const double begin = now();
    c.wait(c.start(*prepared, from.data(), to.data()));
    EXPECT_GE(now() - begin, 0.03 + 0.04);
    EXPECT_LT(now() - begin, 3 * 0.03 + 0.04);
  });
}

TEST(CommBuckets, MalformedPlansAreBugs) {
  ThreadsWorld world(2, {.deadline_seconds = 20, .random_delays = false});
  CollectivePlan plan = bucket_plan("all_reduce", {0, 1}, 4, 4, 4);
  plan.pieces.push_back(run_of({0, 1}, 0, 0, 4));
  plan.pieces.back().part = 3;
  EXPECT_THROW(world.communicator(0).prepare(plan), InternalError);
}

}  // namespace
}  // namespace tessera
