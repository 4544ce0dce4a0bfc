#include "exec/team.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/cores.h"
#include "exec/topology.h"

namespace tessera {
namespace {

thread_local Team* current = nullptr;

}  // namespace

bool OpenWork::Work::take_parts() {
  bool any = false;
  // Looked at first, so that guests who come again and again do not count without end.
  while (next.load(std::memory_order_relaxed) < parts) {
    const int part = next.fetch_add(1, std::memory_order_relaxed);
    if (part >= parts) break;
    call(body, part);
    any = true;
  }
  return any;
}

// A guest is counted before it looks for work, and the work is taken away before guests are counted: either
// the guest finds none, or the rank waits for it.
bool OpenWork::help() {
  if (work_.load(std::memory_order_relaxed) == nullptr) return false;
  guests_.fetch_add(1, std::memory_order_seq_cst);
  Work* work = work_.load(std::memory_order_seq_cst);
  const bool any = work != nullptr && work->take_parts();
  guests_.fetch_sub(1, std::memory_order_release);
  return any;
}

void OpenWork::open(Work& work) {
  work_.store(&work, std::memory_order_seq_cst);
  opened_();
}

void OpenWork::close() {
  work_.store(nullptr, std::memory_order_seq_cst);
  // Guests are in their last part: as a rule a fraction of a millisecond.
  for (int i = 0; guests_.load(std::memory_order_seq_cst) != 0; ++i) {
    if (i < 1000) {
      pause_core();
    } else {
      std::this_thread::yield();
    }
  }
}

struct Team::Impl {
  // Written by the rank's thread before `round` is raised, read by the helpers after.
  Call call = nullptr;
  void* body = nullptr;
  int parts = 0;
  bool stop = false;
  alignas(64) std::atomic<std::uint32_t> round{0};
  alignas(64) std::atomic<std::uint32_t> busy{0};  // helpers that have not finished the round
  int spins = 0;  // looks before sleeping: some ten microseconds, where each thread can have a core
  std::vector<std::thread> helpers;
  OpenWork* open = nullptr;

  int threads() const { return static_cast<int>(helpers.size()) + 1; }

  void do_parts(int thread) const {
    for (int part = thread; part < parts; part += threads()) call(body, part);
  }

  void help(int thread) {
    std::uint32_t seen = 0;
    while (true) {
      for (int i = 0; i < spins && round.load(std::memory_order_acquire) == seen; ++i) pause_core();
      round.wait(seen, std::memory_order_acquire);
      ++seen;
      if (stop) return;
      do_parts(thread);
      if (busy.fetch_sub(1, std::memory_order_release) == 1) busy.notify_one();
    }
  }
};

Team::Team(int threads, const std::vector<int>& processors, OpenWork* open)
    : impl_(std::make_unique<Impl>()) {
  impl_->open = open;
  // A pinned caller sees one usable core, but each thread has one.
  impl_->spins = !processors.empty() || threads <= usable_cores() ? 1000 : 0;
  impl_->helpers.reserve(static_cast<std::size_t>(threads - 1));
  for (int t = 1; t < threads; ++t) impl_->helpers.emplace_back();
  for (int t = 1; t < threads; ++t)
    impl_->helpers[static_cast<std::size_t>(t - 1)] = std::thread(
        [impl = impl_.get(), t, at = processors.empty() ? -1 : processors[static_cast<std::size_t>(t)]] {
          if (at >= 0) pin_this_thread(at);
          impl->help(t);
        });
}

Team::~Team() {
  impl_->stop = true;
  impl_->round.fetch_add(1, std::memory_order_release);
  impl_->round.notify_all();
  for (std::thread& helper : impl_->helpers) helper.join();
}

int Team::threads() const {
  return impl_->threads();
}

Team::Use::Use(Team& team) : before_(current) {
  current = &team;
}

Team::Use::~Use() {
  current = before_;
}

void Team::run(int parts, Call call, void* body) {
  if (current == nullptr || current->threads() == 1) {
    for (int part = 0; part < parts; ++part) call(body, part);
    return;
  }
  Impl& team = *current->impl_;
  team.call = call;
  team.body = body;
  team.parts = parts;
  team.busy.store(static_cast<std::uint32_t>(team.helpers.size()), std::memory_order_relaxed);
  team.round.fetch_add(1, std::memory_order_release);
  team.round.notify_all();
  team.do_parts(0);
  for (int i = 0; i < team.spins && team.busy.load(std::memory_order_acquire) != 0; ++i) pause_core();
  for (std::uint32_t left = team.busy.load(std::memory_order_acquire); left != 0;
       left = team.busy.load(std::memory_order_acquire))
    team.busy.wait(left, std::memory_order_acquire);
}

void Team::share(int parts, Call call, void* body) {
  OpenWork::Work work{call, body, parts};
  OpenWork* open = current == nullptr || parts < 2 ? nullptr : current->impl_->open;
  if (open != nullptr && !open->opened_) open = nullptr;
  if (open != nullptr) open->open(work);
  for_each_part(current == nullptr ? 1 : std::min(parts, current->threads()),
                [&](int) { work.take_parts(); });
  if (open != nullptr) open->close();
}

}  // namespace tessera
