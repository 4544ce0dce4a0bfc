// The passes that can be left out, by name.
#include <algorithm>

#include "base/check.h"
#include "tessera/program.h"

namespace tessera {

const std::vector<Pass>& passes() {
  static const std::vector<Pass> list{
      {"delay", "pending sums flow through linear ops and are reduced once, later"},
      {"reduce_scatter", "a sum that is needed in parts is reduced in parts"},
      {"split_output",
       "parts of a sum over ranks are made from all their inputs where that is cheaper than reducing"},
      {"joint",
       "ranks that hold parts of a row compute it together in one kernel, a block of rows at a time"},
      {"fuse", "component-wise steps, and sums of what they make, share one loop"},
      {"early_update", "a parameter is updated as soon as its gradient is there"},
      {"buckets", "small reductions over the same ranks share one collective where that is cheaper"},
      {"overlap", "collectives start early and are waited for late, where that hides them"},
      {"copies",
       "parameters that are read in bf16 are kept in bf16, too, and cast once, where they are updated"},
      {"own_rows", "replicas in one process update rows of their own, and gradients are reduced only there"},
      {"help",
       "a rank that waits for another one of its process does parts of that one's products meanwhile"},
      {"in_place", "results take over the memory of inputs that end there"},
      {"views", "renames and reshapes of whole values copy nothing"},
  };
  return list;
}

void check_passes(const std::set<std::string>& names) {
  std::vector<std::string> known;
  for (const Pass& pass : passes()) known.emplace_back(pass.name);
  for (const std::string& name : names) {
    const std::string near = nearest_name(name, known);
    TESSERA_CHECK(std::find(known.begin(), known.end(), name) != known.end(),
                  "there is no pass '{}'{} (passes that can be left out: {})", name,
                  near.empty() ? std::string() : fmt::format("; did you mean '{}'?", near),
                  fmt::join(known, ", "));
  }
}

}  // namespace tessera
