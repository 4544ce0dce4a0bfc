// Progress of the ranks of one process.
#include "exec/local_ranks.h"

namespace tessera {

void LocalRanks::begin_run() {
  for (Progress& p : progress_) p.step.store(-1, std::memory_order_relaxed);
}

}  // namespace tessera
