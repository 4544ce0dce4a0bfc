// The threads of a rank: every part once, nothing left running, many short rounds, more threads than cores.
#include <gtest/gtest.h>

#include <atomic>
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

TEST(Team, SharedPartsAreDoneOnce) {
  for (const int threads : {1, 2, 3}) {
    Team team(threads);
    const Team::Use use(team);
    for (const int parts : {0, 1, 2, 7, 100}) {
      std::vector<int> times(static_cast<std::size_t>(parts), 0);  // no atomics: each part has its own
      for (int round = 0; round < 50; ++round)
        share_parts(parts, [&](int part) { ++times[static_cast<std::size_t>(part)]; });
      EXPECT_EQ(times, std::vector<int>(static_cast<std::size_t>(parts), 50)) << threads << " " << parts;
    }
  }
  std::vector<int> seen;
  std::thread([&] { share_parts(3, [&](int part) { seen.push_back(part); }); }).join();  // without a team
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 2}));
}

TEST(Team, AThreadThatIsFreeTakesTheNextPart) {
  Team team(2);
  const Team::Use use(team);
  std::atomic<int> done{0};
  share_parts(5, [&](int part) {
    while (part == 0 && done.load() < 4) std::this_thread::yield();  // as long as all the others
    ++done;
  });
  EXPECT_EQ(done.load(), 5);
}

TEST(Team, GuestsTakeParts) {
  OpenWork open;
  std::atomic<int> opened{0};
  open.on_open([&] { ++opened; });
  Team team(1, {}, &open);
  EXPECT_FALSE(open.help());
  std::atomic<bool> stop{false};
  std::atomic<int> helped{0};
  std::thread guest([&] {
    while (!stop.load()) {
      if (open.help()) ++helped;
    }
  });
  const Team::Use use(team);
  for (int round = 0; round < 200; ++round) {
    // On this frame: a guest that came back after it is gone would be seen by the sanitizers.
    std::vector<int> times(6, 0);
    std::atomic<int> done{0};
    share_parts(6, [&](int part) {
      const auto me = std::this_thread::get_id();
      while (me != guest.get_id() && part == round % 5 && done.load() == 0) std::this_thread::yield();
      ++times[static_cast<std::size_t>(part)];
      if (me == guest.get_id()) ++done;
    });
    ASSERT_EQ(times, std::vector<int>(6, 1));
  }
  stop = true;
  guest.join();
  EXPECT_EQ(opened.load(), 200);
  EXPECT_GT(helped.load(), 0);
  EXPECT_FALSE(open.help());
}

TEST(Team, WorkIsShownOnlyWhereSomebodyAsksForIt) {
  OpenWork open;
  Team team(1, {}, &open);
  const Team::Use use(team);
  share_parts(3, [&](int) { EXPECT_FALSE(open.help()); });
}

}  // namespace
}  // namespace tessera
