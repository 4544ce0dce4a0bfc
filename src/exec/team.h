// The threads of one rank: its own and helpers that wait for its kernels. No process-wide pool: ranks never
// share helpers, and a helper that has nothing to do sleeps after some microseconds, so that more threads
// than cores do no harm.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

namespace tessera {

class Team {
 public:
  // threads - 1 helpers. `processors`: where each thread runs, the caller's own first (who goes there
  // itself); empty: anywhere.
  explicit Team(int threads, const std::vector<int>& processors = {});
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int threads() const;

  // While it lives, kernels that the calling thread runs use the team.
  class Use {
   public:
    explicit Use(Team& team);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Team* before_;
  };

 private:
  template <class Body>
  friend void for_each_part(int parts, Body&& body);
  using Call = void (*)(void* body, int part);
  static void run(int parts, Call call, void* body);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Calls body(part) for every part of [0, parts), at the same time on the threads of the caller's team: thread
// t does the parts t, t + threads, ... Without a team, one after the other. Returns when all are done. The
// body must not throw.
template <class Body>
void for_each_part(int parts, Body&& body) {
  if (parts == 1) return body(0);
  using Plain = std::remove_reference_t<Body>;
  Team::run(
      parts, [](void* f, int part) { (*static_cast<Plain*>(f))(part); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace tessera
