// Runs a lowered program for all ranks of its mesh, one after another in one thread, with the records'
// reference kernels: the oracle between lowering and the real executor. Collectives are done as their
// definition says: every piece is summed over the members in rank order.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "support/array.h"
#include "tessera/program.h"

namespace tessera::testing {

struct SimulateOptions {
  std::map<std::string, Array> feeds;
  std::map<std::string, Array> variables;  // by name, whole; absent ones are drawn by their initialisers
  const Graph* graph = nullptr;  // where the initialisers are; may be null when all variables are given
  std::uint64_t seed = 0;
  std::int64_t step = 0;
};

struct Simulated {
  std::vector<Array> fetches;
  std::map<std::string, Array> assigned;  // whole values of assigned variables (pending ones summed)
  std::string replica_mismatch;           // "" when all replicas of every fetch are bit-equal
};

Simulated simulate(const Program& program, const SimulateOptions& options = {});

}  // namespace tessera::testing
