// Runs a function on every rank of a world of threads, and makes the pieces of simple collectives from first
// principles.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/threads.h"
#include "tessera/error.h"

namespace tessera::testing {

// Runs body(communicator, rank) on n threads. Rethrows the cause when a rank throws.
inline void run_ranks(ThreadsWorld& world, const std::function<void(Communicator&, int)>& body) {
  world.begin_run();
  std::vector<std::thread> threads;
  for (int r = 0; r < world.size(); ++r) {
    threads.emplace_back([&world, &body, r] {
      try {
        body(world.communicator(r), r);
      } catch (...) {
        world.fail(r, std::current_exception());
      }
      world.leave(r);
    });
  }
  for (std::thread& t : threads) t.join();
  if (world.failed()) std::rethrow_exception(world.cause());
}

struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

// Part i of n of a dimension: the formula of the design, written again so that it is not its own oracle.
inline Range part(std::int64_t size, int n, int i) {
  return {size * i / n, size * (i + 1) / n};
}

// A contiguous piece.
inline Piece run_of(std::vector<int> sources, std::int64_t from, std::int64_t to, std::int64_t count) {
  return {std::move(sources), from, to, {count}, {1}, {1}};
}

// Ranks along one axis of a mesh given by its sizes (row-major).
inline std::vector<int> along(const std::vector<int>& mesh, std::size_t axis, int rank) {
  int inner = 1;
  for (std::size_t a = axis + 1; a < mesh.size(); ++a) inner *= mesh[a];
  const int position = rank / inner % mesh[axis];
  std::vector<int> group;
  for (int i = 0; i < mesh[axis]; ++i) group.push_back(rank + (i - position) * inner);
  return group;
}

inline int ranks_of(const std::vector<int>& mesh) {
  int n = 1;
  for (int size : mesh) n *= size;
  return n;
}

inline int position_in(const std::vector<int>& group, int rank) {
  for (std::size_t i = 0; i < group.size(); ++i)
    if (group[i] == rank) return static_cast<int>(i);
  return -1;
}

}  // namespace tessera::testing
