// The communicator for ranks that are threads of one process: they read each other's buffers directly. Any
// number of ranks on any number of cores; waits spin shortly, then sleep.
//
//   ThreadsWorld world(ranks, {.deadline_seconds = 300});
//   world.begin_run();                     // no rank inside
//   // in rank r's thread: use world.communicator(r) ...; on an exception world.fail(r, current_exception());
//   at the end world.leave(r);
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/cores.h"
#include "comm/communicator.h"

namespace tessera {

// A network between the ranks, made of waiting: a collective is under way for latency + payload / rate.
struct Link {
  double latency_seconds = 0, bytes_per_second = 0;  // 0: no limit
  double seconds(std::int64_t bytes) const {
    return latency_seconds + (bytes_per_second > 0 ? static_cast<double>(bytes) / bytes_per_second : 0);
  }
};

struct ThreadsOptions {
  double deadline_seconds = 300;
  bool random_delays = false;  // tests: a random pause before every meeting
  Link link = {};
};

class ThreadsCommunicator;

class ThreadsWorld {
 public:
  ThreadsWorld(int ranks, ThreadsOptions options);
  ~ThreadsWorld();

  int size() const { return static_cast<int>(lines_.size()); }
  Communicator& communicator(int rank);

  // What a rank does while it waits for another instead of sleeping: some of that one's work. Returns the
  // seconds it took, 0 when there was none; there is more once that one calls announce(). REQUIRES that no
  // rank is inside.
  using Help = std::function<double(int waiter, int member)>;
  void set_help(Help help) { help_ = std::move(help); }

  // Forgets the collectives of the run before. REQUIRES that no rank is inside, and that no run failed.
  void begin_run();

  // The rank will start no more collectives in this run. Others that wait for one from it fail at once.
  void leave(int rank);

  // Ends the run on all ranks because `rank` threw. The first call decides what cause() is.
  void fail(int rank, std::exception_ptr error);

  // Ends the run because these ranks made no progress.
  void fail_no_progress(const std::vector<int>& ranks, const std::string& where);

  // Whom fail_no_progress named.
  std::vector<int> blamed() const;

  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // The first failure, with "rank 3: " in front of what a rank threw itself. REQUIRES failed().
  std::exception_ptr cause() const;

  // Rank `waiter` waits until `arrived()`, which comes true by something that `member` does before it calls
  // announce(): it looks for some ten microseconds if every rank can have a core, then sleeps. When that
  // cannot happen any more (the run failed, the member left) or is overdue, calls give_up(overdue), which
  // throws, or returns if `arrived()` has come true after all. Returns the seconds it took, but for help.
  template <class Arrived, class GiveUp>
  double await(int waiter, int member, Arrived arrived, GiveUp give_up);
  // Wakes the ranks that sleep until this one has done something.
  void announce(int rank) { wake(lines_[static_cast<std::size_t>(rank)]); }
  // The waiter waited in vain for something outside collectives: records who is to blame (the member left, or
  // is overdue at `where`) and throws PeerLost. Returns when neither is the case.
  void check_member(int waiter, int member, bool overdue, const std::string& where);

  // True while the rank waits for others.
  bool waiting(int rank) const;

  double deadline_seconds() const { return options_.deadline_seconds; }

 private:
  friend class ThreadsCommunicator;

  // One collective of one rank. `phase` is 4 * number + {1 posted, 2 slice reduced, 3 done reading}.
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> phase{0};
    const PreparedCollective* collective = nullptr;
    const void* in = nullptr;
    void* out = nullptr;
  };
  // What others watch of one rank. `word` changes whenever a phase does; sleepers wait on it.
  struct alignas(64) Line {
    std::atomic<std::uint32_t> word{0};
    std::atomic<int> sleepers{0};
    std::atomic<int> waits_for{-1};
    std::atomic<bool> left{false};
    std::vector<Slot> slots;
  };

  Slot& slot(int rank, std::uint64_t number);
  void wake(Line& line);
  static void nap(Line& line, std::uint32_t word, double seconds);
  void record(std::exception_ptr error);
  [[noreturn]] void throw_peer_lost() const;
  int blocker_of(int rank) const;
  std::vector<int> culprits(int waiter, std::uint64_t target, const std::vector<int>& group,
                            std::uint64_t number) const;

  ThreadsOptions options_;
  Help help_;
  int spins_ = 0;
  std::vector<Line> lines_;
  std::vector<std::unique_ptr<ThreadsCommunicator>> communicators_;
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;  // guards cause_, first_, blamed_
  std::exception_ptr cause_;
  std::vector<int> blamed_;
  std::string first_;  // its message, for the other ranks
};

template <class Arrived, class GiveUp>
double ThreadsWorld::await(int waiter, int member, Arrived arrived, GiveUp give_up) {
  if (arrived()) return 0;
  const double begin = now();
  for (int i = 0; i < spins_; ++i) {
    pause_core();
    if (arrived()) return now() - begin;
  }
  Line& line = lines_[static_cast<std::size_t>(member)];
  std::atomic<int>& waits_for = lines_[static_cast<std::size_t>(waiter)].waits_for;
  std::this_thread::yield();
  waits_for.store(member, std::memory_order_release);
  double helped = 0;
  for (bool there = false; !there;) {
    line.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t word = line.word.load(std::memory_order_seq_cst);
    there = arrived();
    const bool lost = !there && (failed() || line.left.load(std::memory_order_acquire));
    const double help = !there && !lost && help_ ? help_(waiter, member) : 0;
    helped += help;
    const double left = options_.deadline_seconds - (now() - begin);
    if (!there && !lost && help == 0 && left > 0) nap(line, word, left);
    line.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    if (there || (!lost && left > 0)) continue;
    there = arrived();  // the member may have gone on, and left, since we looked
    if (!there) give_up(left <= 0);
  }
  waits_for.store(-1, std::memory_order_release);
  return now() - begin - helped;
}

}  // namespace tessera
