// What goes into the logs of a run.
#include "train/run_log.h"

namespace tessera {

void RunLog::write(std::int64_t step, const NamedValues& values) {
  events_.scalars(step, values);
  metrics_.write(step, values);
}

void RunLog::step(const TrainEvent& event, double epoch) {
  write(event.step, {{"train/loss", event.loss},
                     {"train/gradient_norm", event.gradient_norm},
                     {"train/learning_rate", event.learning_rate},
                     {"train/tokens", static_cast<double>(event.tokens)},
                     {"train/epoch", epoch},
                     {"speed/tokens_per_second", event.tokens_per_second},
                     {"speed/step_seconds", event.seconds}});
}

void RunLog::evaluation(const TrainEvent& event) {
  const Perplexity& p = event.evaluation.perplexity;
  write(event.step, {{"dev/loss", event.evaluation.loss()},
                     {"dev/accuracy", event.evaluation.accuracy},
                     {"dev/perplexity_per_token", p.per_token()},
                     {"dev/perplexity_per_word", p.per_word()},
                     {"dev/bits_per_byte", p.bits_per_byte()},
                     {"dev/seconds", event.evaluation.seconds}});
}

}  // namespace tessera
