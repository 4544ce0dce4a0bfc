#include "spmd/steps.h"

#include <utility>

namespace tessera {

int base_of(const Program& program, int id) {
  while (program.values[static_cast<std::size_t>(id)].view_of >= 0)
    id = program.values[static_cast<std::size_t>(id)].view_of;
  return id;
}

Box contract_box(const Program& program, const Step& step, std::size_t i, int member, int reader) {
  const auto box = [&](int id, int rank) {
    const ProgramValue& value = program.values[static_cast<std::size_t>(id)];
    return box_of(program.mesh, value.type.shape, value.placement, rank);
  };
  const Shape &in = step.call.in[i].shape, &out = step.call.out[0].shape;
  const Box mine = box(step.out[0], reader);
  Box taken = box(step.in[i], member);
  for (std::size_t d = 0; d < in.count(); ++d) {
    const int o = out.find(in[d].name);
    if (o < 0) continue;
    taken.start[d] = mine.start[static_cast<std::size_t>(o)];
    taken.size[d] = mine.size[static_cast<std::size_t>(o)];
  }
  return taken;
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
