// The state that the rank threads of one process share.
#include "comm/threads.h"

#include <fmt/ranges.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

#include "base/check.h"
#include "base/cores.h"
#include "comm/threads_communicator.h"

namespace tessera {
namespace {

// The error of a rank with its number in front, kind and exit code kept.
std::exception_ptr with_rank(int rank, std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (const UserError& e) {
    return std::make_exception_ptr(UserError(fmt::format("rank {}: {}", rank, e.what()), e.code()));
  } catch (const SystemError& e) {
    return std::make_exception_ptr(SystemError(fmt::format("rank {}: {}", rank, e.what()), e.code()));
  } catch (const InternalError& e) {
    return std::make_exception_ptr(InternalError(fmt::format("rank {}: {}", rank, e.what())));
  } catch (const std::bad_alloc&) {
    return std::make_exception_ptr(
        SystemError(fmt::format("rank {}: out of memory", rank), ExitCode::Memory));
  } catch (const std::exception& e) {
    return std::make_exception_ptr(
        SystemError(fmt::format("rank {}: {}", rank, e.what()), ExitCode::PeerLost));
  } catch (...) {
    return std::make_exception_ptr(SystemError(
        fmt::format("rank {}: threw something that is not an exception", rank), ExitCode::PeerLost));
  }
}

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace

ThreadsWorld::ThreadsWorld(int ranks, ThreadsOptions options)
    : options_(options), lines_(static_cast<std::size_t>(ranks)) {
  TESSERA_ASSERT(ranks >= 1, "a world of {} ranks", ranks);
  spins_ = ranks <= usable_cores() ? 400 : 0;
  for (int r = 0; r < ranks; ++r) {
    lines_[static_cast<std::size_t>(r)].slots = std::vector<Slot>(Communicator::kMaxInFlight);
    communicators_.push_back(std::make_unique<ThreadsCommunicator>(*this, r));
  }
}

ThreadsWorld::~ThreadsWorld() = default;

Communicator& ThreadsWorld::communicator(int rank) {
  return *communicators_[static_cast<std::size_t>(rank)];
}

void ThreadsWorld::begin_run() {
  TESSERA_ASSERT(!failed(), "a run after a failed one");
  for (Line& line : lines_) {
    line.left.store(false, std::memory_order_relaxed);
    line.waits_for.store(-1, std::memory_order_relaxed);
    for (Slot& s : line.slots) s.phase.store(0, std::memory_order_relaxed);
  }
  for (auto& communicator : communicators_) communicator->begin_run();
}

ThreadsWorld::Slot& ThreadsWorld::slot(int rank, std::uint64_t number) {
  return lines_[static_cast<std::size_t>(rank)].slots[number % Communicator::kMaxInFlight];
}

void ThreadsWorld::wake(Line& line) {
  line.word.fetch_add(1, std::memory_order_seq_cst);
  if (line.sleepers.load(std::memory_order_seq_cst) > 0)
    syscall(SYS_futex, &line.word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void ThreadsWorld::nap(Line& line, std::uint32_t word, double seconds) {
  constexpr double kMost = 0.1;  // a bound only: whatever happens changes the word
  timespec time{0, static_cast<long>(std::min(seconds, kMost) * 1e9)};
  syscall(SYS_futex, &line.word, FUTEX_WAIT_PRIVATE, word, &time, nullptr, 0);
}

void ThreadsWorld::leave(int rank) {
  Line& line = lines_[static_cast<std::size_t>(rank)];
  line.left.store(true, std::memory_order_release);
  wake(line);
}

void ThreadsWorld::record(std::exception_ptr error) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (cause_ != nullptr) return;
    first_ = message_of(error);
    cause_ = std::move(error);
    failed_.store(true, std::memory_order_release);
  }
  for (Line& line : lines_) wake(line);
}

void ThreadsWorld::fail(int rank, std::exception_ptr error) {
  record(with_rank(rank, std::move(error)));
}

std::vector<int> ThreadsWorld::blamed() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return blamed_;
}

void ThreadsWorld::fail_no_progress(const std::vector<int>& ranks, const std::string& where) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (cause_ == nullptr) blamed_ = ranks;
  }
  record(std::make_exception_ptr(
      SystemError(fmt::format("{} {} did not arrive at {} within {} s", ranks.size() == 1 ? "rank" : "ranks",
                              fmt::join(ranks, ", "), where, options_.deadline_seconds),
                  ExitCode::NoProgress)));
}

std::exception_ptr ThreadsWorld::cause() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return cause_;
}

void ThreadsWorld::throw_peer_lost() const {
  std::lock_guard<std::mutex> lock(mutex_);
  throw SystemError(fmt::format("stopped because of another failure: {}", first_), ExitCode::PeerLost);
}

void ThreadsWorld::check_member(int waiter, int member, bool overdue, const std::string& where) {
  const bool left = lines_[static_cast<std::size_t>(member)].left.load(std::memory_order_acquire);
  if (!failed() && left) {
    record(std::make_exception_ptr(SystemError(
        fmt::format("rank {} left the program before {} (rank {} waited for it)", member, where, waiter),
        ExitCode::NoProgress)));
  } else if (!failed() && overdue) {
    const int blocker = blocker_of(member);
    fail_no_progress({blocker == waiter ? member : blocker}, where);
  }
  if (failed()) throw_peer_lost();
}

// Who the rank waits for, and that one, ...; the rank itself when it does not wait.
int ThreadsWorld::blocker_of(int rank) const {
  for (int hops = 0; hops < size(); ++hops) {
    const int next = lines_[static_cast<std::size_t>(rank)].waits_for.load(std::memory_order_acquire);
    if (next < 0) break;
    rank = next;
  }
  return rank;
}

bool ThreadsWorld::waiting(int rank) const {
  return lines_[static_cast<std::size_t>(rank)].waits_for.load(std::memory_order_acquire) >= 0;
}

// Who keeps the waiting rank from going on: members of its group that have not reached `target`, and where
// such a member waits itself, whoever it waits for. In a circle of waits everybody in it.
std::vector<int> ThreadsWorld::culprits(int waiter, std::uint64_t target, const std::vector<int>& group,
                                        std::uint64_t number) const {
  std::vector<int> found;
  for (int member : group) {
    const Line& line = lines_[static_cast<std::size_t>(member)];
    const std::uint64_t phase =
        line.slots[number % Communicator::kMaxInFlight].phase.load(std::memory_order_acquire);
    if (member == waiter || phase >= target) continue;
    const int at = blocker_of(member);
    found.push_back(at == waiter ? member : at);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace tessera
