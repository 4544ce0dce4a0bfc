// Collectives of the threads communicator against what memory and two meetings alone take, measured in turns.
// `floor_share` is the floor over the time; `payload` counts the bytes of one rank.
#include <benchmark/benchmark.h>

#include <algorithm>

#include "base/median.h"
#include "collective_case.h"

namespace tessera::benchmarks {
namespace {

void collective(benchmark::State& state, const std::string& op, std::int64_t bytes, int ranks,
                bool in_place) {
  CollectiveCase work(op, bytes, ranks, in_place);
  const int count = CollectiveCase::repeats(bytes);
  std::vector<double> times, shares;
  for (auto _ : state) {
    const double floor = work.floor_seconds(count);
    times.push_back(work.seconds(count));
    shares.push_back(floor / times.back());
    state.SetIterationTime(times.back());
  }
  state.counters["floor_share"] = median(shares);
  state.counters["payload"] = benchmark::Counter(static_cast<double>(bytes) / median(times),
                                                 benchmark::Counter::kDefaults, benchmark::Counter::kIs1000);
}

}  // namespace
}  // namespace tessera::benchmarks

int main(int argc, char** argv) {
  using tessera::benchmarks::CollectiveCase;
  std::vector<std::pair<std::string, bool>> cases;
  for (const std::string& op : CollectiveCase::ops()) {
    cases.emplace_back(op, false);
    if (op == "all_gather" || op == "all_to_all") cases.emplace_back(op, true);
  }
  for (const auto& [op, in_place] : cases) {
    for (const int ranks : {2, 4}) {
      for (std::int64_t bytes = 1 << 10; bytes <= 64 << 20; bytes *= 4) {
        const std::string name = op + (in_place ? "_in_place" : "") + "/ranks:" + std::to_string(ranks) +
                                 "/bytes:" + std::to_string(bytes);
        benchmark::RegisterBenchmark(name.c_str(),
                                     [op = op, bytes, ranks, in_place = in_place](benchmark::State& state) {
                                       tessera::benchmarks::collective(state, op, bytes, ranks, in_place);
                                     })
            ->UseManualTime()
            ->Iterations(9)
            ->Unit(benchmark::kMicrosecond);
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
