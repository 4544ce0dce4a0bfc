// The code of steps that become one loop.
#pragma once

#include <set>
#include <vector>

#include "tessera/program.h"

namespace tessera {

// One Fused step that does what the component-wise steps `members` do, in this order, and the reductions
// `sums` of what they make. It stands for the last member and writes those of their results that are among
// `kept` (base values), then the sums.
Step fused_step(const Program& program, const std::vector<int>& members, const std::vector<int>& sums,
                const std::set<int>& kept);

}  // namespace tessera
