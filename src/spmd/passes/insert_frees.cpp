// Marks the last use of every temporary value, views counted as uses of what they view.
#include <algorithm>

#include "spmd/passes.h"
#include "spmd/steps.h"

namespace tessera {

void insert_frees(Program& program) {
  const auto base = [&](int id) { return static_cast<std::size_t>(base_of(program, id)); };
  std::vector<int> last_use(program.values.size(), -1);
  for (std::size_t s = 0; s < program.steps.size(); ++s) {
    const Step& step = program.steps[s];
    for (int id : step.in) last_use[base(id)] = static_cast<int>(s);
    for (int id : step.out) {
      int& last = last_use[base(id)];
      last = std::max(last, static_cast<int>(s));
    }
  }
  for (int id : program.fetches) last_use[base(id)] = -1;
  std::vector<std::vector<int>> ends(program.steps.size());
  for (std::size_t v = 0; v < last_use.size(); ++v) {
    if (last_use[v] >= 0 && program.values[v].kind == ProgramValue::Kind::Temp) {
      ends[static_cast<std::size_t>(last_use[v])].push_back(static_cast<int>(v));
    }
  }
  std::vector<Step> steps;
  std::vector<int> moved_to(program.steps.size());
  for (std::size_t s = 0; s < program.steps.size(); ++s) {
    moved_to[s] = static_cast<int>(steps.size());
    steps.push_back(std::move(program.steps[s]));
    if (steps.back().start >= 0) steps.back().start = moved_to[static_cast<std::size_t>(steps.back().start)];
    for (int id : ends[s]) {
      Step free;
      free.kind = Step::Kind::Free;
      free.in = {id};
      free.region = steps.back().region;
      steps.push_back(std::move(free));
    }
  }
  program.steps = std::move(steps);
}

}  // namespace tessera
