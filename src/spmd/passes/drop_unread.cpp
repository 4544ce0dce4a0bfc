// Leaves out steps whose results nobody reads: lowering found a better way after it had emitted them.
#include <algorithm>

#include "spmd/passes.h"
#include "spmd/steps.h"

namespace tessera {

void drop_unread(Program& program) {
  const auto base = [&](int id) { return static_cast<std::size_t>(base_of(program, id)); };
  std::vector<char> read(program.values.size(), 0);
  std::vector<std::size_t> kept;
  for (int id : program.fetches) read[base(id)] = 1;
  for (std::size_t s = program.steps.size(); s-- > 0;) {
    const Step& step = program.steps[s];
    bool needed = step.kind == Step::Kind::Assign;
    for (int id : step.out) needed = needed || read[base(id)] != 0;
    if (!needed) continue;
    kept.push_back(s);
    for (int id : step.in) read[base(id)] = 1;
  }
  std::reverse(kept.begin(), kept.end());
  arrange(program, kept);
}

}  // namespace tessera
