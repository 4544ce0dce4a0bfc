// What each pass brings: steps of two sessions, one without the pass, in turns.
#include "base/check.h"
#include "train/measured.h"

namespace tessera {
namespace {

struct Measured {
  std::vector<double> seconds;
  double collectives = 0, bytes = 0;

  void step(MeasuredModel& model, std::int64_t i, bool counts) {
    model.session().reset_stats();
    const double taken = model.step(i).seconds;
    if (!counts) return;
    seconds.push_back(taken);
    collectives += static_cast<double>(model.session().stats().collectives);
    bytes += static_cast<double>(model.session().stats().collective_bytes);
  }

  PassReport report(const std::string& pass, MeasuredModel& model) const {
    const double steps = static_cast<double>(seconds.size());
    return {.pass = pass,
            .step_seconds = median(seconds),
            .arena_bytes = model.session().arena_bytes_per_rank(),
            .collectives = collectives / steps,
            .collective_bytes = bytes / steps};
  }
};

}  // namespace

std::vector<PassReport> bench_without(const Config& config, const Strings& left_out,
                                      const BenchOptions& options) {
  check_passes({left_out.begin(), left_out.end()});
  TESSERA_CHECK(options.steps > 0, "bench: {} steps say nothing about a pass; measure at least 1",
                options.steps);
  MeasuredModel whole(config);
  std::vector<PassReport> reports;
  for (const std::string& pass : left_out) {
    SessionOptions session;
    session.lower.without = {pass};
    MeasuredModel lacking(config, session);
    Measured with, without;
    for (std::int64_t i = 0; i < options.warmup + options.steps; ++i) {
      const bool counts = i >= options.warmup;
      if (i % 2 == 0) with.step(whole, i, counts);  // neither is always the second
      without.step(lacking, i, counts);
      if (i % 2 != 0) with.step(whole, i, counts);
    }
    if (reports.empty()) reports.push_back(with.report("", whole));
    reports.push_back(without.report(pass, lacking));
    std::vector<double> ratios;
    for (std::size_t s = 0; s < with.seconds.size(); ++s)
      ratios.push_back(without.seconds[s] / with.seconds[s]);
    reports.back().ratio = median(ratios);
    if (options.note) options.note(fmt::format("without {}: {:.3f} of the time", pass, reports.back().ratio));
  }
  return reports;
}

std::string to_string(const std::vector<PassReport>& reports) {
  constexpr double kMiB = 1 << 20;
  std::string text = fmt::format("{:<16}{:>10}{:>8}{:>12}{:>8}{:>13}{:>11}\n", "without", "ms a step",
                                 "ratio", "arena MiB", "ratio", "collectives", "MiB");
  for (const PassReport& r : reports) {
    text += fmt::format("{:<16}{:>10.2f}{:>8.3f}{:>12.2f}{:>8.3f}{:>13.4g}{:>11.2f}\n",
                        r.pass.empty() ? "nothing" : r.pass, 1e3 * r.step_seconds, r.ratio,
                        static_cast<double>(r.arena_bytes) / kMiB,
                        static_cast<double>(r.arena_bytes) / static_cast<double>(reports[0].arena_bytes),
                        r.collectives, r.collective_bytes / kMiB);
  }
  return text +
         "Times: medians; ratio: of steps in turns in one run, median. Arena, collectives and their "
         "payload:\n"
         "of a rank, a step's.";
}

}  // namespace tessera
