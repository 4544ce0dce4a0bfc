// Persistent rank threads.
#include "exec/rank_pool.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"

namespace tessera {

struct RankPool::Shared {
  std::mutex mutex;
  std::condition_variable work, done;
  Job job;
  std::uint64_t generation = 0;
  std::vector<char> running;
  int left = 0;
  bool stop = false, abandoned = false;
  PoolPlan plan;
  std::span<OpenWork> open;
  std::vector<std::thread> workers;
};

namespace {

template <class Shared>
void work(const std::shared_ptr<Shared>& shared, int rank) {
  const PoolPlan& plan = shared->plan;
  const std::vector<int> processors =
      plan.processors.empty() ? std::vector<int>() : plan.processors[static_cast<std::size_t>(rank)];
  if (!processors.empty()) pin_this_thread(processors[0]);
  Team team(plan.threads, processors,
            shared->open.empty() ? nullptr : &shared->open[static_cast<std::size_t>(rank)]);
  const Team::Use use(team);
  std::uint64_t seen = 0;
  while (true) {
    RankPool::Job job;
    {
      std::unique_lock<std::mutex> lock(shared->mutex);
      shared->work.wait(lock, [&] { return shared->stop || shared->generation != seen; });
      if (shared->stop) return;
      seen = shared->generation;
      job = shared->job;
    }
    job(rank);
    job = nullptr;
    std::lock_guard<std::mutex> lock(shared->mutex);
    shared->running[static_cast<std::size_t>(rank)] = 0;
    if (--shared->left == 0) shared->done.notify_all();
  }
}

}  // namespace

RankPool::RankPool(int ranks, PoolPlan plan, std::span<OpenWork> open) : shared_(std::make_shared<Shared>()) {
  shared_->plan = std::move(plan);
  shared_->open = open;
  shared_->running.assign(static_cast<std::size_t>(ranks), 0);
  for (int r = 0; r < ranks; ++r) shared_->workers.emplace_back([shared = shared_, r] { work(shared, r); });
}

RankPool::~RankPool() {
  {
    std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->stop = true;
  }
  shared_->work.notify_all();
  for (std::size_t r = 0; r < shared_->workers.size(); ++r) {
    bool stuck = false;
    {
      std::lock_guard<std::mutex> lock(shared_->mutex);
      stuck = shared_->running[r] != 0;
    }
    if (stuck) {
      shared_->workers[r].detach();
    } else {
      shared_->workers[r].join();
    }
  }
}

int RankPool::ranks() const {
  return static_cast<int>(shared_->running.size());
}

int RankPool::threads() const {
  return shared_->plan.threads;
}

std::vector<int> RankPool::run(Job job, const std::function<bool(const std::vector<int>& running)>& watch) {
  std::unique_lock<std::mutex> lock(shared_->mutex);
  TESSERA_ASSERT(!shared_->abandoned, "a job after an abandoned one");
  shared_->job = std::move(job);
  shared_->running.assign(shared_->running.size(), 1);
  shared_->left = ranks();
  ++shared_->generation;
  shared_->work.notify_all();
  std::vector<int> running;
  while (!shared_->done.wait_for(lock, std::chrono::milliseconds(50), [&] { return shared_->left == 0; })) {
    running.clear();
    for (int r = 0; r < ranks(); ++r)
      if (shared_->running[static_cast<std::size_t>(r)] != 0) running.push_back(r);
    lock.unlock();
    const bool go_on = watch(running);
    lock.lock();
    if (go_on || shared_->left == 0) continue;
    shared_->abandoned = true;
    shared_->job = nullptr;
    return running;
  }
  shared_->job = nullptr;
  return {};
}

void RankPool::run_all(const std::function<void(int rank)>& job) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks()));
  run(
      [&](int rank) {
        try {
          job(rank);
        } catch (...) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
        }
      },
      [](const std::vector<int>&) { return true; });
  for (const std::exception_ptr& error : errors)
    if (error != nullptr) std::rethrow_exception(error);
}

void RankPool::run_in_turn(const std::function<void(int rank)>& job) {
  std::mutex turn;
  run_all([&](int rank) {
    std::lock_guard<std::mutex> lock(turn);
    job(rank);
  });
}

}  // namespace tessera
