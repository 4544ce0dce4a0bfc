// The threads of one rank: its own and helpers that wait for its kernels. No process-wide pool: ranks never
// share helpers, and a helper that has nothing to do sleeps after some microseconds, so that more threads
// than cores do no harm. A rank that waits for another can take parts of its work meanwhile (OpenWork).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

namespace tessera {

// The work that a rank does just now and that threads of other ranks may take parts of. It is one rank's;
// help() may be called from any thread.
class alignas(64) OpenWork {
 public:
  // `opened` will be called by the rank's thread when there is new work. Without it work is shown to nobody.
  void on_open(std::function<void()> opened) { opened_ = std::move(opened); }

  // Does parts of the rank's work until none is left to begin. False when there was none.
  bool help();

 private:
  friend class Team;
  using Call = void (*)(void* body, int part);
  struct Work {
    Call call;
    void* body;
    int parts;
    std::atomic<int> next{0};

    bool take_parts();
  };
  void open(Work& work);
  void close();  // returns when no guest is in the work any more

  std::function<void()> opened_;
  std::atomic<Work*> work_{nullptr};
  std::atomic<int> guests_{0};  // threads that may look at *work_
};

class Team {
 public:
  // threads - 1 helpers. `processors`: where each thread runs, the caller's own first (who goes there
  // itself); empty: anywhere. `open`: where the team's work is shown to other ranks, null: nowhere.
  explicit Team(int threads, const std::vector<int>& processors = {}, OpenWork* open = nullptr);
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
  template <class Body>
  friend void share_parts(int parts, Body&& body);
  using Call = OpenWork::Call;
  static void run(int parts, Call call, void* body);
  static void share(int parts, Call call, void* body);

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

// Calls body(part) for every part of [0, parts), each on whichever thread is free next: of the caller's team,
// or of a rank that waits for the caller's. Returns when all are done. For parts of a tenth of a millisecond
// and more whose results do not depend on who does them. The body must not throw, and not begin other parts.
template <class Body>
void share_parts(int parts, Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  Team::share(
      parts, [](void* f, int part) { (*static_cast<Plain*>(f))(part); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace tessera
