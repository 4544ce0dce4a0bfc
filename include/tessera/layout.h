// Meshes, layouts and placements: who holds which part of a tensor.
//
//   Mesh   mesh   = Mesh::parse("rows:2;cols:2");
//   Layout layout = Layout::parse("batch:rows;hidden:cols");
//
// Plain values; pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/box.h"
#include "tessera/dim.h"
#include "tessera/graph.h"

namespace tessera {

// An n-dimensional array of processors with named axes. Ranks are numbered row-major: the last axis varies
// fastest.
class Mesh {
 public:
  Mesh() = default;                          // one rank, no axes
  explicit Mesh(std::vector<Dim> axes);      // throws UserError on bad or repeated names, sizes < 1
  static Mesh parse(std::string_view text);  // "rows:2;cols:2"; "" is one rank

  const std::vector<Dim>& axes() const { return axes_; }
  int axis_count() const { return static_cast<int>(axes_.size()); }
  int axis_size(int axis) const { return static_cast<int>(axes_[static_cast<std::size_t>(axis)].size); }
  const std::string& axis_name(int axis) const { return axes_[static_cast<std::size_t>(axis)].name; }
  int find(std::string_view name) const;  // index, or -1
  int ranks() const;
  std::vector<int> coordinates(int rank) const;
  int rank_of(const std::vector<int>& coordinates) const;
  // Position of `rank` along several axes taken as one (first axis the most significant), and the size of
  // that product.
  int flat(const std::vector<int>& axes, int rank) const;
  int flat_size(const std::vector<int>& axes) const;
  // The ranks that differ from `rank` only along `axes`, in flat order.
  std::vector<int> group(const std::vector<int>& axes, int rank) const;

  bool operator==(const Mesh&) const = default;

 private:
  std::vector<Dim> axes_;
};
std::string to_string(const Mesh& mesh);

// One rule: dimension -> axes (first the most significant), with a grain. `dim` is "*" only in storage rules.
struct Rule {
  std::string dim;
  std::vector<std::string> axes;
  std::int64_t grain = 1;
  bool optional = false;  // trailing '?': not an error when dimension or axis does not exist

  bool operator==(const Rule&) const = default;
};

// Compute rules, and storage rules for parameters and for optimizer slots.
//   "batch:rows; d_ff:cols; vocab:rows+cols; features:cols@64; heads:cols?; params.d_model:rows;
//   slots.*:rows"
struct Layout {
  std::vector<Rule> compute;
  std::vector<Rule> params;
  std::vector<Rule> slots;

  static Layout parse(std::string_view text);  // throws UserError with the position of the fault
  // "dp", "mp", "dp_mp", "fsdp" for a mesh (first axis: data, last axis: model), or a layout text.
  static Layout preset_or_parse(std::string_view text, const Mesh& mesh);
  const Rule* find(std::string_view dim) const;  // compute rule, nullptr when none
  bool operator==(const Layout&) const = default;
};
std::string to_string(const Layout& layout);

// Checks that every rule's dimension occurs in the graph and every axis in the mesh, that no dimension has
// two rules and no axis occurs twice in one. Throws UserError that suggests the nearest name. Returns remarks
// (optional rules not used).
std::vector<std::string> check_layout(const Graph& graph, const Mesh& mesh, const Layout& layout);

// How one dimension is cut: over which mesh axes (indices, major first), in multiples of `grain`.
struct Cut {
  std::vector<int> axes;
  std::int64_t grain = 1;

  bool whole() const { return axes.empty(); }
  bool operator==(const Cut&) const = default;
};

// The one formula (DESIGN 4.1): part i of n of a dimension of size s is [cut_at(i), cut_at(i+1)),
// cut_at(i) = min(s, grain * floor(i * ceil(s/grain) / n)).
std::int64_t cut_at(std::int64_t size, std::int64_t grain, std::int64_t parts, std::int64_t i);
struct Interval {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};
Interval part_of(const Mesh& mesh, const Cut& cut, std::int64_t size, int rank);
std::int64_t largest_part(const Mesh& mesh, const Cut& cut, std::int64_t size);

enum class Reduction : std::uint8_t { None, Sum, Max, Min };
const char* to_string(Reduction r);  // "sum", ...

// State of a tensor on the mesh: per dimension its cut; per mesh axis whether values are still partial.
struct Placement {
  std::vector<Cut> cuts;           // per dimension of the shape
  std::vector<Reduction> pending;  // per mesh axis; None: replicated or used by a cut

  bool complete() const;
  std::vector<int> pending_axes() const;
  bool operator==(const Placement&) const = default;
};
Placement replicated(const Mesh& mesh, const Shape& shape);
// How many ranks hold the same values: the product of the axes that neither cut nor are summed over.
std::int64_t replicas(const Mesh& mesh, const Placement& placement);
// "[batch:rows;hidden] pending sum over cols"
std::string to_string(const Placement& placement, const Shape& shape, const Mesh& mesh);

// True when every rank holds the same box under both (cuts are compared by their boundaries) and pendings are
// equal.
bool same_placement(const Mesh& mesh, const Shape& shape, const Placement& a, const Placement& b);

// The box of global indices that a rank holds.
Box box_of(const Mesh& mesh, const Shape& shape, const Placement& placement, int rank);
// Elements of the largest box (product of largest parts).
std::int64_t largest_elements(const Mesh& mesh, const Shape& shape, const Placement& placement);

// What the compute rules give for a shape. Throws UserError naming `what`, both dimensions, the axis and the
// legal alternatives when two dimensions of the shape are split over one axis.
Placement home_placement(const Mesh& mesh, const Layout& layout, const Shape& shape, const std::string& what);

// Where a variable is stored: compute placement plus storage rules (DESIGN 4.5). Remarks list tensors that a
// "*" rule skipped.
Placement storage_placement(const Mesh& mesh, const Layout& layout, const Variable& variable,
                            const Shape& shape, std::vector<std::string>* remarks = nullptr);

}  // namespace tessera
