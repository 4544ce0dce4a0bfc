// What ranks of one process share besides collectives: how far each of them is in the program. A rank that
// wants to overwrite a variable's buffer that others read too waits until they have passed their last read.
#pragma once

#include <atomic>
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
  // The same at a step that others await: wakes them.
  void announce(int rank, int step) {
    reach(rank, step);
    world_.announce(rank);
  }

  // Where the rank was last seen; what it wrote in the steps before can be read.
  int reached(int rank) const {
    return progress_[static_cast<std::size_t>(rank)].step.load(std::memory_order_acquire);
  }

  // Waits until `member` has reached `step`, which it must announce; `what()` is the name of the wait, for
  // messages. Throws SystemError like a collective's wait. Returns the seconds it took.
  template <class What>
  double await(int rank, int member, int step, What what) {
    return world_.await(
        rank, member, [&] { return reached(member) >= step; },
        [&](bool overdue) { world_.check_member(rank, member, overdue, what()); });
  }

 private:
  struct alignas(64) Progress {
    std::atomic<int> step{-1};
  };
  ThreadsWorld& world_;
  std::vector<Progress> progress_;
};

}  // namespace tessera
