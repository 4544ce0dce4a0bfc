// Communication under computation, on a link that is made of waiting and carries all of a step's collectives
// in half the time of its work: a step with and without the overlap pass over one without any link
// (`over_work`). The three take turns. And steps with and without buckets, on a link whose collectives cost
// 0.2 ms each, of layers so small that this is most of their time.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>

#include "base/median.h"
#include "support/deep_mlp.h"

namespace tessera::benchmarks {
namespace {

struct Variant {
  explicit Variant(const testing::DeepMlp& model, const char* layout, SessionOptions options)
      : session(model.graph, Mesh::parse("data:2"), Layout::parse(layout), std::move(options)),
        program(session.compile(model.targets)) {}

  double step(const FeedMap& feeds) {
    session.reset_stats();
    session.run(program, feeds);
    return session.stats().seconds;
  }

  Session session;
  int program;
};

void overlap(benchmark::State& state, const char* layout) {
  const testing::DeepMlp model(16, 512, 512);
  const FeedMap feeds = model.feeds();
  SessionOptions options;
  Variant plain(model, layout, options);
  std::vector<double> work, ratios_with, ratios_without;
  for (int i = 0; i < 20; ++i) work.push_back(plain.step(feeds));
  const double bytes = static_cast<double>(plain.session.stats().collective_bytes);
  options.link_bytes_per_second = bytes / (0.5 * median(work));
  Variant with(model, layout, options);
  options.lower.without = {"overlap"};
  Variant without(model, layout, options);
  for (auto _ : state) {
    const double alone = plain.step(feeds);
    ratios_with.push_back(with.step(feeds) / alone);
    ratios_without.push_back(without.step(feeds) / alone);
  }
  state.counters["over_work"] = median(ratios_with);
  state.counters["over_work_without"] = median(ratios_without);
}

void buckets(benchmark::State& state, std::int64_t width) {
  const testing::DeepMlp model(24, 16, width);
  const FeedMap feeds = model.feeds();
  SessionOptions options;
  Variant plain(model, "batch:data", options);
  options.link_latency_seconds = 2e-4;
  Variant with(model, "batch:data", options);
  options.lower.without = {"buckets"};
  Variant without(model, "batch:data", options);
  std::vector<double> alone, milliseconds_with, milliseconds_without;
  for (auto _ : state) {
    alone.push_back(1e3 * plain.step(feeds));
    milliseconds_with.push_back(1e3 * with.step(feeds));
    milliseconds_without.push_back(1e3 * without.step(feeds));
  }
  state.counters["work_ms"] = median(alone);
  state.counters["ms"] = median(milliseconds_with);
  state.counters["ms_without"] = median(milliseconds_without);
  const auto collectives = [](const Variant& v) {
    return static_cast<double>(v.session.stats().collectives);
  };
  state.counters["collectives"] = collectives(with);
  state.counters["collectives_without"] = collectives(without);
}

BENCHMARK_CAPTURE(overlap, data, "batch:data")->Iterations(40)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(overlap, params_split, "batch:data;params.*:data;slots.*:data")
    ->Iterations(40)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(buckets, width_32, 32)->Iterations(40)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(buckets, width_256, 256)->Iterations(40)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tessera::benchmarks

BENCHMARK_MAIN();
