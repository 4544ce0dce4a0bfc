#include "spmd/steps.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "spmd/pieces.h"

namespace tessera {

std::string origin(const std::string& name, const std::string& where) {
  return where.empty() ? name : fmt::format("{} ({})", name, where);
}

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

Move move_of(const Program& program, const Step& step, std::size_t i) {
  if (step.collective.parts.empty()) return step.collective.move;
  return identity_move(program.values[static_cast<std::size_t>(step.in[i])].type.shape);
}

Dependencies dependencies(const Program& program) {
  struct Accesses {
    std::vector<std::size_t> writers, readers;
  };
  std::vector<Accesses> accesses(program.values.size());
  const auto of = [&](int id) -> Accesses& {
    return accesses[static_cast<std::size_t>(base_of(program, id))];
  };
  Dependencies result;
  result.needs.resize(program.steps.size());
  result.followers.resize(program.steps.size());
  for (std::size_t s = 0; s < program.steps.size(); ++s) {
    std::set<std::size_t> needed;
    for (const int id : program.steps[s].in) {
      Accesses& a = of(id);
      needed.insert(a.writers.begin(), a.writers.end());
      a.readers.push_back(s);
    }
    for (const int id : program.steps[s].out) {
      Accesses& a = of(id);
      needed.insert(a.writers.begin(), a.writers.end());
      needed.insert(a.readers.begin(), a.readers.end());
      a = {{s}, {}};
    }
    needed.erase(s);
    for (const std::size_t n : needed) result.followers[n].push_back(s);
    result.needs[s].assign(needed.begin(), needed.end());
  }
  return result;
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
