// The lowered program: the one SPMD list of steps that every rank runs, that `explain` prints, and that the
// planner prices.
//
// A program is one text for all ranks: shapes in it are global, with placements; `bind` works out one rank's
// shapes. Plain data; any thread may read it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tessera/layout.h"
#include "tessera/op.h"

namespace tessera {

struct ProgramValue {
  enum class Kind : std::uint8_t { Temp, Feed, Variable };
  std::string name;
  Type type;  // global
  Placement placement;
  Kind kind = Kind::Temp;
  int view_of = -1;           // the same bytes as this earlier value (rename, reshape without data movement)
  std::string variable = {};  // Kind::Variable: its name in the Store; Kind::Feed: the input's name
  VariableKind variable_kind = VariableKind::Parameter;  // Kind::Variable
  std::string copy_of = {};   // Kind::Variable: the parameter that it is a working copy of
  bool from_storage = false;  // a variable gathered for use: kept for one region only
  bool own_rows = false;      // views a variable: this rank's rows in the buffer that replicas share
};

// Contract: every member makes its part of a contraction whose sum runs over all members, and reads what it
// needs of their inputs where they lie; between ranks that share memory. Joint: what members tell each other
// while they run one op together (no Start or Wait: a Run has it).
enum class CollectiveKind : std::uint8_t {
  AllReduce,
  ReduceScatter,
  AllGather,
  AllToAll,
  Permute,
  Exchange,
  Contract,
  Joint
};
const char* to_string(CollectiveKind kind);  // "all_reduce", ...

struct Collective {
  CollectiveKind kind = CollectiveKind::Exchange;
  Reduction reduce = Reduction::None;
  std::vector<int> reduce_axes;  // mesh axes that are summed (maximised, minimised) over
  std::vector<int> axes;         // all mesh axes that it communicates over: its group
  Move move;                     // which element of the source goes where (identity for a reshard)
  std::string dim;               // the named dimension that was summed or moved, for people
  // Payload of one rank with the largest parts: all_reduce: the reduced buffer; all_gather: the result;
  // reduce_scatter and all_to_all: the input; permute, exchange, contract, joint: the largest amount that one
  // rank receives (contract: reads) from others.
  std::int64_t bytes = 0;
  std::string reason;  // why it is there, and which rule change would remove it
  // A bucket, several reductions in one (all_reduce or reduce_scatter): what each was by itself, with its
  // provenance. Part i takes input i to output i, `bytes` is the sum. Empty where there is one.
  struct Part {
    std::string dim;
    std::int64_t bytes = 0;
    std::string reason, name;
    Location where;
    Region region = Region::Forward;
  };
  std::vector<Part> parts = {};
};

struct Step {
  enum class Kind : std::uint8_t {
    Run,    // op on local shards
    Fused,  // scalar code over one loop; inputs broadcast by name; an output has the loop's shape or is a sum
    Fill,   // out = value
    Copy,   // moves within the rank: out[move.out(r)] = in[move.in(r)] where both are local
    Slice,  // out = the part of in that out's placement wants; no communication. Where out is pending over an
            // axis and in is not, only ranks with coordinate 0 there keep the values, the others hold the
            // reduction's identity
    Start,  // begins a collective on in; of a bucket every input goes to the output of its number
    Wait,   // ends it: the result is in out, and no member still reads my in
    Assign,  // variable = in
    Free,    // last use of `in`; bookkeeping for people and the verifier
  };
  Kind kind = Kind::Run;
  std::vector<int> in;
  std::vector<int> out;
  Call call;        // Run, and the Start and Wait of a Contract: op, attributes, global types
  ScalarCode code;  // Fused
  int loop = -1;    // Fused: a value (perhaps never made) of the loop's shape and placement
  // Fused, per output: 0, or what it is divided by, being a sum over the loop's dimensions that it lacks.
  // Empty where no output is.
  std::vector<double> sums;
  std::vector<Move> moves;  // Copy
  double fill = 0;          // Fill
  Collective collective;    // Start and Wait; Run where ranks compute it together
  int start = -1;           // Wait: index of its Start
  // provenance
  std::string name;  // of the graph node
  std::string key;   // random ops
  Location where;
  Region region = Region::Forward;
  StepClass node_class = StepClass::ComponentWise;  // of the graph node's record

  bool is_sum(std::size_t o) const { return !sums.empty() && sums[o] != 0; }  // Fused: output o
  bool contracts() const { return kind == Kind::Wait && collective.kind == CollectiveKind::Contract; }
  bool is_joint() const { return kind == Kind::Run && collective.kind == CollectiveKind::Joint; }
  bool communicates() const { return kind == Kind::Start || is_joint(); }  // its collective is one of its own
};

struct Program {
  Mesh mesh;
  Layout layout;
  std::vector<ProgramValue> values;
  std::vector<Step> steps;
  std::vector<int> fetches;          // value per fetched tensor, complete and at home
  std::vector<std::string> remarks;  // for people: rules not used, repeated work, moves that a rule caused
};

// The machine as passes see it (DESIGN 3). exec implements it for this machine.
class Target {
 public:
  virtual ~Target() = default;
  virtual std::string name() const = 0;
  // Scratch bytes that a step needs with the given local types (the largest parts); counted in the arena.
  virtual std::int64_t workspace(const Step& step, const std::vector<Type>& in,
                                 const std::vector<Type>& out) const = 0;
  // True when the step may write output `out` over input `in` (same bytes) in place.
  virtual bool in_place(const Step& step, int in, int out) const = 0;
  // Estimates, by which steps are put in order: the seconds of a step's work, and those in which a collective
  // is under way by itself, without the rank's processors. 0: there is nothing to hide.
  virtual double work_seconds(const Program&, const Step&) const { return 0; }
  virtual double wire_seconds(const Collective&) const { return 0; }
  // What a collective costs the rank's processors whatever it carries, and what reading bytes costs them that
  // have lain about meanwhile.
  virtual double meeting_seconds() const { return 0; }
  virtual double memory_seconds(std::int64_t) const { return 0; }
  // By what part of a program's work ranks may come to a collective one after the other: other work between
  // its start and its wait lets them.
  virtual double arrival_spread() const { return 0; }
};

// A pass that can be left out. Results do not depend on it, speed and memory do.
struct Pass {
  const char* name;
  const char* doc;  // what it does
};
const std::vector<Pass>& passes();
void check_passes(const std::set<std::string>& names);  // throws UserError with the nearest name

struct LowerOptions {
  // Ranks that hold the same part of a variable share its memory (threads of one process): each updates rows
  // of its own, and gradients are reduced only there.
  bool shared_variables = false;
  std::set<std::string>
      without;  // passes to leave out, by name ("in_place" and "own_rows" are the Session's)
  std::map<std::string, Placement>
      accumulators;  // where accumulators already live; lower() adds those it decides
  std::map<std::string, Call>
      copies;            // casts of parameters that working copies are kept of, by name; lower() adds its own
  bool pin_all = false;  // keep every value separate and alive (inspection, NaN naming)
  // The machine, for "buckets", "overlap" and the budget; null: one whose collectives cost nothing.
  const Target* target = nullptr;
  // Budget of a process that holds all ranks: variables, which replicas share, and arenas. Values are
  // computed again where that is needed. 0: none.
  std::int64_t memory_bytes = 0;
};

// Lowers what `targets` (tensors to fetch, and assignments) need. Throws UserError on an illegal layout, an
// unknown pass or a budget that cannot be kept. REQUIRES a target where there is a budget.
Program lower(const Graph& graph, const std::vector<Tensor>& targets, const Mesh& mesh, const Layout& layout,
              LowerOptions& options);

// Throws InternalError if the program breaks a rule of the IR: a read before a write or after a free, a Wait
// without its Start, a group that is not made of whole axes, two writers of a variable.
void verify(const Program& program);

// Where every value lives in a rank's arena. One plan per program, with every part at its largest size.
struct MemoryPlan {
  std::vector<std::int64_t>
      offset;  // per value; -1: not in the arena (variables, views resolve to their base)
  std::vector<std::int64_t> step_workspace_offset;  // per step; -1: none
  std::int64_t arena_bytes = 0;
  std::int64_t liveness_bound = 0;  // the largest sum of live bytes at any step: no plan can be smaller
  int peak_step = 0;                // the first such step
  // The values in the buffers that live then, largest first (of several in one buffer the last one made), and
  // the bytes of their buffers; the rest of the bound are the step's workspaces.
  std::vector<int> peak_values;
  std::vector<std::int64_t> peak_bytes;
  // Per value: the variable (a value, or own rows of one) that it is computed straight into, instead of being
  // copied there by its Assign; -1: none. All outputs of such a step but sums are, and their variables have
  // one placement: ranks that share the buffers can share the work (a loop with sums updates no rows that
  // another rank holds as well).
  std::vector<int> stored_in;
  // Per value: the result of an all-gather in whose buffer it lies, every rank's part where it goes; -1:
  // none.
  std::vector<int> gathered_in;
};
MemoryPlan plan_memory(const Program& program, const Target& target);

// One rank's view of the program.
struct BoundProgram {
  int rank = 0;
  std::vector<Box> boxes;   // per value: what this rank holds
  std::vector<Type> local;  // per value: local type
};
BoundProgram bind(const Program& program, int rank);

// One copy that a rank makes in an exchange: a strided box from a peer's buffer to mine. Offsets and strides
// count elements.
struct CopyPiece {
  int peer = 0;                   // rank that owns the source
  std::int64_t from = 0, to = 0;  // offsets in the local buffers
  std::vector<std::int64_t> extent, from_stride, to_stride;
};
// The copies that `rank` must make so that its part of `to` (under to_placement) holds what `move` says,
// reading parts of `from`. Source replicas: the peer with the reader's own coordinates on axes that do not
// cut the source. With pending axes in from_placement, pieces name the member with the reader's coordinates
// there; the caller sums over the reduce group.
std::vector<CopyPiece> pieces_for(const Mesh& mesh, const Move& move, const Shape& from,
                                  const Placement& from_placement, const Shape& to,
                                  const Placement& to_placement, int rank);

// The program as text: feeds and variables, then one line a step, with placements and provenance.
std::string to_string(const Program& program);
std::string program_json(const Program& program, const MemoryPlan* plan);

// What every step is booked under. The update: its own steps, and of the backward pass the reductions, copies
// and loops whose results only the update reads. Else collectives and copies, what the node's record says,
// contractions.
std::vector<StepClass> step_classes(const Program& program);

// A value on the rank that holds the largest part of each dimension, and the call of a Run step or a
// Contract's Wait with such types (of a Contract: of all that the rank reads).
Type largest_local(const Program& program, int id);
Call largest_call(const Program& program, const Step& step);

// What people and tests count.
struct ProgramStats {
  std::map<std::string, std::int64_t> count;           // per collective kind
  std::map<std::string, std::int64_t> bytes_per_axis;  // payload per axis group ("rows", "rows+cols")
  std::int64_t collective_bytes = 0;
  double flops = 0;                 // of the rank with the largest parts
  double contraction_flops = 0;     // in matrix products only
  std::int64_t variable_bytes = 0;  // of the variables it uses, per rank, largest parts
};
ProgramStats stats(const Program& program);

}  // namespace tessera
