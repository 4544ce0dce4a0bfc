// Which hardware thread each thread of each rank runs on. The only file that knows hwloc is topology.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace tessera {

// The cores of a machine that this process may use, and what they share: packages, memories, caches.
class Topology {
 public:
  // This machine, as far as the calling thread's affinity mask (taskset, cpusets, Slurm) allows.
  static Topology machine();
  // A machine in hwloc's words, "package:2 core:4 pu:2", of which only `processors` may be used (all when
  // empty).
  static Topology synthetic(const std::string& description, const std::vector<int>& processors = {});

  int cores() const { return static_cast<int>(cores_.size()); }

  // Processors (numbers of hardware threads) by rank and thread; empty when there are more threads than
  // processors. Cores get a second thread only when all have one. The ranks are spread over the parts of the
  // machine, at every level; the threads of a rank are neighbours inside a part wherever they fit one.
  std::vector<std::vector<int>> place(int ranks, int threads) const;

 private:
  class Reader;
  class Placer;
  // Cores [first, last) that share something, and the parts of it that share more.
  struct Domain {
    int first = 0, last = 0;
    std::vector<Domain> parts;  // none: a core
  };

  std::vector<std::vector<int>> cores_;  // their processors
  Domain all_;
};

// The threads of a pool of ranks.
struct PoolPlan {
  int threads = 1;                           // of each rank
  std::vector<std::vector<int>> processors;  // by rank and thread; empty: the system puts them where it likes
};

// Shares the cores out among `ranks`. Threads are pinned when every one can have a processor of its own,
// unless `pin` is false or the environment says TESSERA_PIN=off. Throws UserError when that is neither on nor
// off.
PoolPlan plan_pool(int ranks, bool pin);

// Moves the calling thread to a processor; where the system refuses, it stays as it is.
void pin_this_thread(int processor);

}  // namespace tessera
