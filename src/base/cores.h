// Processors that this process may run on, and waiting on one.
#pragma once

namespace tessera {

// How many hardware threads the affinity mask (taskset, cpusets, Slurm) leaves, at least 1.
int usable_cores();

// Tells the core that the caller spins.
inline void pause_core() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

}  // namespace tessera
