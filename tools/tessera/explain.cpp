// tessera explain: the program of one training step for a mesh and layout; nothing is allocated or run.
#include "tessera/explain.h"

#include <fmt/format.h>

#include "command.h"
#include "tessera/train.h"

namespace tessera::command {

int explain(const Explain& options) {
  Config config = options.common.config();
  LoweredStep step = lower_training_step(config);
  if (options.json) {
    fmt::print("{}\n", explain_json(step.program, step.plan));
    return 0;
  }
  if (options.program) fmt::print("{}\n", to_string(step.program));
  fmt::print("training step of {} sequences, {} parameters\n", step.shape.sentences, step.parameters.total());
  fmt::print("{}\n", tessera::explain(step.program, step.plan));
  return 0;
}

}  // namespace tessera::command
