// Tensors and graphs: the program as the user wrote it, without mesh or layout.
//
//   Graph g;
//   Dim batch{"batch", 128}, in{"pixels", 784}, hidden{"hidden", 1024};
//   Tensor x = g.input("images", {batch, in});
//   Tensor w = g.parameter("w1", {in, hidden}, Initializer::normal(0.05));
//   Tensor h = relu(einsum({x, w}, {batch, hidden}));                        // builders: tessera/ops.h
//
// A graph only grows; creation order is a topological order. A Tensor is a handle (graph, node, output): copy
// it freely; it is valid while its Graph lives. Threads: build a graph from one thread; reading it from many
// is fine.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "tessera/attrs.h"
#include "tessera/dim.h"

namespace tessera {

struct Op;
class Graph;

// Where the user's code called a builder.
struct Location {
  std::string file;  // base name only
  int line = 0;

  Location() = default;
  Location(std::string file_name, int line_number) : file(std::move(file_name)), line(line_number) {}
  Location(const std::source_location& where);  // NOLINT: implicit on purpose
  bool operator==(const Location&) const = default;
};

std::string to_string(const Location& where);  // "model.cc:88", "" when unknown

class Tensor {
 public:
  Tensor() = default;
  Tensor(Graph* graph, int node, int output) : graph_(graph), node_(node), output_(output) {}

  bool valid() const { return graph_ != nullptr; }
  Graph& graph() const { return *graph_; }
  int node() const { return node_; }
  int output() const { return output_; }
  const Type& type() const;
  const Shape& shape() const;
  DType dtype() const;
  Dim dim(std::string_view name) const { return shape().get(name); }
  std::string name() const;  // "scope/op" or "scope/op:1" for a further output
  bool operator==(const Tensor&) const = default;

 private:
  Graph* graph_ = nullptr;
  int node_ = -1;
  int output_ = 0;
};

// How builders take tensors: converts from Tensor and remembers the caller's line.
struct Arg {
  Tensor tensor;
  std::source_location where;
  Arg(const Tensor& t, std::source_location w = std::source_location::current())
      : tensor(t), where(w) {}  // NOLINT
};

// Which part of a training step a node belongs to. Gathered parameters are kept for one region only (they are
// freed after the forward use and gathered again for the backward one); Update nodes are computed where the
// slots are stored.
enum class Region : std::uint8_t { Forward, Backward, Update };

// Initial value of a variable: drawn by global element index from the key (seed, variable name, 0).
struct Initializer {
  enum class Kind : std::uint8_t { Zeros, Constant, Normal, TruncatedNormal, Uniform };
  Kind kind = Kind::Zeros;
  double a = 0;  // Constant: value; Normal, TruncatedNormal: standard deviation; Uniform: low
  double b = 0;  // Uniform: high

  static Initializer zeros() { return {}; }
  static Initializer ones() { return {Kind::Constant, 1, 0}; }
  static Initializer constant(double value) { return {Kind::Constant, value, 0}; }
  static Initializer normal(double stddev) { return {Kind::Normal, stddev, 0}; }
  static Initializer truncated_normal(double stddev) { return {Kind::TruncatedNormal, stddev, 0}; }
  static Initializer uniform(double low, double high) { return {Kind::Uniform, low, high}; }
};

// Parameter: trained. Slot: optimizer state of a parameter, placed like it. State: anything else (caches,
// counters). Accumulator: a sum over micro-batches; it lives where its first assignment left the value,
// pending sums included. Copy: a parameter in the type it is computed in; programs keep it, no graph has one.
enum class VariableKind : std::uint8_t { Parameter, Slot, State, Accumulator, Copy };

struct Variable {
  std::string name;
  VariableKind kind = VariableKind::Parameter;
  std::string slot_of;  // Slot and Accumulator: the parameter's name
  Initializer init;
  int node = -1;  // its "variable" node
};

struct Node {
  const Op* op = nullptr;
  std::vector<Tensor> inputs;
  std::vector<Type> outputs;
  Attrs attrs;
  std::string name;  // full: scopes joined by '/', unique in the graph
  Location where;
  Region region = Region::Forward;
  int recompute = 0;  // 0: none; k: clone for backward region k, never merged with others (DESIGN 4.16)
  std::string key;    // random ops: the name that seeds them (own name; a clone keeps its source's)
};

class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  Graph(Graph&&) = delete;

  // A tensor whose value is fed at each run. Throws UserError if the name is taken.
  Tensor input(const std::string& name, const Shape& shape, DType dtype = DType::F32,
               std::source_location where = std::source_location::current());

  // A trained variable's value. The variable's name is the scope path and `name`; throws UserError if it is
  // taken.
  Tensor parameter(const std::string& name, const Shape& shape, Initializer init, DType dtype = DType::F32,
                   std::source_location where = std::source_location::current());
  Tensor variable(VariableKind kind, const std::string& name, const Type& type, Initializer init = {},
                  const std::string& slot_of = "",
                  std::source_location where = std::source_location::current());

  // Sets the variable to `value` at the end of a run that asks for this assignment. `variable` is the tensor
  // returned above; throws UserError when it is not, when types differ, or when the variable already has an
  // assignment. Returns the assignment as a tensor without elements of its own; pass it to Session::compile
  // as a target.
  Tensor assign(Arg variable, Arg value);

  // Appends a node: infers and checks the output types (op.infer). The general builder; ops.h has one per op.
  std::vector<Tensor> add(const Op& op, const std::vector<Tensor>& inputs, Attrs attrs, Location where,
                          const std::string& name = "");

  const std::deque<Node>& nodes() const { return nodes_; }
  const Node& node(int id) const { return nodes_[static_cast<std::size_t>(id)]; }
  Node& mutable_node(int id) { return nodes_[static_cast<std::size_t>(id)]; }
  const std::vector<Variable>& variables() const { return variables_; }
  const Variable* find_variable(std::string_view name) const;
  Tensor find(std::string_view name) const;  // by full tensor name; throws UserError with the nearest name

  // Scopes: names of nodes made while a Scope lives start with its path. A node's Location is the innermost
  // of the calls (scopes from outside in, then the builder) that stands in the file of the outermost one: a
  // layer of the library opens a scope with its caller's line, so its nodes carry the user's line.
  class Scope {
   public:
    Scope(Graph& graph, const std::string& name,
          std::source_location where = std::source_location::current());
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Graph& graph_;
  };
  const std::string& scope_path() const { return path_; }

  // Nodes made while an OriginScope lives are named `path`/... from the root and carry `where`, whatever the
  // scopes and builders say: for nodes derived from other nodes (gradients, clones, expansions).
  class OriginScope {
   public:
    OriginScope(Graph& graph, const std::string& path, Location where);
    ~OriginScope();
    OriginScope(const OriginScope&) = delete;
    OriginScope& operator=(const OriginScope&) = delete;

   private:
    Graph& graph_;
    std::string old_path_;
    std::optional<Location> old_origin_;
  };

  // Nodes made while a RegionScope lives belong to its region (and recompute group).
  class RegionScope {
   public:
    RegionScope(Graph& graph, Region region, int recompute = 0)
        : graph_(graph), old_region_(graph.region_), old_recompute_(graph.recompute_) {
      graph.region_ = region;
      graph.recompute_ = recompute;
    }
    ~RegionScope() {
      graph_.region_ = old_region_;
      graph_.recompute_ = old_recompute_;
    }
    RegionScope(const RegionScope&) = delete;
    RegionScope& operator=(const RegionScope&) = delete;

   private:
    Graph& graph_;
    Region old_region_;
    int old_recompute_;
  };
  Region region() const { return region_; }
  int next_recompute_group() { return ++recompute_groups_; }

  // Side table for custom gradients (tessera/grad.h): the identity nodes `outputs` pass their gradients
  // through `grad` to `inputs` instead of their own inputs.
  struct CustomGradient {
    std::vector<Tensor> inputs;
    std::vector<Tensor> outputs;
    std::function<std::vector<Tensor>(const std::vector<Tensor>& output_grads)> grad;
  };
  void set_custom_gradient(CustomGradient custom);        // registers every node of `outputs`
  const CustomGradient* custom_gradient(int node) const;  // nullptr when it has none

  // Blocks to recompute in the backward pass: nodes [first, last) made by one call of recompute()
  // (tessera/grad.h).
  struct RecomputeRange {
    int first = 0, last = 0;
  };
  void add_recompute_range(RecomputeRange range) { recompute_ranges_.push_back(range); }
  const std::vector<RecomputeRange>& recompute_ranges() const { return recompute_ranges_; }

 private:
  void enter(const std::string& name, const Location& where);
  void leave();
  std::string unique_name(const std::string& base);
  Location provenance(const Location& where) const;
  void check_inputs(const Op& op, const std::vector<Tensor>& inputs, const std::string& where) const;
  void register_structural(const Node& node, int id);

  std::deque<Node> nodes_;
  std::vector<Variable> variables_;
  std::vector<RecomputeRange> recompute_ranges_;
  std::map<std::string, int, std::less<>> names_;     // full name -> node
  std::map<std::string, int, std::less<>> suffixes_;  // base name -> last suffix given
  std::map<std::string, std::size_t, std::less<>> variable_index_;
  std::map<std::string, int, std::less<>> assigned_;  // variable name -> node of its assignment
  std::deque<CustomGradient> custom_gradients_;
  std::map<int, const CustomGradient*> custom_of_;  // node -> its entry
  std::string path_;
  std::vector<std::pair<std::string, Location>> scopes_;  // path outside of the scope, caller
  std::optional<Location> origin_;
  Region region_ = Region::Forward;
  int recompute_ = 0;
  int recompute_groups_ = 0;
};

// Where a message should send the reader: "layer_3/ffn/wi, model.cc:88".
std::string where_text(const Node& node);

// The whole graph as text, one node a line, and back. Custom gradients are functions and do not survive:
// their nodes print with a comment. `table` lists the ops that may occur (all_ops() in tessera/ops.h).
std::string to_string(const Graph& graph);
void parse_graph(std::string_view text, std::span<const Op* const> table,
                 Graph& into);  // throws UserError with the line

// The nearest of `candidates` to a misspelt name, or "" when none is near (edit distance).
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace tessera
