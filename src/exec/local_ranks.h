// What ranks of one process share besides collectives: how far each of them is in the program. A rank that
// wants to overwrite a variable's buffer that others read too waits until they have passed their last read.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "comm/threads.h"

namespace tessera {

class LocalRanks {
 public:
  explicit LocalRanks(ThreadsWorld& world)
      : world_(world), progress_(static_cast<std::size_t>(world.size())) {}

  void begin_run();  // no rank inside

  // All steps before `step` are done.
  void reach(int rank, int step) {
    progress_[static_cast<std::size_t>(rank)].step.store(step, std::memory_order_release);
  }

  // Where the rank was last seen; what it wrote in the steps before can be read.
  int reached(int rank) const {
    return progress_[static_cast<std::size_t>(rank)].step.load(std::memory_order_acquire);
  }

  // Returns when `member` has reached `step`. Throws SystemError like a collective's wait. Adds the time to
  // `seconds`.
  void await(int rank, int member, int step, const std::string& what, double& seconds);

  void fail(int rank) { world_.fail(rank, std::current_exception()); }

 private:
  struct alignas(64) Progress {
    std::atomic<int> step{-1};
  };
  ThreadsWorld& world_;
  std::vector<Progress> progress_;
};

}  // namespace tessera
