// tessera train, bench, profile.
#include "tessera/train.h"

#include <fmt/format.h>

#include <atomic>
#include <csignal>

#include "command.h"

namespace tessera::command {
namespace {

std::atomic<bool> stop_requested{false};

// The first signal asks for a checkpoint after the running step; a second one ends at once.
void on_signal(int number) {
  if (stop_requested.exchange(true)) {
    std::signal(number, SIG_DFL);
    std::raise(number);
  }
}

}  // namespace

int train(const Train& options) {
  Config config = options.common.config();
  if (!options.output.empty()) config.train.output = options.output;
  if (options.steps >= 0) config.train.steps = options.steps;
  if (options.fresh) config.train.resume = false;
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  std::signal(SIGUSR1, on_signal);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  TrainOptions train_options;
  train_options.command_line = options.command_line;
  train_options.report = terminal_report();
  train_options.stop = &stop_requested;
  train_options.trace = options.trace;
  train_options.name_nonfinite = options.name_nonfinite;
  Trainer trainer(config, train_options);
  return static_cast<int>(trainer.run().code);
}

int bench(const Bench& options) {
  BenchOptions bench_options;
  bench_options.steps = options.steps;
  bench_options.note = [](const std::string& text) { fmt::print(stderr, "{}\n", text); };
  Strings without;
  for (const std::string& name : options.without) {
    if (name != "all") without.push_back(name);
    for (const Pass& pass : passes())
      if (name == "all") without.emplace_back(pass.name);
  }
  if (!without.empty()) {
    const std::vector<PassReport> reports = bench_without(options.common.config(), without, bench_options);
    fmt::print("{}\n", options.json ? to_json(reports) : to_string(reports));
    return 0;
  }
  const BenchReport report = tessera::bench(options.common.config(), bench_options);
  fmt::print("{}\n", options.json ? to_json(report) : to_string(report));
  return 0;
}

int profile(const Profile& options) {
  ProfileOptions profile_options;
  profile_options.steps = options.steps;
  profile_options.trace = options.trace;
  profile_options.note = [](const std::string& text) { fmt::print(stderr, "{}\n", text); };
  fmt::print("{}", to_string(tessera::profile(options.common.config(), profile_options)));
  fmt::print("\nThe timeline of two steps is in {}; open it in ui.perfetto.dev.\n", options.trace);
  return 0;
}

}  // namespace tessera::command
