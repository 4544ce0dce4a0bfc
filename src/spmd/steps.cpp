#include "spmd/steps.h"

#include <utility>

namespace tessera {

int base_of(const Program& program, int id) {
  while (program.values[static_cast<std::size_t>(id)].view_of >= 0)
    id = program.values[static_cast<std::size_t>(id)].view_of;
  return id;
}

void arrange(Program& program, const std::vector<std::size_t>& order) {
  std::vector<int> moved_to(program.steps.size(), -1);
  std::vector<Step> steps;
  for (const std::size_t s : order) {
    moved_to[s] = static_cast<int>(steps.size());
    steps.push_back(std::move(program.steps[s]));
    if (steps.back().start >= 0) steps.back().start = moved_to[static_cast<std::size_t>(steps.back().start)];
  }
  program.steps = std::move(steps);
}

}  // namespace tessera
