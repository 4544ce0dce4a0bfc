// Cuts and placements: the one formula for parts, what the rules give for a shape, and where variables are
// stored.
#include <algorithm>

#include "base/check.h"
#include "spmd/cuts.h"
#include "tessera/layout.h"

namespace tessera {

std::int64_t cut_at(std::int64_t size, std::int64_t grain, std::int64_t parts, std::int64_t i) {
  std::int64_t units = (size + grain - 1) / grain;
  std::int64_t product = 0;
  if (!__builtin_mul_overflow(i, units, &product)) return std::min(size, grain * (product / parts));
  // 128 bits, which take much longer: a huge dimension on a large mesh.
  return std::min(size, grain * static_cast<std::int64_t>(static_cast<__int128>(i) * units / parts));
}

std::int64_t part_at(std::int64_t size, std::int64_t grain, std::int64_t parts, std::int64_t x) {
  const std::int64_t units = (size + grain - 1) / grain;
  return static_cast<std::int64_t>((static_cast<__int128>(x / grain + 1) * parts - 1) / units);
}

bool cuts_agree(std::int64_t size, std::int64_t scale, std::int64_t grain, std::int64_t scaled_grain,
                std::int64_t parts) {
  if (grain == scale * scaled_grain) return true;
  const auto even = [&](std::int64_t s, std::int64_t g) {
    return s % (static_cast<__int128>(g) * parts) == 0;
  };
  if (even(scale * size, grain) && even(size, scaled_grain)) return true;
  for (std::int64_t i = 1; i < parts; ++i) {
    if (cut_at(scale * size, grain, parts, i) != scale * cut_at(size, scaled_grain, parts, i)) return false;
  }
  return true;
}

Interval part_of(const Mesh& mesh, const Cut& cut, std::int64_t size, int rank) {
  if (cut.whole()) return {0, size};
  std::int64_t parts = mesh.flat_size(cut.axes);
  std::int64_t i = mesh.flat(cut.axes, rank);
  return {cut_at(size, cut.grain, parts, i), cut_at(size, cut.grain, parts, i + 1)};
}

// Parts have equally many grains, but for one more in some. The last part is one of those, but its last grain
// may be short; so the largest is the last or the first of them.
std::int64_t largest_part(const Mesh& mesh, const Cut& cut, std::int64_t size) {
  if (cut.whole()) return size;
  const std::int64_t parts = mesh.flat_size(cut.axes), more = (size + cut.grain - 1) / cut.grain % parts;
  const std::int64_t first = more == 0 ? 0 : (parts + more - 1) / more - 1;
  const auto part = [&](std::int64_t i) {
    return cut_at(size, cut.grain, parts, i + 1) - cut_at(size, cut.grain, parts, i);
  };
  return std::max(part(first), part(parts - 1));
}

const char* to_string(Reduction r) {
  static const char* const kNames[] = {"none", "sum", "max", "min"};
  return kNames[static_cast<int>(r)];
}

bool Placement::complete() const {
  return std::all_of(pending.begin(), pending.end(), [](Reduction r) { return r == Reduction::None; });
}

std::vector<int> Placement::pending_axes() const {
  std::vector<int> axes;
  for (std::size_t a = 0; a < pending.size(); ++a) {
    if (pending[a] != Reduction::None) axes.push_back(static_cast<int>(a));
  }
  return axes;
}

Placement replicated(const Mesh& mesh, const Shape& shape) {
  return {std::vector<Cut>(shape.count()),
          std::vector<Reduction>(static_cast<std::size_t>(mesh.axis_count()), Reduction::None)};
}

std::int64_t replicas(const Mesh& mesh, const Placement& placement) {
  std::int64_t parts = 1;
  for (const Cut& cut : placement.cuts)
    for (const int axis : cut.axes) parts *= mesh.axis_size(axis);
  for (const int axis : placement.pending_axes()) parts *= mesh.axis_size(axis);
  return mesh.ranks() / parts;
}

std::string to_string(const Placement& placement, const Shape& shape, const Mesh& mesh) {
  std::vector<std::string> dims;
  for (std::size_t d = 0; d < shape.count(); ++d) {
    std::string text = shape[d].name;
    const Cut& cut = placement.cuts[d];
    for (std::size_t k = 0; k < cut.axes.size(); ++k)
      text += (k == 0 ? ":" : "+") + mesh.axis_name(cut.axes[k]);
    if (!cut.whole() && cut.grain != 1) text += fmt::format("@{}", cut.grain);
    dims.push_back(text);
  }
  std::string text = fmt::format("[{}]", fmt::join(dims, ";"));
  for (int a : placement.pending_axes()) {
    text += fmt::format(" pending {} over {}", to_string(placement.pending[static_cast<std::size_t>(a)]),
                        mesh.axis_name(a));
  }
  return text;
}

namespace {

bool same_boundaries(const Mesh& mesh, std::int64_t size, const Cut& a, const Cut& b) {
  if (a.axes != b.axes) {
    // Axes of size 1 cut nothing.
    auto effective = [&](const Cut& cut) {
      std::vector<int> axes;
      std::copy_if(cut.axes.begin(), cut.axes.end(), std::back_inserter(axes),
                   [&](int x) { return mesh.axis_size(x) > 1; });
      return axes;
    };
    if (effective(a) != effective(b)) return false;
  }
  return a.whole() || cuts_agree(size, 1, a.grain, b.grain, mesh.flat_size(a.axes));
}

}  // namespace

bool same_placement(const Mesh& mesh, const Shape& shape, const Placement& a, const Placement& b) {
  if (a.pending != b.pending) return false;
  for (std::size_t d = 0; d < shape.count(); ++d) {
    if (!same_boundaries(mesh, shape[d].size, a.cuts[d], b.cuts[d])) return false;
  }
  return true;
}

Box box_of(const Mesh& mesh, const Shape& shape, const Placement& placement, int rank) {
  Box box;
  box.start.reserve(shape.count());
  box.size.reserve(shape.count());
  for (std::size_t d = 0; d < shape.count(); ++d) {
    Interval part = part_of(mesh, placement.cuts[d], shape[d].size, rank);
    box.start.push_back(part.begin);
    box.size.push_back(part.size());
  }
  return box;
}

std::int64_t largest_elements(const Mesh& mesh, const Shape& shape, const Placement& placement) {
  std::int64_t n = 1;
  for (std::size_t d = 0; d < shape.count(); ++d) n *= largest_part(mesh, placement.cuts[d], shape[d].size);
  return n;
}

namespace {

Cut cut_of_rule(const Mesh& mesh, const Rule& rule) {
  Cut cut{{}, rule.grain};
  for (const std::string& name : rule.axes) {
    int axis = mesh.find(name);
    if (axis < 0) return {};  // an optional rule: check_layout refused the others
    cut.axes.push_back(axis);
  }
  return cut;
}

}  // namespace

Placement home_placement(const Mesh& mesh, const Layout& layout, const Shape& shape,
                         const std::string& what) {
  Placement home = replicated(mesh, shape);
  std::vector<int> user(static_cast<std::size_t>(mesh.axis_count()), -1);  // axis -> dimension that uses it
  for (std::size_t d = 0; d < shape.count(); ++d) {
    const Rule* rule = layout.find(shape[d].name);
    if (rule == nullptr) continue;
    home.cuts[d] = cut_of_rule(mesh, *rule);
    for (int axis : home.cuts[d].axes) {
      int& first = user[static_cast<std::size_t>(axis)];
      TESSERA_CHECK(first < 0,
                    "layout: dimensions '{0}' and '{1}' of {2} are both split over axis '{3}'; a tensor or "
                    "op can use an axis "
                    "once: drop the rule {0}:{3} or {1}:{3}, move one of them to another axis, or rename the "
                    "dimension here",
                    shape[static_cast<std::size_t>(first)].name, shape[d].name, what, mesh.axis_name(axis));
      first = static_cast<int>(d);
    }
  }
  return home;
}

namespace {

bool uses_axis(const Placement& placement, int axis) {
  return std::any_of(placement.cuts.begin(), placement.cuts.end(), [&](const Cut& cut) {
    return std::find(cut.axes.begin(), cut.axes.end(), axis) != cut.axes.end();
  });
}

std::string dimension_on(const Shape& shape, const Placement& placement, int axis) {
  std::size_t d = 0;
  while (std::find(placement.cuts[d].axes.begin(), placement.cuts[d].axes.end(), axis) ==
         placement.cuts[d].axes.end())
    ++d;
  return shape[d].name;
}

// The dimension that a "*" rule takes, of those that no compute rule splits: the first whose parts are equal
// (parts of an outer dimension are contiguous: they are gathered and written in one piece, and may be rows of
// a buffer that ranks share), else the largest (first on ties); -1 where all are split.
int dimension_for_all(const Mesh& mesh, const Rule& rule, const Shape& shape, const Placement& placement) {
  const std::int64_t parts = mesh.flat_size(cut_of_rule(mesh, rule).axes);
  int largest = -1;
  for (std::size_t d = 0; d < shape.count(); ++d) {
    if (!placement.cuts[d].whole()) continue;
    if (shape[d].size % (parts * rule.grain) == 0) return static_cast<int>(d);
    if (largest < 0 || shape[d].size > shape[static_cast<std::size_t>(largest)].size)
      largest = static_cast<int>(d);
  }
  return largest;
}

void apply_storage_rule(const Mesh& mesh, const Rule& rule, const char* set, const Variable& variable,
                        const Shape& shape, const Placement& home, Placement& placement,
                        std::vector<std::string>* remarks) {
  auto remark = [&](const std::string& why) {
    if (remarks != nullptr)
      remarks->push_back(fmt::format("{}.{} does not split '{}': {}", set, rule.dim, variable.name, why));
  };
  int d = rule.dim == "*" ? dimension_for_all(mesh, rule, shape, home) : shape.find(rule.dim);
  if (d < 0)
    return remark(rule.dim == "*" ? "all its dimensions are split already" : "it has no such dimension");
  Cut extra = cut_of_rule(mesh, rule);
  Cut& cut = placement.cuts[static_cast<std::size_t>(d)];
  for (int axis : extra.axes) {
    if (!uses_axis(placement, axis)) {
      cut.axes.push_back(axis);
      if (cut.axes.size() == 1) cut.grain = rule.grain;
      continue;
    }
    TESSERA_CHECK(rule.dim == "*",
                  "layout: storage rule {0}.{1}:{2} on '{3}': axis '{2}' splits its dimension '{4}' already; "
                  "use another axis, or "
                  "{0}.*:{2}, which leaves such tensors alone",
                  set, rule.dim, mesh.axis_name(axis), variable.name, dimension_on(shape, placement, axis));
    remark(fmt::format("axis '{}' splits it already", mesh.axis_name(axis)));
  }
}

}  // namespace

Placement storage_placement(const Mesh& mesh, const Layout& layout, const Variable& variable,
                            const Shape& shape, std::vector<std::string>* remarks) {
  Placement home = home_placement(mesh, layout, shape, fmt::format("variable '{}'", variable.name));
  Placement placement = home;
  bool trained = variable.kind == VariableKind::Parameter || variable.kind == VariableKind::Slot;
  if (!trained) return placement;
  for (const Rule& rule : layout.params)
    apply_storage_rule(mesh, rule, "params", variable, shape, home, placement, remarks);
  if (variable.kind == VariableKind::Slot) {
    for (const Rule& rule : layout.slots) {
      // Slots start from the parameter's storage; a rule that repeats a params rule adds nothing.
      bool repeated = std::any_of(layout.params.begin(), layout.params.end(),
                                  [&](const Rule& r) { return r.dim == rule.dim && r.axes == rule.axes; });
      if (!repeated) apply_storage_rule(mesh, rule, "slots", variable, shape, home, placement, remarks);
    }
  }
  return placement;
}

}  // namespace tessera
