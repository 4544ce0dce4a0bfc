// The threads of the local ranks: one per rank, for as long as the session lives.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "exec/team.h"
#include "exec/topology.h"

namespace tessera {

class RankPool {
 public:
  // Each rank has a team of plan.threads, itself one of them. `open`: where each team shows its work to other
  // ranks (empty: nowhere); as long-lived as what jobs capture.
  RankPool(int ranks, PoolPlan plan, std::span<OpenWork> open = {});
  // Joins the threads, except those that are still inside an abandoned job.
  ~RankPool();
  RankPool(const RankPool&) = delete;
  RankPool& operator=(const RankPool&) = delete;

  int ranks() const;
  int threads() const;

  using Job = std::function<void(int rank)>;  // must not throw
  // Runs the job on every rank's thread. While it runs, calls `watch` now and then with the ranks that are
  // not done; when that returns false the job is abandoned. Returns the ranks that were not done. A pool with
  // an abandoned job takes no more. Abandoned threads keep what the job's captures own: capture shared
  // pointers, not references to the caller's stack.
  std::vector<int> run(Job job, const std::function<bool(const std::vector<int>& running)>& watch);

  // Runs the job on every rank's thread at the same time, to its end, and rethrows the first exception.
  void run_all(const std::function<void(int rank)>& job);

  // Runs the job on one rank after the other (each on its own thread), and rethrows the first exception.
  void run_in_turn(const std::function<void(int rank)>& job);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace tessera
