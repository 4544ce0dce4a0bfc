// Collectives between the ranks of a mesh, as the executor sees them. A collective is planned once (which
// strided boxes this rank takes from whom), then started and waited for in every run. Backends: threads of
// one process (comm/threads.h).
//
// Nothing here assumes that ranks share memory: a backend sees plans, buffers and tickets only.
//
// Threads: a Communicator belongs to one rank and is used from that rank's thread; abort() may be called from
// any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/dtype.h"

namespace tessera {

enum class Combine : std::uint8_t { None, Sum, Max, Min };

// One strided box that a rank takes into its output. Offsets and strides count elements of the local buffers.
// Several sources are combined element by element, in the order listed: sums in f32 (f64 for f64, exactly for
// i32), rounded once at the end; max and min give NaN where one is NaN; the sum of booleans is `or`.
struct Piece {
  std::vector<int> sources;  // ranks, ascending; one where nothing is combined
  std::int64_t from = 0, to = 0;
  std::vector<std::int64_t> extent, from_stride, to_stride;
  std::size_t part = 0;  // of a bucket: from which input to which output
};

// One of the reductions in a bucket.
struct BucketPart {
  std::string what;
  DType dtype = DType::F32;
  std::int64_t bytes = 0;
};

// A collective as one rank takes part in it.
struct CollectivePlan {
  std::string kind;  // "all_reduce", ...
  std::string what;  // whose, for messages: "'ffn/wi' (model.cc:88)"
  DType dtype = DType::F32;
  Combine combine = Combine::None;
  std::int64_t bytes = 0;  // payload, the same number on every member; of a bucket the sum
  // A bucket, several reductions in one: their buffers stay apart, and `in` and `out` of the start are arrays
  // of their addresses, which live as long as the buffers.
  std::vector<BucketPart> parts{};
  std::vector<int> group{};     // all members, ascending, this rank included
  std::vector<Piece> pieces{};  // what this rank takes

  DType dtype_of(const Piece& piece) const { return parts.empty() ? dtype : parts[piece.part].dtype; }
};

// A plan that a backend made ready. Make one per program step; it may be in flight once at a time.
struct PreparedCollective {
  CollectivePlan plan;
  std::uint64_t fingerprint = 0;  // equal on all members that mean the same collective
  bool in_slices = false;         // all_reduce: each member reduces a slice (of each part), for all
  std::string text() const;       // "all_reduce of 'ffn/wi' (model.cc:88), 4096 bytes of f32 over ranks 0,1"
};

// A collective in flight.
struct Ticket {
  const PreparedCollective* collective = nullptr;
  std::uint64_t number = 0;  // how many this rank started before it in this run
  const void* in = nullptr;
  void* out = nullptr;
  double arrival = 0;  // on the clock of now(): not there before
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Throws InternalError on a malformed plan.
  virtual std::unique_ptr<PreparedCollective> prepare(CollectivePlan plan) = 0;

  // Begins: `in` may be read by others, and `out` written, until the matching wait returns. Every member
  // starts its collectives in the same order; at most kMaxInFlight are in flight. The buffers are apart, but
  //  - `out` may be `in` for an all_reduce of one contiguous piece (a part),
  //  - `in` may lie in `out`, on all members, where the piece that this rank takes of itself goes, and
  //  - `out` may be `in`, on all members, for an all_to_all of contiguous pieces in which what a rank takes
  //  of
  //    another one goes where the other takes its piece from: the members swap.
  static constexpr int kMaxInFlight = 256;
  virtual Ticket start(const PreparedCollective& collective, const void* in, void* out) = 0;

  // Returns when the result is in `out` and no member still reads this rank's `in`. Throws SystemError:
  // NoProgress when a member did not arrive within the deadline, Disagree when members started different
  // collectives, PeerLost when another rank failed; others may then use buffers and prepared collectives
  // until every rank has left the run.
  virtual void wait(const Ticket& ticket) = 0;

  // The same for a collective without pieces whose work is the caller's, between ranks that share memory:
  // `work` is called once with what every member of the group gave as `in` (in the group's order); nobody
  // returns before all members' work is done.
  using Work = std::function<void(std::span<const void* const> in)>;
  virtual void wait(const Ticket& ticket, const Work& work) = 0;

  // Every rank of `group` (ascending, this one included) calls it; none returns before all called. Counts as
  // a collective.
  virtual void barrier(const PreparedCollective& group) = 0;

  // Copies the root's bytes to everyone in the mesh.
  virtual void broadcast(void* data, std::size_t bytes, int root) = 0;

  // Throws SystemError (PeerLost) when the run has ended on another rank.
  virtual void check() = 0;

  // Ends the run on all ranks: every wait throws, with `reason`.
  virtual void abort(const std::string& reason) = 0;

  // Seconds this rank spent waiting for others since the last call.
  virtual double take_wait_seconds() = 0;
};

// Checks a plan, merges dimensions of its pieces that are contiguous, works out its fingerprint. For
// backends.
std::unique_ptr<PreparedCollective> prepare_collective(CollectivePlan plan, int rank, int size);

}  // namespace tessera
