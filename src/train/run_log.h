// Metrics of a run: TensorBoard event files and metrics.jsonl.
#pragma once

#include <memory>

#include "tessera/event_log.h"
#include "train/run_state.h"

namespace tessera {

class RunLog {
 public:
  explicit RunLog(const RunFolder& run) : events_(run.events()), metrics_(run.metrics()) {}

  void config(const Config& config) { events_.text(0, "config", "```toml\n" + to_toml(config) + "```"); }
  void step(const TrainEvent& event, double epoch);
  void evaluation(const TrainEvent& event);

 private:
  void write(std::int64_t step, const NamedValues& values);

  EventFile events_;
  MetricsFile metrics_;
};

}  // namespace tessera
