// The state of one lowering: graph -> Program. lower.cpp walks the graph, lower_op.cpp lowers one op,
// lower_moves.cpp the data movement ops, reshard.cpp brings a value to another placement, lower_parts.cpp
// makes parts of sums anew, lower_update.cpp says where updates are computed, lower_copies.cpp keeps casts of
// parameters.
//
// Rules (DESIGN 4.3, 4.4): an op takes its inputs at home and leaves its result where its roles put it, sums
// pending; a value moves only when a consumer needs it elsewhere, once per region.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tessera/program.h"

namespace tessera {

// A tensor of a graph as the value that holds it.
using TensorId = std::pair<int, int>;  // node, output

// The nodes that the targets need, in an order that keeps few values alive: as created, but updates of
// variables as soon as their gradients are there.
std::vector<int> lowering_order(const Graph& graph, const std::vector<Tensor>& targets, bool early_updates);

// Output dimension -> the input dimension that it continues, or "" when it is made by the op.
std::string continued_from(const Call& call, const Dim& out);
bool meets(const std::vector<int>& a, const std::vector<int>& b);  // some axis is in both

class Lowering {
 public:
  Lowering(const Mesh& mesh, const Layout& layout, LowerOptions& options);

  Program run(const Graph& graph, const std::vector<Tensor>& targets);

 private:
  // One graph being lowered: the user's, or the scratch graph of an expansion.
  struct Scope {
    const Graph* graph = nullptr;
    bool expansion = false;             // provenance stays with the op that is expanded
    std::map<TensorId, int> value;      // where each lowered tensor is
    std::map<TensorId, int> open_uses;  // consumers not lowered yet
    std::set<TensorId> must_complete;   // some consumer cannot take pending sums
    std::map<const Node*, std::string>
        storage_of;  // makes the gradient of that parameter for its update alone
  };
  // Who is being lowered: provenance of the steps made.
  struct Origin {
    std::string name;
    std::string key;
    Location where;
    tessera::Region region = tessera::Region::Forward;
    int recompute = 0;
    StepClass node_class = StepClass::ComponentWise;
  };
  // Steps that are made while it lives have this origin.
  class OriginScope {
   public:
    OriginScope(Lowering& lowering, Origin origin)
        : lowering_(lowering), saved_(std::exchange(lowering.origin_, std::move(origin))) {}
    ~OriginScope() { lowering_.origin_ = std::move(saved_); }
    OriginScope(const OriginScope&) = delete;
    OriginScope& operator=(const OriginScope&) = delete;

   private:
    Lowering& lowering_;
    Origin saved_;
  };

  // --- lower.cpp
  void count_uses(Scope& scope, const std::vector<int>& order, const std::vector<Tensor>& targets) const;
  void lower_node(Scope& scope, int id);
  void lower_feed(Scope& scope, int id);
  void lower_variable(Scope& scope, int id);
  void lower_assign(Scope& scope, int id);
  void lower_accumulator(Scope& scope, int id, const Node& consumer);
  void set_value(Scope& scope, TensorId tensor, int value);
  int lower_fetch(const Scope& scope, const Tensor& target);
  void emit_ready_assigns(bool all);
  void remark_repeated_work();

  // --- lower_op.cpp
  // What one op does with the dimensions of its inputs.
  struct OpCuts {
    std::map<std::string, Cut> cut;        // dimension name -> cut in this op
    std::vector<Placement> inputs;         // what each input must be brought to (without delayed pendings)
    std::vector<std::string> split_whole;  // Whole dimensions that home splits
  };
  // Without the pass "joint" what needs it is Whole.
  Role role(const Call& call, std::size_t input, const std::string& dim) const;
  std::vector<int> lower_op(Scope& scope, const Node& node, const std::vector<int>& inputs);
  // `storage_of`: the parameter whose gradient it makes, or "".
  OpCuts decide_cuts(const Call& call, const std::vector<int>& inputs, const std::string& storage_of);
  void check_conflicts(const Call& call, const std::map<std::string, Cut>& cut) const;
  std::vector<int> expand_op(const Call& call, const std::vector<int>& inputs, const OpCuts& cuts);
  std::optional<std::vector<int>> delayed_axes(const Scope& scope, const Node& node, const Call& call,
                                               const std::vector<int>& inputs, const OpCuts& cuts,
                                               std::vector<bool>& delayed) const;
  void note_sums(const Call& call, const std::vector<int>& inputs, const std::vector<int>& outputs,
                 const OpCuts& cuts);
  Placement output_placement(const Call& call, int output, const OpCuts& cuts,
                             const std::vector<int>& delayed) const;
  std::vector<int> emit_run(const Call& call, const std::vector<int>& inputs,
                            const std::vector<Placement>& outputs);
  void join_ranks(Step& step) const;
  void count_repeated_work(const Call& call, const std::vector<int>& inputs,
                           const std::vector<Placement>& outputs);

  // --- lower_parts.cpp
  std::optional<int> make_part(int id, const Placement& target, const std::vector<int>& summed,
                               const std::string& why);
  std::optional<int> contract_part(const Step& maker, const Placement& target, const std::vector<int>& summed,
                                   const std::string& why);
  std::optional<int> add_parts(const Step& add, const Placement& target, const std::string& why);
  std::optional<std::vector<Placement>> inputs_of_part(const Step& maker, const Placement& target) const;
  std::int64_t largest_bytes(const Type& type, const Placement& placement) const;

  // --- lower_update.cpp
  void find_gradients(Scope& scope, const std::vector<int>& order) const;
  void refine_in_update(const Call& call, const std::vector<int>& inputs,
                        std::map<std::string, Cut>& cut) const;
  void take_storage_cuts(const Call& call, const std::string& parameter, const Placement& gradient,
                         std::map<std::string, Cut>& cut) const;

  // --- lower_copies.cpp
  std::optional<int> kept_copy(const Call& call, const std::vector<int>& inputs);  // of a cast's input
  int copy_of(const std::string& parameter);
  void assign_copy(const std::string& parameter, int source);

  // --- lower_moves.cpp
  std::vector<int> lower_moves(Scope& scope, const Node& node, const Call& call,
                               const std::vector<int>& inputs);
  std::vector<int> move_sources(const Scope& scope, const Node& node, const Call& call,
                                const std::vector<int>& inputs);
  std::optional<Placement> carried_placement(const std::vector<Move>& moves, int output, const Type& type,
                                             const std::vector<int>& inputs) const;
  void cut_new_dimensions(const std::vector<Move>& moves, int output, const Shape& shape,
                          const std::vector<int>& inputs, Placement& placement) const;
  bool is_view(const std::vector<Move>& moves, int in, const Shape& out) const;
  double fill_of(const Call& call) const;
  void emit_fill_if_needed(const Call& call, const std::vector<Move>& moves, int out);
  void emit_local_moves(const Call& call, const std::vector<Move>& moves, const std::vector<int>& sources,
                        int out);
  void emit_exchange(const Call& call, const std::vector<Move>& moves, const std::vector<int>& sources,
                     int out);
  std::vector<int> exchange_axes(const Move& move, int in, int out) const;

  // --- reshard.cpp
  int reshard(int value, const Placement& target, const std::string& why);
  int reduce_pending(int value, const Placement& target, const std::string& why);
  const Step* made_of_rows(int id, const Placement& target) const;
  int make_rows(int id, const Placement& target);
  int emit_slice(int value, const Placement& target);
  // Rows that a rank has to itself of a variable stored as `stored`: its first dimension cut over every axis
  // that has replicas.
  Placement own_rows(const Shape& shape, Placement stored, const Placement& gradient) const;
  bool are_own_rows(const Shape& shape, const Placement& part, const Placement& stored) const;
  int emit_collective(int value, CollectiveKind kind, Reduction reduce, const std::vector<int>& reduce_axes,
                      const Placement& target, const std::string& why);
  // How a value comes to `target`; without the bytes.
  Collective describe(int value, CollectiveKind kind, Reduction reduce, const std::vector<int>& reduce_axes,
                      const Placement& target, const std::string& why) const;
  void emit_start_and_wait(Step step, int moved);  // `moved`: the value whose rules asked for it
  void emit_collective_into(int in, int out, Collective collective);
  std::vector<int> scattered_axes(const Placement& placement, const std::vector<int>& summed) const;
  CollectiveKind recognise(const Shape& shape, const Placement& from, const Placement& to) const;
  std::string removal_hint(const Collective& collective, int in) const;
  void inherit_sums(int from, int to);

  // --- helpers
  int new_value(ProgramValue value);
  Step& emit(Step step);
  const ProgramValue& value(int id) const { return program_.values[static_cast<std::size_t>(id)]; }
  int base_of(int id) const;
  bool enabled(const char* pass) const { return options_.without.count(pass) == 0; }
  Placement home(const Shape& shape, const std::string& what) const {
    return home_placement(mesh_, layout_, shape, what);
  }
  Cut home_cut(const Dim& dim) const;
  Placement completed(Placement placement) const;
  std::string fresh_name(const std::string& base);

  const Mesh& mesh_;
  const Layout& layout_;
  LowerOptions& options_;
  Program program_;
  Origin origin_;
  std::map<std::string, int> memo_;       // (value, placement, region) -> value
  std::map<std::string, int> variables_;  // name -> value
  struct PendingAssign {
    int value;
    int variable;  // or a rank's own rows of it
    Origin origin;
    int master = -1;  // the parameter whose reads have to be lowered, too: they may be reads of its copy
  };
  std::vector<PendingAssign> assigns_;  // waiting for the variable's last read
  std::map<int, double> repeated_;      // axis -> flops of heavy ops that it does not split
  double heavy_flops_ = 0;
  std::map<std::string, int> value_names_;
  std::map<int, std::set<std::string>> summed_;  // pending value -> dimensions whose sums it still lacks
  std::map<int, int> maker_;                     // value -> the Run step that makes it
  std::map<int, int> open_reads_;  // variable value -> consumers of it or of a view, not lowered yet
};

}  // namespace tessera
