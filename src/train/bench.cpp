// Whole training steps against the same contractions alone, on the same mesh, measured in turns.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>

#include "base/check.h"
#include "exec/bare_products.h"
#include "train/made_up_data.h"
#include "train/model_impl.h"
#include "train/step_programs.h"

namespace tessera {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

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

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class Bench {
 public:
  Bench(const Config& config, const BenchOptions& options)
      : options_(options),
        model_(config.data.train.files.empty() ? Model(config) : Model(config, make_tokenizer(config))),
        data_(config.data.train.files.empty() ? std::make_unique<MadeUpData>(model_.config())
                                              : open_split(model_, config.data.train)),
        programs_(model_, *data_, false) {}

  BenchReport run() {
    // All shapes are compiled, and their memory is touched, before anything is measured.
    std::vector<Alone> alone;
    for (std::size_t shape = 0; shape < data_->shapes().size(); ++shape) {
      std::vector<Product> products;
      double flops = 0;
      for (const int id : programs_.programs(shape)) {
        const Program& program = model_.session().program(id);
        const std::vector<Product> more = products_of(program);
        products.insert(products.end(), more.begin(), more.end());
        flops += stats(program).contraction_flops;
      }
      const int ranks = model_.session().mesh().ranks();
      const auto begin = std::chrono::steady_clock::now();
      alone.push_back({std::make_unique<BareProducts>(products, ranks), flops});
      measuring_seconds_ += seconds_since(begin);
    }
    for (std::int64_t i = 0; i < options_.warmup; ++i) step(i, alone[data_->batch(i).shape], nullptr);
    const std::int64_t before = resident_bytes();
    Times times;
    for (std::int64_t i = 0; i < options_.steps; ++i) {
      const std::int64_t at = options_.warmup + i;
      step(at, alone[data_->batch(at).shape], &times);
    }
    BenchReport report = summary(times);
    report.rss_growth_bytes = resident_bytes() - before;
    return report;
  }

 private:
  struct Alone {
    std::unique_ptr<BareProducts> products;
    double flops = 0;
  };
  struct Times {
    std::vector<double> steps, bare, inside, shares;
    double flops = 0, seconds = 0;
    std::int64_t tokens = 0;
  };

  void step(std::int64_t i, Alone& alone, Times* times) {
    const auto begin = std::chrono::steady_clock::now();
    const Batch batch = data_->batch(i);
    const Config& config = model_.config();
    const double rate =
        config.optimizer.schedule.at(static_cast<double>(i), static_cast<double>(config.train.steps));
    model_.session().reset_stats();
    const StepOutcome outcome = programs_.run(batch, rate, i);
    const double inside = model_.session().stats().contraction_seconds;
    const double seconds = seconds_since(begin);
    if (i == 0) {
      first_loss_ = outcome.loss_sum / outcome.weight;
      first_step_seconds_ = seconds_since(begin_) - measuring_seconds_;
    }
    const double bare = alone.products->run();
    if (options_.note)
      options_.note(
          fmt::format("step {}: {:.4f} s, {:.4f} s of them in contractions; these alone by oneDNN {:.4f} s",
                      i, seconds, inside, bare));
    if (times == nullptr) return;
    times->steps.push_back(seconds);
    times->bare.push_back(bare);
    times->inside.push_back(inside);
    times->shares.push_back(bare / seconds);
    times->flops += alone.flops;
    times->seconds += seconds;
    times->tokens += batch.tokens;
  }

  BenchReport summary(const Times& times) {
    BenchReport report;
    report.step_seconds = median(times.steps);
    report.contraction_seconds = median(times.bare);
    report.inside_contraction_seconds = median(times.inside);
    report.share = median(times.shares);
    report.contraction_flops = times.flops / static_cast<double>(std::max<std::int64_t>(1, options_.steps));
    report.tokens_per_second = times.seconds > 0 ? static_cast<double>(times.tokens) / times.seconds : 0;
    report.seconds = times.steps;
    report.first_loss = first_loss_;
    report.first_step_seconds = first_step_seconds_;
    report.peak_resident_bytes = peak_resident_bytes();
    report.arena_bytes = model_.session().arena_bytes_per_rank();
    for (std::size_t shape = 0; shape < data_->shapes().size(); ++shape) {
      const BatchShape& sizes = data_->shapes()[shape];
      report.shape += fmt::format("{}{} x {}+{}", shape == 0 ? "" : ", ", sizes.sentences,
                                  sizes.source_length, sizes.target_length);
      for (const int id : programs_.programs(shape))
        report.liveness_bound = std::max(report.liveness_bound, model_.session().plan(id).liveness_bound);
    }
    return report;
  }

  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double measuring_seconds_ = 0;  // spent on the bare products before the first step
  double first_loss_ = 0, first_step_seconds_ = 0;
  BenchOptions options_;
  Model model_;
  std::unique_ptr<Dataset> data_;
  StepPrograms programs_;
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
      "arena            {:.1f} MiB a rank, least possible {:.1f} MiB (ratio {:.3f})\n"
      "resident growth  {:.1f} MiB over the measured steps",
      r.shape, r.step_seconds, r.tokens_per_second, r.contraction_flops / 1e9, r.contraction_seconds,
      rate(r.contraction_seconds), r.inside_contraction_seconds, rate(r.inside_contraction_seconds),
      100 * r.share, static_cast<double>(r.arena_bytes) / kMiB, static_cast<double>(r.liveness_bound) / kMiB,
      static_cast<double>(r.arena_bytes) / static_cast<double>(r.liveness_bound),
      static_cast<double>(r.rss_growth_bytes) / kMiB);
}

}  // namespace tessera
