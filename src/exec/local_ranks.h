// What ranks of one process share besides collectives: how far each of them is in the program, and the work
// that it does there. A rank that wants to overwrite a variable's buffer that others read too waits until
// they have passed their last read; one that waits for another does parts of that one's work meanwhile.
#pragma once

#include <atomic>
#include <span>
#include <vector>

#include "comm/threads.h"
#include "exec/team.h"

namespace tessera {

// What a rank did for another one while it waited.
struct Help {
  int rank = 0, step = 0;  // whose work, and where that rank was
  double begin = 0, end = 0;
};

class LocalRanks {
 public:
  // Ranks help each other if `help` says so and each can have a core of its own.
  LocalRanks(ThreadsWorld& world, bool help);

  void begin_run();  // no rank inside

  std::span<OpenWork> open() { return open_; }  // by rank
  // By the rank in this run. To be read by the rank's thread, or when no rank is inside.
  const std::vector<Help>& helped(int rank) const { return progress_[static_cast<std::size_t>(rank)].helped; }

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
    std::vector<Help> helped;
  };
  double help(int waiter, int member);

  ThreadsWorld& world_;
  std::vector<Progress> progress_;
  std::vector<OpenWork> open_;
};

}  // namespace tessera
