// Which core each thread of each rank gets, on described machines (nothing here says what it is worth: that
// is unmeasured on machines of several memories), and that a pool's threads go where its plan says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <mutex>
#include <set>

#include "exec/rank_pool.h"
#include "exec/team.h"
#include "exec/topology.h"
#include "tessera/session.h"

namespace tessera {
namespace {

using Places = std::vector<std::vector<int>>;
using ::testing::IsEmpty;

// hwloc numbers the processors of a described machine in order: core c of the machines with two hardware
// threads a core has the processors 2c and 2c + 1.
constexpr const char* kTwoPackages = "package:2 numa:1 core:4 pu:2";

TEST(Topology, OneThreadACoreAndARankInsideAPackage) {
  const Topology machine = Topology::synthetic(kTwoPackages);
  EXPECT_EQ(machine.cores(), 8);
  EXPECT_EQ(machine.place(1, 8), (Places{{0, 2, 4, 6, 8, 10, 12, 14}}));
  EXPECT_EQ(machine.place(2, 4), (Places{{0, 2, 4, 6}, {8, 10, 12, 14}}));
  EXPECT_EQ(machine.place(2, 1), (Places{{0}, {8}}));  // two memories for two ranks
  EXPECT_EQ(machine.place(2, 3), (Places{{0, 2, 4}, {8, 10, 12}}));
  EXPECT_EQ(machine.place(3, 2), (Places{{0, 2}, {4, 6}, {8, 10}}));
  EXPECT_EQ(machine.place(4, 1), (Places{{0}, {2}, {8}, {10}}));
  EXPECT_EQ(machine.place(8, 1), (Places{{0}, {2}, {4}, {6}, {8}, {10}, {12}, {14}}));
}

TEST(Topology, SecondThreadsOnlyWhereEveryCoreHasOne) {
  const Topology machine = Topology::synthetic(kTwoPackages);
  // Ten ranks: five a package, of which one shares a core.
  EXPECT_EQ(machine.place(10, 1), (Places{{0}, {1}, {2}, {4}, {6}, {8}, {9}, {10}, {12}, {14}}));
  EXPECT_EQ(machine.place(16, 1).size(), 16u);
  EXPECT_EQ(machine.place(4, 4), (Places{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
}

TEST(Topology, MoreThreadsThanProcessorsAreNotPinned) {
  EXPECT_THAT(Topology::synthetic(kTwoPackages).place(17, 1), IsEmpty());
  EXPECT_THAT(Topology::synthetic(kTwoPackages).place(3, 6), IsEmpty());
  EXPECT_THAT(Topology::synthetic("package:1 core:2 pu:1").place(3, 1), IsEmpty());
  EXPECT_THAT(Topology::synthetic("package:1 core:2 pu:1").place(8, 1), IsEmpty());
}

TEST(Topology, OnlyTheProcessorsOfTheSet) {
  // Cores 1 to 3 of the first package, of core 1 only the second thread, and core 6.
  const Topology machine = Topology::synthetic(kTwoPackages, {3, 4, 5, 6, 7, 12, 13});
  EXPECT_EQ(machine.cores(), 4);
  EXPECT_EQ(machine.place(2, 1), (Places{{3}, {12}}));
  EXPECT_EQ(machine.place(4, 1), (Places{{3}, {4}, {6}, {12}}));
  EXPECT_EQ(machine.place(1, 4), (Places{{3, 4, 6, 12}}));
  EXPECT_EQ(machine.place(7, 1), (Places{{3}, {4}, {5}, {6}, {7}, {12}, {13}}));
  EXPECT_THAT(machine.place(8, 1), IsEmpty());
  // One hardware thread: a second one is a second core's or nobody's.
  EXPECT_EQ(Topology::synthetic(kTwoPackages, {9}).cores(), 1);
  EXPECT_THAT(Topology::synthetic(kTwoPackages, {9}).place(2, 1), IsEmpty());
}

TEST(Topology, UnevenPackages) {
  // Five cores in the first package, three in the second.
  const Topology machine = Topology::synthetic("package:2 core:5 pu:1", {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(machine.place(2, 3), (Places{{0, 1, 2}, {5, 6, 7}}));
  EXPECT_EQ(machine.place(2, 4), (Places{{0, 1, 2, 3}, {4, 5, 6, 7}}));  // the second fits no package
  EXPECT_EQ(machine.place(4, 2), (Places{{0, 1}, {2, 3}, {4, 7}, {5, 6}}));
  EXPECT_EQ(machine.place(3, 2), (Places{{0, 1}, {2, 3}, {5, 6}}));
}

// A rank's threads share the smallest cache that holds them all.
TEST(Topology, CachesInsideAPackage) {
  const Topology machine = Topology::synthetic("package:1 l3:4 core:3 pu:1");
  EXPECT_EQ(machine.place(4, 3), (Places{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {9, 10, 11}}));
  EXPECT_EQ(machine.place(4, 1), (Places{{0}, {3}, {6}, {9}}));
  EXPECT_EQ(machine.place(3, 2), (Places{{0, 1}, {3, 4}, {6, 7}}));
  // Five pairs: four have a cache of their own, one has the left-overs of two.
  EXPECT_EQ(machine.place(5, 2), (Places{{0, 1}, {2, 5}, {3, 4}, {6, 7}, {9, 10}}));
}

// On every machine and for every number of ranks: everybody has a place, nobody shares one, and no core has
// two threads while another has none.
TEST(Topology, EveryThreadHasAProcessorOfItsOwn) {
  for (const char* text : {kTwoPackages, "package:3 l3:2 core:3 pu:1", "numa:4 core:5 pu:4", "core:7 pu:1"}) {
    const Topology machine = Topology::synthetic(text);
    for (int ranks = 1; ranks <= 24; ++ranks) {
      for (int threads = 1; ranks * threads <= machine.cores(); ++threads) {
        const Places places = machine.place(ranks, threads);
        ASSERT_EQ(places.size(), static_cast<std::size_t>(ranks)) << text;
        std::set<int> processors;
        for (const std::vector<int>& rank : places) {
          EXPECT_EQ(rank.size(), static_cast<std::size_t>(threads));
          processors.insert(rank.begin(), rank.end());
        }
        EXPECT_EQ(processors.size(), static_cast<std::size_t>(ranks * threads)) << text << " " << ranks;
      }
    }
  }
}

std::set<int> allowed() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  EXPECT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  std::set<int> found;
  for (int p = 0; p < CPU_SETSIZE; ++p)
    if (CPU_ISSET(p, &mask)) found.insert(p);
  return found;
}

TEST(Topology, ThisMachineIsWhatTheMaskAllows) {
  const std::set<int> before = allowed();
  const Topology machine = Topology::machine();
  ASSERT_GE(machine.cores(), 1);
  for (const std::vector<int>& rank : machine.place(machine.cores(), 1))
    EXPECT_EQ(before.count(rank[0]), 1u) << rank[0];
  const int last = *before.rbegin();
  pin_this_thread(last);
  EXPECT_EQ(allowed(), std::set<int>{last});
  EXPECT_EQ(Topology::machine().place(1, 1), (Places{{last}}));
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (int p : before) CPU_SET(p, &mask);
  ASSERT_EQ(sched_setaffinity(0, sizeof mask, &mask), 0);
}

// Every thread of every rank, helpers too, on the processor of the plan, and back on none of them without
// one.
TEST(Topology, ThreadsOfAPoolStayWhereThePlanSays) {
  const std::set<int> mine = allowed();
  const int first = *mine.begin(), last = *mine.rbegin();
  std::mutex mutex;
  std::map<std::pair<int, int>, std::set<int>> seen;
  const auto look = [&](RankPool& pool) {
    pool.run_all([&](int rank) {
      for_each_part(pool.threads(), [&](int thread) {
        std::lock_guard<std::mutex> lock(mutex);
        seen[{rank, thread}] = allowed();
      });
    });
  };
  RankPool pinned(2, {.threads = 2, .processors = {{first, last}, {last, first}}});
  look(pinned);
  EXPECT_EQ((seen[{0, 0}]), std::set<int>{first});
  EXPECT_EQ((seen[{0, 1}]), std::set<int>{last});
  EXPECT_EQ((seen[{1, 0}]), std::set<int>{last});
  EXPECT_EQ((seen[{1, 1}]), std::set<int>{first});
  RankPool loose(2, {.threads = 2, .processors = {}});
  look(loose);
  for (const auto& [thread, processors] : seen) EXPECT_EQ(processors, mine) << thread.first << thread.second;
}

TEST(Topology, MoreRanksThanCoresGetOneLooseThreadEach) {
  const PoolPlan plan = plan_pool(10'000, true);
  EXPECT_EQ(plan.threads, 1);
  EXPECT_THAT(plan.processors, IsEmpty());
  EXPECT_THAT(plan_pool(1, false).processors, IsEmpty());
}

}  // namespace
}  // namespace tessera
