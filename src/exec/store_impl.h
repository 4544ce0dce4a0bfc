// The inside of a Store: which shards of which variables this process holds.
#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "tessera/session.h"

namespace tessera {

// One buffer, shared by the ranks that hold the same box (and, for pending sums, the same partial).
struct StoredShard {
  Box box;
  std::vector<int> pending;  // coordinates on the pending axes; empty when complete
  std::vector<int> ranks;    // ascending
  AlignedBuffer data;

  // The elements [first, second) that `rank` does of work that the ranks share.
  std::pair<std::int64_t, std::int64_t> slice_of(int rank) const {
    const auto members = static_cast<std::int64_t>(ranks.size());
    const std::int64_t at = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    return {box.elements() * at / members, box.elements() * (at + 1) / members};
  }
};

struct StoredVariable {
  Type type;
  Variable variable;
  Placement placement;
  std::vector<StoredShard> shards;
  std::vector<int> shard_of_rank;
  std::int64_t version = 0;  // of its values; a copy's: of the parameter's values that it was made from

  std::size_t bytes(const StoredShard& s) const {
    return static_cast<std::size_t>(s.box.elements()) * size_of(type.dtype);
  }
  StoredShard& shard(int rank) {
    return shards[static_cast<std::size_t>(shard_of_rank[static_cast<std::size_t>(rank)])];
  }
};

struct Store::Impl {
  Mesh mesh;
  std::map<std::string, StoredVariable, std::less<>> variables;
  std::atomic<bool> torn{false};

  // Adds a variable's memory, without values: initialise() fills it. Throws SystemError when there is none.
  StoredVariable& add(StoredVariable stored);
  StoredVariable& get(const std::string& name);  // throws UserError with the nearest name
};

// The shards of a variable, without memory.
StoredVariable lay_out(const Mesh& mesh, const Variable& variable, const Type& type,
                       const Placement& placement);
std::int64_t bytes_of(const StoredVariable& stored);  // of this process, shared buffers once

// Writes the initial values of elements [begin, end) of the shard (row-major in its box). Threads: disjoint
// ranges in parallel.
void initialise(StoredVariable& stored, StoredShard& shard, std::uint64_t seed, std::int64_t begin,
                std::int64_t end);

}  // namespace tessera
