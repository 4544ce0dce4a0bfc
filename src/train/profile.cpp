// A training step explained: where its time goes, and how near each part comes to what the machine can do.
#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "exec/trace.h"
#include "train/floors.h"
#include "train/measured.h"

namespace tessera {
namespace {

constexpr std::size_t kClasses = 7, kSlowest = 10;

class Profiler {
 public:
  Profiler(const Config& config, const ProfileOptions& options)
      : options_(options), model_(config), floors_(model_.session().mesh().ranks()) {
    TESSERA_CHECK(options.steps > 0, "profile: {} steps show nothing; measure at least 1", options.steps);
    for (std::size_t shape = 0; shape < model_.shapes().size(); ++shape)
      for (const int id : model_.programs(shape))
        floors_.add(id, model_.session().program(id), model_.session().plan(id));
  }

  ProfileReport run() {
    for (; at_ < options_.warmup; ++at_) model_.step(at_);
    write_timeline();
    for (std::int64_t i = 0; i < options_.steps; ++i) measure();
    return report();
  }

 private:
  struct Traced {
    double seconds = 0;  // of the whole step, as the caller sees it
    std::size_t shape = 0;
    RunStats stats;
  };
  using StepId = std::pair<int, std::size_t>;  // program, step
  struct Spent {
    double seconds = 0, floor = 0;
  };

  void write_timeline() {
    if (options_.trace.empty()) return;
    model_.session().start_trace();
    for (const std::int64_t end = at_ + 2; at_ < end; ++at_) model_.step(at_);
    model_.session().stop_trace();
    model_.session().write_trace(options_.trace);
  }

  Traced traced_step() {
    model_.session().reset_stats();
    model_.session().start_trace();
    const MeasuredModel::Done done = model_.step(at_);
    model_.session().stop_trace();
    return {done.seconds, done.shape, model_.session().stats()};
  }

  // One batch with and without tracing (neither is always the second), and the floors.
  void measure() {
    const bool first = at_ % 2 == 0;
    if (first) traced_.push_back(traced_step());
    const double plain = model_.step(at_).seconds;
    if (!first) traced_.push_back(traced_step());
    ratios_.push_back(traced_.back().seconds / plain);
    floors_.measure();
    if (options_.note) options_.note(fmt::format("step {}: {:.4f} s", at_, plain));
    ++at_;
  }

  // Means of the steps whose time is in the middle half: they add up, and outliers do not count.
  std::vector<Traced> middle_half() const {
    std::vector<Traced> kept = traced_;
    std::sort(kept.begin(), kept.end(),
              [](const Traced& a, const Traced& b) { return a.seconds < b.seconds; });
    const auto cut = static_cast<std::ptrdiff_t>(kept.size() / 4);
    return {kept.begin() + cut, kept.end() - cut};
  }

  // What a training step spends in each step of its programs.
  std::map<StepId, Spent> spent(const std::vector<Traced>& kept) {
    const std::map<int, std::vector<double>> floors = floors_.seconds();
    const double share = 1 / static_cast<double>(kept.size());
    std::map<StepId, Spent> result;
    for (const Traced& traced : kept) {
      for (const auto& [id, seconds] : traced.stats.step_seconds)
        for (std::size_t s = 0; s < seconds.size(); ++s) result[{id, s}].seconds += share * seconds[s];
      for (const int id : model_.programs(traced.shape))
        for (std::size_t s = 0; s < floors.at(id).size(); ++s)
          result[{id, s}].floor += share * floors.at(id)[s];
    }
    return result;
  }

  ProfileReport report() {
    const std::vector<Traced> kept = middle_half();
    const std::map<StepId, Spent> steps = spent(kept);
    ProfileReport report;
    report.shape = model_.shapes_text();
    report.steps = static_cast<std::int64_t>(traced_.size());
    report.tracing_ratio = median(ratios_);
    report.flops_per_second = floors_.flops_per_second();
    report.bytes_per_second = floors_.bytes_per_second();
    add_classes(report, steps);
    ProfileLine waiting{.name = "waiting"}, host{.name = "host"}, other{.name = "other"};
    const double share = 1 / static_cast<double>(kept.size());
    for (const Traced& traced : kept) {
      const RunStats& stats = traced.stats;
      report.step_seconds += share * traced.seconds;
      waiting.seconds += share * (stats.wait_seconds + stats.idle_seconds);
      host.seconds += share * (traced.seconds - stats.seconds + stats.host_seconds);
      other.seconds += share * stats.other_seconds;
    }
    for (ProfileLine* line : {&waiting, &host, &other}) report.lines.push_back(*line);
    add_slowest(report, steps);
    return report;
  }

  void add_classes(ProfileReport& report, const std::map<StepId, Spent>& steps) {
    for (std::size_t c = 0; c < kClasses; ++c)
      report.lines.push_back({.name = to_string(static_cast<StepClass>(c)), .floor_seconds = 0});
    std::map<int, std::vector<StepClass>> classes;
    for (const auto& [id, spent] : steps) {
      std::vector<StepClass>& known = classes[id.first];
      if (known.empty()) known = step_classes(model_.session().program(id.first));
      ProfileLine& line = report.lines[static_cast<std::size_t>(known[id.second])];
      line.seconds += spent.seconds;
      line.floor_seconds += spent.floor;
    }
  }

  void add_slowest(ProfileReport& report, const std::map<StepId, Spent>& steps) {
    std::vector<std::pair<StepId, Spent>> sorted(steps.begin(), steps.end());
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
    sorted.resize(std::min(sorted.size(), kSlowest));
    for (const auto& [id, spent] : sorted) {
      const Program& program = model_.session().program(id.first);
      const Step& step = program.steps[id.second];
      report.slowest.push_back({.op = kind_of(step),
                                .name = step.name,
                                .where = to_string(step.where),
                                .line = to_string(step_classes(program)[id.second]),
                                .seconds = spent.seconds,
                                .floor_seconds = spent.floor});
    }
  }

  ProfileOptions options_;
  MeasuredModel model_;
  Floors floors_;
  std::int64_t at_ = 0;
  std::vector<Traced> traced_;
  std::vector<double> ratios_;
};

// Floor and ratio, two columns.
std::string floor_text(double seconds, double floor) {
  if (floor < 0) return fmt::format("{:>11}{:>8}", "-", "-");
  constexpr double kMost = 999;
  std::string ratio = "-";
  if (floor > 0) ratio = seconds > kMost * floor ? ">999" : fmt::format("{:.2f}", seconds / floor);
  return fmt::format("{:>11.3f}{:>8}", 1e3 * floor, ratio);
}

}  // namespace

ProfileReport profile(const Config& config, const ProfileOptions& options) {
  return Profiler(config, options).run();
}

std::string to_string(const ProfileReport& r) {
  std::string text = fmt::format(
      "batches   {} (sentences x source+target)\n"
      "step      {:.3f} ms: mean of the middle half of {} traced steps\n"
      "tracing   {:+.1f} % of a step's time, median of steps with and without it in turns\n"
      "machine   contractions alone {:.1f} Gflop/s a rank, copies {:.2f} GB/s a rank (read and written)\n\n"
      "{:<34}{:>11}{:>9}{:>11}{:>8}\n",
      r.shape, 1e3 * r.step_seconds, r.steps, 100 * (r.tracing_ratio - 1), r.flops_per_second / 1e9,
      r.bytes_per_second / 1e9, "mean over the ranks", "ms a step", "share", "floor ms", "ratio");
  double all = 0;
  for (const ProfileLine& line : r.lines) {
    text += fmt::format("{:<34}{:>11.3f}{:>7.1f} %{}\n", line.name, 1e3 * line.seconds,
                        100 * line.seconds / r.step_seconds, floor_text(line.seconds, line.floor_seconds));
    all += line.seconds;
  }
  text += fmt::format("{:<34}{:>11.3f}{:>7.1f} %\n\nThe steps that take most time:\n", "sum", 1e3 * all,
                      100 * all / r.step_seconds);
  text += fmt::format("{:>11}{:>11}{:>8}  {:<24}  {}\n", "ms a step", "floor ms", "ratio", "op", "step");
  for (const ProfiledStep& step : r.slowest)
    text += fmt::format("{:>11.3f}{}  {:<24}  {}{}\n", 1e3 * step.seconds,
                        floor_text(step.seconds, step.floor_seconds), step.op, step.name,
                        step.where.empty() ? "" : fmt::format(" ({})", step.where));
  return text;
}

}  // namespace tessera
