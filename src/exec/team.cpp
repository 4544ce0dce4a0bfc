#include "exec/team.h"

#include <atomic>
#include <thread>
#include <vector>

#include "base/cores.h"
#include "exec/topology.h"

namespace tessera {
namespace {

thread_local Team* current = nullptr;

}  // namespace

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

Team::Team(int threads, const std::vector<int>& processors) : impl_(std::make_unique<Impl>()) {
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

}  // namespace tessera
