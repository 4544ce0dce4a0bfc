// Processors that this process may run on.
#pragma once

namespace tessera {

// How many cores the affinity mask (taskset, cpusets, Slurm) leaves, at least 1. Where a rank has as many
// threads as cores divided by ranks, no core does double work.
int usable_cores();

}  // namespace tessera
