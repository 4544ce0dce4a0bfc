// A rank that throws, leaves early, hangs or does something else than the others ends everybody's run soon,
// and is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>

#include "comm_harness.h"

namespace tessera {
namespace {

using namespace testing;  // NOLINT: the harness
using ::testing::HasSubstr;

enum class Fault { None, Throw, Leave, Loop };

constexpr std::int64_t kFaultCount = 6000;
constexpr int kCollectives = 7;

// Collective k of a program of all kinds on the mesh [2,2]: rows, columns and the whole mesh take turns.
CollectivePlan plan_at(int k, int rank) {
  const std::vector<int> mesh{2, 2};
  CollectivePlan plan;
  plan.what = "'layer_" + std::to_string(k) + "' (model.cc:" + std::to_string(10 + k) + ")";
  plan.bytes = 4 * kFaultCount;
  plan.group = k == 6 ? std::vector<int>{0, 1, 2, 3} : along(mesh, static_cast<std::size_t>(k % 2), rank);
  const int me = position_in(plan.group, rank);
  const std::vector<std::string> kinds{"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                       "permute",    "exchange",   "all_reduce"};
  plan.kind = kinds[static_cast<std::size_t>(k)];
  if (plan.kind == "all_reduce" || plan.kind == "reduce_scatter") {
    plan.combine = Combine::Sum;
    plan.pieces.push_back(run_of(plan.group, 0, 0, kFaultCount));
  } else {
    plan.pieces.push_back(run_of({plan.group[static_cast<std::size_t>(1 - me)]}, 0, 0, kFaultCount));
  }
  return plan;
}

struct Outcome {
  std::string message;
  ExitCode code = ExitCode::Done;
  double seconds = 0;
  std::array<std::string, 4> seen;  // what each rank threw
};

Outcome run_with(Fault fault, int faulty_rank, int at, double deadline) {
  ThreadsWorld world(4, {.deadline_seconds = deadline, .random_delays = false});
  Outcome outcome;
  const auto begin = std::chrono::steady_clock::now();
  // Buffers and plans outlive the ranks: when a run fails, others may still be reading.
  std::vector<std::vector<float>> in(4, std::vector<float>(kFaultCount, 1.0f)), out = in;
  std::vector<std::vector<std::unique_ptr<PreparedCollective>>> prepared(4);
  auto body = [&](Communicator& c, int rank) {
    const auto r = static_cast<std::size_t>(rank);
    for (int k = 0; k < kCollectives; ++k) {
      if (rank == faulty_rank && k == at) {
        if (fault == Fault::Throw) throw std::runtime_error("disk on fire");
        if (fault == Fault::Leave) return;
        while (fault == Fault::Loop && !world.failed()) {
        }
        if (fault == Fault::Loop) return;
      }
      prepared[r].push_back(c.prepare(plan_at(k, rank)));
      c.wait(c.start(*prepared[r].back(), in[r].data(), out[r].data()));
    }
  };
  try {
    run_ranks(world, [&](Communicator& c, int rank) {
      try {
        body(c, rank);
      } catch (const std::exception& e) {
        outcome.seen[static_cast<std::size_t>(rank)] = e.what();
        throw;
      }
    });
  } catch (const Error& e) {
    outcome.message = e.what();
    outcome.code = e.code();
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return outcome;
}

TEST(CommFaults, NoFaultNoFailure) {
  const Outcome outcome = run_with(Fault::None, -1, -1, 20);
  EXPECT_EQ(outcome.message, "");
}

TEST(CommFaults, ThrowAtEachCollectiveOnEachRank) {
  for (int rank = 0; rank < 4; ++rank) {
    for (int at = 0; at < kCollectives; ++at) {
      const Outcome outcome = run_with(Fault::Throw, rank, at, 20);
      EXPECT_EQ(outcome.message, "rank " + std::to_string(rank) + ": disk on fire");
      EXPECT_LT(outcome.seconds, 3);
      for (int other = 0; other < 4; ++other) {
        if (other == rank || outcome.seen[static_cast<std::size_t>(other)].empty()) continue;
        EXPECT_EQ(outcome.seen[static_cast<std::size_t>(other)],
                  "stopped because of another failure: rank " + std::to_string(rank) + ": disk on fire");
      }
    }
  }
}

TEST(CommFaults, EarlyReturnAtEachCollectiveOnEachRank) {
  for (int rank = 0; rank < 4; ++rank) {
    for (int at = 0; at < kCollectives; ++at) {
      const Outcome outcome = run_with(Fault::Leave, rank, at, 20);
      EXPECT_THAT(outcome.message, HasSubstr("rank " + std::to_string(rank) + " left the program before "));
      EXPECT_EQ(outcome.code, ExitCode::NoProgress);
      EXPECT_LT(outcome.seconds, 3);  // long before the deadline: who leaves is seen at once
    }
  }
}

TEST(CommFaults, EndlessLoopAtEachCollectiveOnEachRank) {
  for (int rank = 0; rank < 4; ++rank) {
    for (int at = 0; at < kCollectives; ++at) {
      const Outcome outcome = run_with(Fault::Loop, rank, at, 0.4);
      EXPECT_THAT(outcome.message,
                  ::testing::StartsWith("rank " + std::to_string(rank) + " did not arrive at "))
          << at;
      EXPECT_EQ(outcome.code, ExitCode::NoProgress);
      EXPECT_LT(outcome.seconds, 3.4);
    }
  }
}

TEST(CommFaults, RanksThatDisagreeAreBothNamed) {
  ThreadsWorld world(2, {.deadline_seconds = 20, .random_delays = false});
  std::array<std::unique_ptr<PreparedCollective>, 2> prepared;
  std::array<float, 2> in{}, out{};
  try {
    run_ranks(world, [&](Communicator& c, int rank) {
      const auto r = static_cast<std::size_t>(rank);
      CollectivePlan plan;
      plan.kind = "all_reduce";
      plan.what = rank == 0 ? "'a' (m.cc:1)" : "'b' (m.cc:2)";
      plan.combine = Combine::Sum;
      plan.group = {0, 1};
      plan.bytes = 4;
      plan.pieces.push_back(run_of({0, 1}, 0, 0, 1));
      prepared[r] = c.prepare(plan);
      c.wait(c.start(*prepared[r], &in[r], &out[r]));
    });
    FAIL();
  } catch (const SystemError& e) {
    EXPECT_EQ(e.code(), ExitCode::Disagree);
    EXPECT_THAT(e.what(), HasSubstr("ranks disagree at collective 0: "));
    EXPECT_THAT(e.what(),
                HasSubstr("rank 0 is at all_reduce of 'a' (m.cc:1), 4 bytes of f32 over ranks 0,1"));
    EXPECT_THAT(e.what(),
                HasSubstr("rank 1 is at all_reduce of 'b' (m.cc:2), 4 bytes of f32 over ranks 0,1"));
  }
}

TEST(CommFaults, AbortReachesARankThatSleeps) {
  ThreadsWorld world(2, {.deadline_seconds = 20, .random_delays = false});
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(run_ranks(world,
                         [&](Communicator& c, int rank) {
                           if (rank == 1) {
                             std::this_thread::sleep_for(std::chrono::milliseconds(50));
                             c.abort("stopped by the test");
                             return;
                           }
                           int data = 0;
                           c.broadcast(&data, sizeof data, 1);
                         }),
               SystemError);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 3);
}

TEST(CommFaults, MalformedPlansAreBugs) {
  ThreadsWorld world(3, {.deadline_seconds = 20, .random_delays = false});
  CollectivePlan plan;
  plan.kind = "all_gather";
  plan.group = {1, 2};
  EXPECT_THROW(world.communicator(0).prepare(plan), InternalError);  // I am not in it
  plan.group = {0, 1};
  plan.pieces.push_back(run_of({2}, 0, 0, 1));
  EXPECT_THROW(world.communicator(0).prepare(plan), InternalError);  // takes from outside the group
  plan.pieces = {run_of({0, 1}, 0, 0, 1)};
  EXPECT_THROW(world.communicator(0).prepare(plan), InternalError);  // two sources, nothing to combine
}

}  // namespace
}  // namespace tessera
