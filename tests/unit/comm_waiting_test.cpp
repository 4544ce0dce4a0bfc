// Who waits sleeps: less than 1 % of a processor, whether or not every rank can have one.
#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <thread>

#include "comm_harness.h"
#include "exec/local_ranks.h"
#include "exec/team.h"

namespace tessera {
namespace {

using namespace testing;  // NOLINT: the harness

constexpr auto kLong = std::chrono::seconds(1);
constexpr double kShare = 0.01;  // of the time waited

double processor_seconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Seconds of the processor that `body` uses, of those that it takes.
template <class Body>
double share_of(clockid_t clock, Body body) {
  const auto begin = std::chrono::steady_clock::now();
  const double before = processor_seconds(clock);
  body();
  const double used = processor_seconds(clock) - before;
  return used / std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class Waiting : public ::testing::TestWithParam<int> {};

TEST_P(Waiting, ForACollective) {
  const int ranks = GetParam();
  ThreadsWorld world(ranks, {.deadline_seconds = 20, .random_delays = false});
  std::vector<float> in(static_cast<std::size_t>(ranks), 1.0f), out = in;
  std::vector<std::unique_ptr<PreparedCollective>> prepared(static_cast<std::size_t>(ranks));
  run_ranks(world, [&](Communicator& c, int rank) {
    const auto r = static_cast<std::size_t>(rank);
    CollectivePlan plan{.kind = "all_reduce", .what = "'x'", .combine = Combine::Sum, .bytes = 4};
    for (int member = 0; member < ranks; ++member) plan.group.push_back(member);
    plan.pieces.push_back(run_of(plan.group, 0, 0, 1));
    prepared[r] = c.prepare(plan);
    if (rank == ranks / 2) std::this_thread::sleep_for(kLong);
    const double share =
        share_of(CLOCK_THREAD_CPUTIME_ID, [&] { c.wait(c.start(*prepared[r], &in[r], &out[r])); });
    if (rank == ranks / 2) return;
    EXPECT_LT(share, kShare) << "rank " << rank;
    EXPECT_GT(c.take_wait_seconds(), 0.9);
  });
  EXPECT_EQ(out, std::vector<float>(out.size(), static_cast<float>(ranks)));
}

TEST_P(Waiting, ForTheProgressOfARank) {
  const int ranks = GetParam();
  ThreadsWorld world(ranks, {.deadline_seconds = 20, .random_delays = false});
  LocalRanks local(world, true);
  local.begin_run();
  run_ranks(world, [&](Communicator&, int rank) {
    if (rank == 1) {
      local.reach(1, 2);  // a step that nobody awaits
      std::this_thread::sleep_for(kLong);
      local.announce(1, 7);
      return;
    }
    double seconds = 0;
    EXPECT_LT(share_of(CLOCK_THREAD_CPUTIME_ID,
                       [&] { seconds = local.await(rank, 1, 7, [] { return std::string("the update"); }); }),
              kShare);
    EXPECT_GT(seconds, 0.9);
    EXPECT_EQ(local.await(rank, 1, 3, [] { return std::string("the past"); }), 0);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Waiting, ::testing::Values(2, 8));

TEST(WaitingTeam, HelpersSleepAndAreWaitedForAsleep) {
  Team team(3);
  const Team::Use use(team);
  for_each_part(3, [](int) {});
  EXPECT_LT(share_of(CLOCK_PROCESS_CPUTIME_ID, [] { std::this_thread::sleep_for(kLong); }), kShare);
  EXPECT_LT(share_of(CLOCK_PROCESS_CPUTIME_ID,
                     [] {
                       for_each_part(3, [](int part) {
                         if (part == 2) std::this_thread::sleep_for(kLong);
                       });
                     }),
            kShare);
}

// A wait outside collectives ends as theirs do.
TEST(WaitingFaults, AMemberThatLeavesOrHangsIsNamed) {
  for (const bool leaves : {true, false}) {
    ThreadsWorld world(3, {.deadline_seconds = 0.3, .random_delays = false});
    LocalRanks local(world, true);
    local.begin_run();
    try {
      run_ranks(world, [&](Communicator&, int rank) {
        if (rank == 2 && leaves) return;
        while (rank == 2 && !world.failed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (rank != 2) local.await(rank, 2, 5, [] { return std::string("the update of 'w'"); });
      });
      FAIL();
    } catch (const SystemError& e) {
      EXPECT_EQ(e.code(), ExitCode::NoProgress);
      const std::string message = e.what();
      EXPECT_EQ(message.rfind(leaves ? "rank 2 left the program before the update of 'w'"
                                     : "rank 2 did not arrive at the update of 'w'",
                              0),
                0u)
          << message;
    }
  }
}

}  // namespace
}  // namespace tessera
