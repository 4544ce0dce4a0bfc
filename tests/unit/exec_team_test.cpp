// The threads of a rank: every part once, nothing left running, many short rounds, more threads than cores.
#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <vector>

#include "exec/team.h"

namespace tessera {
namespace {

TEST(Team, DoesEveryPartOnceBeforeItReturns) {
  for (const int threads : {1, 2, 3, 8}) {
    Team team(threads);
    const Team::Use use(team);
    EXPECT_EQ(team.threads(), threads);
    for (const int parts : {0, 1, 2, 3, 7, 100}) {
      std::vector<int> times(static_cast<std::size_t>(parts), 0);  // no atomics: each part has its own
      for (int round = 0; round < 50; ++round)
        for_each_part(parts, [&](int part) { ++times[static_cast<std::size_t>(part)]; });
      EXPECT_EQ(times, std::vector<int>(static_cast<std::size_t>(parts), 50)) << threads << " " << parts;
    }
  }
}

TEST(Team, PartsRunAtTheSameTime) {
  Team team(3);
  const Team::Use use(team);
  std::atomic<int> arrived{0};
  for_each_part(3, [&](int) {
    ++arrived;
    while (arrived.load() < 3) std::this_thread::yield();
  });
  EXPECT_EQ(arrived.load(), 3);
}

TEST(Team, WithoutATeamPartsRunInOrder) {
  std::vector<int> seen;
  for_each_part(4, [&](int part) { seen.push_back(part); });
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 2, 3}));
  Team team(2);
  std::thread([&] {
    for_each_part(2, [&](int part) { seen.push_back(part); });
  }).join();  // the team of another thread
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 2, 3, 0, 1}));
}

TEST(Team, ValuesFlowFromRoundToRound) {
  Team team(4);
  const Team::Use use(team);
  std::vector<std::int64_t> values(4, 1), sums(4, 0);
  for (int round = 0; round < 2000; ++round) {
    for_each_part(4, [&](int part) {
      sums[static_cast<std::size_t>(part)] =
          std::accumulate(values.begin(), values.end(), std::int64_t{0}) % 1000;
    });
    for_each_part(4, [&](int part) {
      values[static_cast<std::size_t>(part)] = sums[static_cast<std::size_t>((part + 1) % 4)] + part;
    });
  }
  EXPECT_EQ(values[0] + 1, values[1]);
  EXPECT_EQ(values[1] + 1, values[2]);
}

}  // namespace
}  // namespace tessera
