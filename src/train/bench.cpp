// Whole training steps against the same contractions alone, on the same mesh, measured in turns.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/check.h"
#include "base/clock.h"
#include "exec/bare_products.h"
#include "exec/copy_bandwidth.h"
#include "spmd/explain.h"
#include "train/measured.h"

namespace tessera {
namespace {

std::int64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  in >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

std::int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{1024} * usage.ru_maxrss;
}

class Bench {
 public:
  Bench(const Config& config, const BenchOptions& options)
      : options_(options), model_(config), copies_(model_.session().mesh().ranks()) {}

  BenchReport run() {
    std::vector<Alone> alone;
    const double begin = now();
    for (std::size_t shape = 0; shape < model_.shapes().size(); ++shape) alone.push_back(products(shape));
    measuring_seconds_ = now() - begin;
    for (std::int64_t i = 0; i < options_.warmup; ++i) step(i, alone, nullptr);
    const std::int64_t before = resident_bytes();
    Times times;
    for (std::int64_t i = 0; i < options_.steps; ++i) step(options_.warmup + i, alone, &times);
    BenchReport report = summary(times);
    report.rss_growth_bytes = resident_bytes() - before;
    return report;
  }

 private:
  struct Alone {
    std::unique_ptr<BareProducts> products;
    double flops = 0;
    double moved = 0;  // bytes of all ranks that the bound counts
  };
  struct Times {
    std::vector<double> steps, bare, inside, shares, over_bound;
    double flops = 0, seconds = 0;
    std::int64_t tokens = 0;
  };

  // The matrix products that the programs of a shape consist of.
  Alone products(std::size_t shape) {
    std::vector<Product> all;
    double flops = 0;
    for (const int id : model_.programs(shape)) {
      const Program& program = model_.session().program(id);
      const std::vector<Product> more = products_of(program);
      all.insert(all.end(), more.begin(), more.end());
      flops += stats(program).contraction_flops;
    }
    return {std::make_unique<BareProducts>(all, ranks()), flops, bytes_moved(shape)};
  }

  int ranks() { return model_.session().mesh().ranks(); }

  double bytes_moved(std::size_t shape) {
    constexpr double kUpdate = 24, kTwice = 2;
    double weights = 0, activations = 0;
    for (const int id : model_.programs(shape)) {
      const MemoryByClass memory = memory_by_class(model_.session().program(id), model_.session().plan(id));
      const auto bytes = [&](MemoryClass c) {
        return static_cast<double>(memory[static_cast<std::size_t>(c)].process);
      };
      weights = std::max(weights, bytes(MemoryClass::Parameters));
      activations = std::max(activations, bytes(MemoryClass::Activations));
    }
    return kUpdate * weights / sizeof(float) + kTwice * (activations + weights);
  }

  void step(std::int64_t i, std::vector<Alone>& alone, Times* times) {
    model_.session().reset_stats();
    const MeasuredModel::Done done = model_.step(i);
    const double inside = model_.session().stats().contraction_seconds;
    if (i == 0) {
      first_loss_ = done.loss;
      first_step_seconds_ = now() - begin_ - measuring_seconds_;
    }
    const double bare = alone[done.shape].products->run();
    const double copies = alone[done.shape].moved / (ranks() * copies_.run());
    if (options_.note)
      options_.note(
          fmt::format("step {}: {:.4f} s, {:.4f} s of them in contractions; these alone by oneDNN {:.4f} s",
                      i, done.seconds, inside, bare));
    if (times == nullptr) return;
    times->steps.push_back(done.seconds);
    times->bare.push_back(bare);
    times->inside.push_back(inside);
    times->shares.push_back(bare / done.seconds);
    times->over_bound.push_back(done.seconds / (bare + copies));
    times->flops += alone[done.shape].flops;
    times->seconds += done.seconds;
    times->tokens += done.tokens;
  }

  BenchReport summary(const Times& times) {
    BenchReport report;
    report.step_seconds = median(times.steps);
    report.contraction_seconds = median(times.bare);
    report.inside_contraction_seconds = median(times.inside);
    report.share = median(times.shares);
    report.over_bound = median(times.over_bound);
    report.contraction_flops = times.flops / static_cast<double>(std::max<std::int64_t>(1, options_.steps));
    report.tokens_per_second = times.seconds > 0 ? static_cast<double>(times.tokens) / times.seconds : 0;
    report.seconds = times.steps;
    report.first_loss = first_loss_;
    report.first_step_seconds = first_step_seconds_;
    report.peak_resident_bytes = peak_resident_bytes();
    report.arena_bytes = model_.session().arena_bytes_per_rank();
    report.shape = model_.shapes_text();
    for (std::size_t shape = 0; shape < model_.shapes().size(); ++shape) {
      for (const int id : model_.programs(shape))
        report.liveness_bound = std::max(report.liveness_bound, model_.session().plan(id).liveness_bound);
    }
    return report;
  }

  double begin_ = now();
  double measuring_seconds_ = 0;  // spent on the bare products before the first step
  double first_loss_ = 0, first_step_seconds_ = 0;
  BenchOptions options_;
  MeasuredModel model_;
  CopyBandwidth copies_;
};

}  // namespace

BenchReport bench(const Config& config, const BenchOptions& options) {
  return Bench(config, options).run();
}

std::string to_string(const BenchReport& r) {
  constexpr double kMiB = 1 << 20;
  const auto rate = [&](double seconds) { return seconds > 0 ? r.contraction_flops / seconds / 1e9 : 0; };
  return fmt::format(
      "batches          {} (sentences x source+target)\n"
      "step             {:.4f} s (median), {:.0f} tokens/s\n"
      "contractions     {:.3f} Gflop a rank and step; alone by oneDNN {:.4f} s ({:.1f} Gflop/s a rank), in "
      "the step {:.4f} s ({:.1f} Gflop/s)\n"
      "share            {:.1f} % of the step's time is what its contractions take alone (oneDNN)\n"
      "bound            {:.3f} times the least: those contractions and the bytes that a step must move\n"
      "arena            {:.1f} MiB a rank, least possible {:.1f} MiB (ratio {:.3f})\n"
      "resident growth  {:.1f} MiB over the measured steps",
      r.shape, r.step_seconds, r.tokens_per_second, r.contraction_flops / 1e9, r.contraction_seconds,
      rate(r.contraction_seconds), r.inside_contraction_seconds, rate(r.inside_contraction_seconds),
      100 * r.share, r.over_bound, static_cast<double>(r.arena_bytes) / kMiB,
      static_cast<double>(r.liveness_bound) / kMiB,
      static_cast<double>(r.arena_bytes) / static_cast<double>(r.liveness_bound),
      static_cast<double>(r.rss_growth_bytes) / kMiB);
}

}  // namespace tessera
