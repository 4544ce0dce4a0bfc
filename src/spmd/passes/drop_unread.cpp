// Leaves out steps whose results nobody reads: lowering found a better way after it had emitted them.
#include "spmd/passes.h"

namespace tessera {

void drop_unread(Program& program) {
  const auto base_of = [&](int id) {
    while (program.values[static_cast<std::size_t>(id)].view_of >= 0)
      id = program.values[static_cast<std::size_t>(id)].view_of;
    return static_cast<std::size_t>(id);
  };
  std::vector<char> read(program.values.size(), 0), kept(program.steps.size(), 0);
  for (int id : program.fetches) read[base_of(id)] = 1;
  for (std::size_t s = program.steps.size(); s-- > 0;) {
    const Step& step = program.steps[s];
    bool needed = step.kind == Step::Kind::Assign;
    for (int id : step.out) needed = needed || read[base_of(id)] != 0;
    if (!needed) continue;
    kept[s] = 1;
    for (int id : step.in) read[base_of(id)] = 1;
  }
  std::vector<Step> steps;
  std::vector<int> moved_to(program.steps.size(), -1);
  for (std::size_t s = 0; s < program.steps.size(); ++s) {
    if (kept[s] == 0) continue;
    moved_to[s] = static_cast<int>(steps.size());
    steps.push_back(std::move(program.steps[s]));
    if (steps.back().start >= 0) steps.back().start = moved_to[static_cast<std::size_t>(steps.back().start)];
  }
  program.steps = std::move(steps);
}

}  // namespace tessera
