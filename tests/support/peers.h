// Shards of one call that run at the same time and tell each other what a split dimension needs
// (Role::Joint).
#pragma once

#include <barrier>
#include <cstddef>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "tessera/op.h"

namespace tessera::testing {

// Runs body(shard, peers) for every shard on a thread of its own; `bytes` is what each tells at a time.
// `body` must not throw.
inline void run_together(int shards, std::int64_t bytes, const std::function<void(int, Peers*)>& body) {
  const auto size = static_cast<std::size_t>(bytes);
  std::barrier meeting(shards);
  std::vector<const void*> given(static_cast<std::size_t>(shards));

  struct Shard final : Peers {
    Shard(std::barrier<>& b, std::vector<const void*>& g, int i, std::size_t n)
        : barrier(b), all(g), at(i), size_each(n), told(n * g.size()) {}
    int count() const override { return static_cast<int>(all.size()); }
    int index() const override { return at; }
    const void* all_gather(const void* mine) override {
      all[static_cast<std::size_t>(at)] = mine;
      barrier.arrive_and_wait();
      for (std::size_t s = 0; s < all.size(); ++s)
        std::memcpy(told.data() + s * size_each, all[s], size_each);
      barrier.arrive_and_wait();
      return told.data();
    }
    std::barrier<>& barrier;
    std::vector<const void*>& all;
    int at;
    std::size_t size_each;
    std::vector<std::byte> told;
  };

  std::vector<std::jthread> threads;
  for (int s = 0; s < shards; ++s) {
    threads.emplace_back([&, s] {
      Shard shard(meeting, given, s, size);
      body(s, &shard);
      meeting.arrive_and_drop();
    });
  }
}

}  // namespace tessera::testing
