// A program made ready for one rank: local views, kernels, copies and collectives resolved once, so that a
// run is one flat loop that allocates nothing.
//
// prepare() runs on the rank's thread, one rank at a time; run() on the same.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "comm/communicator.h"
#include "comm/pieces.h"
#include "exec/cpu/fused.h"
#include "exec/cpu/kernels.h"
#include "exec/local_ranks.h"
#include "exec/rank_peers.h"
#include "exec/results.h"
#include "exec/store_impl.h"
#include "tessera/program.h"

namespace tessera {

// Called before every step of every rank; false ends the rank's run there. For tests that inject faults.
using StepHook = std::function<bool(int rank, int step)>;

// What the ranks of one run share. Lives as long as any of their threads.
struct RunState {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::map<std::string, Window> windows;
  FillFunction fill;  // called by one rank at a time; empty once the run is abandoned
  std::mutex fill_mutex;
  std::shared_ptr<Results::Impl> results;
  StepHook hook;
  bool trace = false;
  bool assign = true;                 // false: leave variables as they are
  bool find_nonfinite = false;        // look at every step's results
  std::atomic<bool> assigned{false};  // some variable was written
  std::atomic<int> left{-1};          // a rank that the hook ended early
};

// A step of a traced run; seconds on the clock of now(). A step begins where the one before ended.
struct TraceEvent {
  int step = 0;
  double begin = 0, end = 0;
  double waited = 0;  // for other ranks
  double helped = 0;  // them, meanwhile
};

// When a rank got where in a traced run.
struct RunTimes {
  double begin = 0, feeding = 0, fed = 0, stepped = 0, fetching = 0, end = 0;
};

Piece piece_of(const CopyPiece& copy, std::vector<int> sources);

class RankProgram {
 public:
  // References are kept. `threads` is the size of the rank's team.
  RankProgram(const Program& program, const MemoryPlan& plan, Communicator& communicator, LocalRanks& local,
              Store::Impl& store, int threads);

  void prepare();
  // Where the arena lies now; call again when it moves.
  void set_arena(std::byte* arena);
  // Returns false when the hook ended it early.
  bool run(RunState& state);

  // Of the last run.
  double contraction_seconds() const { return contraction_seconds_; }
  double wait_seconds() const { return wait_seconds_; }
  int first_nonfinite() const { return first_nonfinite_; }  // step, or -1
  const std::vector<TraceEvent>& trace() const { return trace_; }
  const RunTimes& times() const { return times_; }
  double contraction_flops() const { return contraction_flops_; }

 private:
  enum class Action { Skip, Kernel, Reference, Fused, Fill, Copy, Start, Wait, Contract, Assign };

  struct LocalCopy {
    Piece piece;
    int input = 0;
  };

  // What a run reads comes first: a step of little work costs not much more than fetching it.
  struct alignas(64) Prepared {
    Action action = Action::Skip;
    bool heavy = false;
    bool stores = false;                 // Fused: computes straight into variables
    std::optional<FusedLoop> loop;       // Fused
    std::span<void*> in_data, out_data;  // of the views
    std::int64_t workspace = -1;         // offset in the arena
    const Step* step = nullptr;
    std::vector<View> in, out;
    PreparedKernel kernel;
    std::unique_ptr<RankPeers> peers;  // Kernel, Reference: the ranks that run the step together
    std::vector<AlignedBuffer> saved;  // Reference: inputs that an output overlaps, else empty
    double fill = 0;                   // Fill
    std::vector<LocalCopy> copies;     // Copy
    std::unique_ptr<PreparedCollective> collective;  // Start
    Ticket ticket;                                   // Start
    int start = -1;                                  // Wait, Contract
    Communicator::Work contract;                     // Contract
    // Fused: bytes by which the rank's slice of the loop starts later
    std::vector<std::int64_t> in_shift, out_shift;
    // Assign, and Fused that stores
    std::vector<int> sharers;                    // other ranks that hold the same buffer
    int last_read = -1;                          // step
    std::size_t slice_begin = 0, slice_end = 0;  // bytes that this rank writes
  };
  struct WriteSlice {
    std::int64_t part, parts;
  };
  struct Mark {
    bool idle = false;     // there is nothing to do
    bool awaited = false;  // others wait until this rank has come here
  };

  void prepare_step(int index, void**& addresses);
  void prepare_views(Prepared& p, void**& addresses);
  void prepare_run(Prepared& p);
  void prepare_loop(Prepared& p);
  void prepare_fused(Prepared& p, const ScalarCode& code);
  FusedSpec spec_of(const Prepared& p, const ScalarCode& code) const;
  void prepare_reference(Prepared& p);
  void prepare_copies(Prepared& p, const std::vector<Move>& moves);
  void prepare_slice(Prepared& p);
  CollectivePlan plan_of(const Step& step) const;
  void prepare_collective(Prepared& p);
  void add_pieces(const Step& step, std::size_t i, CollectivePlan& plan) const;
  void prepare_peers(Prepared& p);
  void prepare_wait(Prepared& p);
  void prepare_contract(Prepared& p);
  std::pair<View, std::int64_t> read_of(const Step& step, std::size_t i, int member) const;
  void prepare_assign(Prepared& p, int index);
  void prepare_store(Prepared& p, int index);
  StoredShard& shared_by(Prepared& p, int variable, int index);
  WriteSlice slice_of(const StoredShard& shard, int rows) const;
  void cut_loop(Prepared& p, FusedSpec& spec, WriteSlice slice);
  int last_read_of(int variable, int before) const;

  void feed(RunState& state);
  void fetch(RunState& state);
  void record(int index, double begin, double end);
  void set_windows(const std::map<std::string, Window>& windows);
  void execute(Prepared& p, RunState& state);
  void run_kernel(Prepared& p, RunState& state);
  void run_reference_kernel(Prepared& p, RunState& state);
  void run_assign(Prepared& p, RunState& state);
  void await_sharers(const Prepared& p, RunState& state);
  void look_for_nonfinite(const Prepared& p, int index);

  const ProgramValue& value(int id) const { return program_.values[static_cast<std::size_t>(id)]; }
  int base(int id) const;
  View view_of(int id) const;
  void* address(int id) const;
  // Bytes of this rank's part of a value before its part of other rows, where the second lies in the first.
  std::int64_t bytes_before(int rows, int whole) const;
  static std::string where(const std::string& name, const Location& location);
  static std::string where(const Step& step) { return where(step.name, step.where); }

  const Program& program_;
  const MemoryPlan& plan_;
  Communicator& communicator_;
  LocalRanks& local_;
  Store::Impl& store_;
  int rank_;
  int threads_;
  BoundProgram bound_;
  std::byte* arena_ = nullptr;
  std::vector<Prepared> steps_;
  std::vector<Mark> marks_;       // per step
  std::vector<void*> addresses_;  // of the steps' views, one step after the other
  std::vector<int> feeds_;        // values
  std::map<std::string, Window> windows_;
  double contraction_seconds_ = 0, wait_seconds_ = 0, contraction_flops_ = 0;
  int first_nonfinite_ = -1;
  std::vector<TraceEvent> trace_;
  RunTimes times_;
  double waited_ = 0;       // wait_seconds_ after the last recorded step
  std::size_t helped_ = 0;  // entries of local_.helped() then
};

}  // namespace tessera
