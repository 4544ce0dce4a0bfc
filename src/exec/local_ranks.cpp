// Progress of the ranks of one process.
#include "exec/local_ranks.h"

#include <chrono>
#include <thread>

#include "exec/clock.h"

namespace tessera {

void LocalRanks::begin_run() {
  for (Progress& p : progress_) p.step.store(-1, std::memory_order_relaxed);
}

void LocalRanks::await(int rank, int member, int step, const std::string& what, double& seconds) {
  const std::atomic<int>& progress = progress_[static_cast<std::size_t>(member)].step;
  if (progress.load(std::memory_order_acquire) >= step) return;
  const double begin = now();
  world_.set_waiting(rank, member);
  for (int tries = 0; progress.load(std::memory_order_acquire) < step; ++tries) {
    if (tries < 100) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(tries < 1000 ? 20 : 500));
    if (progress.load(std::memory_order_acquire) >= step) break;
    world_.check_member(rank, member, now() - begin > world_.deadline_seconds(), what);
  }
  world_.set_waiting(rank, -1);
  seconds += now() - begin;
}

}  // namespace tessera
