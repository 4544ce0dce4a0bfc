// tessera train, bench.
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
  const BenchReport report = tessera::bench(options.common.config(), bench_options);
  fmt::print("{}\n", options.json ? to_json(report) : to_string(report));
  return 0;
}

}  // namespace tessera::command
