// Progress of the ranks of one process, and their help for each other.
#include "exec/local_ranks.h"

#include <algorithm>

#include "base/clock.h"
#include "base/cores.h"

namespace tessera {

LocalRanks::LocalRanks(ThreadsWorld& world, bool help)
    : world_(world), progress_(static_cast<std::size_t>(world.size())), open_(progress_.size()) {
  if (!help || world.size() == 1 || world.size() > usable_cores()) return;
  for (int rank = 0; rank < world.size(); ++rank)
    open_[static_cast<std::size_t>(rank)].on_open([&world, rank] { world.announce(rank); });
  world.set_help([this](int waiter, int member) { return this->help(waiter, member); });
}

void LocalRanks::begin_run() {
  for (Progress& p : progress_) {
    p.step.store(-1, std::memory_order_relaxed);
    p.helped.clear();
  }
}

double LocalRanks::help(int waiter, int member) {
  const int step = std::max(reached(member), 0);
  const double begin = now();
  if (!open_[static_cast<std::size_t>(member)].help()) return 0;
  const double end = now();
  progress_[static_cast<std::size_t>(waiter)].helped.push_back({member, step, begin, end});
  return end - begin;
}

}  // namespace tessera
