// Brings a value from one placement to another with the fewest bytes: a slice where every rank holds what it
// needs, a reduce-scatter where pending sums meet a wanted cut, an all-reduce where they do not, and
// otherwise one exchange of overlapping boxes, recognised as all-gather, all-to-all or permute where it is
// one. Never a hidden full copy.
#include <algorithm>

#include "base/check.h"
#include "spmd/cuts.h"
#include "spmd/lower.h"
#include "spmd/pieces.h"

namespace tessera {
namespace {

// True when `fine` is `coarse` with further minor axes (or equal): every rank's part lies inside its coarse
// part.
bool nested(const Mesh& mesh, std::int64_t size, const Cut& fine, const Cut& coarse) {
  if (coarse.axes.size() > fine.axes.size() ||
      !std::equal(coarse.axes.begin(), coarse.axes.end(), fine.axes.begin()))
    return false;
  // Every so many boundaries of the fine cut are those of its grain over the coarse cut's axes.
  return coarse.whole() || cuts_agree(size, 1, coarse.grain, fine.grain, mesh.flat_size(coarse.axes));
}

bool all_nested(const Mesh& mesh, const Shape& shape, const Placement& fine, const Placement& coarse) {
  for (std::size_t d = 0; d < shape.count(); ++d) {
    if (!nested(mesh, shape[d].size, fine.cuts[d], coarse.cuts[d])) return false;
  }
  return true;
}

std::vector<int> sorted_axes(const Mesh& mesh, const std::set<int>& axes) {
  std::vector<int> result;
  std::copy_if(axes.begin(), axes.end(), std::back_inserter(result),
               [&](int a) { return mesh.axis_size(a) > 1; });
  return result;
}

}  // namespace

int Lowering::reshard(int id, const Placement& target, const std::string& why) {
  const Shape shape = value(id).type.shape;
  if (same_placement(mesh_, shape, value(id).placement, target)) return id;
  // Gathered parameters are kept for one region only (DESIGN 4.5); everything else once.
  bool stored = value(base_of(id)).kind == ProgramValue::Kind::Variable || value(id).from_storage;
  std::string key = fmt::format("{} {} {}", id, to_string(target, shape, mesh_),
                                stored ? static_cast<int>(origin_.region) + 10 * origin_.recompute : -1);
  auto it = memo_.find(key);
  if (it != memo_.end()) return it->second;
  int result = id;
  if (value(id).placement.pending != target.pending) result = reduce_pending(id, target, why);
  const Placement& now = value(result).placement;
  if (!same_placement(mesh_, shape, now, target)) {
    if (all_nested(mesh_, shape, target, now)) {
      result = emit_slice(result, target);
    } else {
      result = emit_collective(result, recognise(shape, now, target), Reduction::None, {}, target, why);
    }
  }
  memo_[key] = result;
  return result;
}

// Completes pending sums (or makes a complete value pending, which costs nothing), taking cuts of `target` on
// the way where that saves bytes: axes that are not pending are sliced first, pending ones become a
// reduce-scatter.
int Lowering::reduce_pending(int id, const Placement& target, const std::string& why) {
  const Shape shape = value(id).type.shape;
  Placement from = value(id).placement;
  if (from.complete()) {
    Placement pending = from;
    pending.pending = target.pending;
    return emit_slice(id, pending);
  }
  std::vector<int> to_reduce;
  for (int a : from.pending_axes()) {
    if (target.pending[static_cast<std::size_t>(a)] == Reduction::None) to_reduce.push_back(a);
  }
  Reduction reduction = from.pending[static_cast<std::size_t>(to_reduce.at(0))];
  int now = id;
  Placement goal = from;
  goal.cuts = target.cuts;
  if (all_nested(mesh_, shape, goal, from)) {
    // 1. Slice over wanted axes that are not summed over, as far as they come before the summed ones.
    Placement sliced = from;
    bool summed_cut = false;
    std::set<int> scattered;
    for (std::size_t d = 0; d < shape.count(); ++d) {
      Cut& cut = sliced.cuts[d];
      for (std::size_t k = cut.axes.size(); k < target.cuts[d].axes.size(); ++k) {
        int axis = target.cuts[d].axes[k];
        bool summed = std::find(to_reduce.begin(), to_reduce.end(), axis) != to_reduce.end();
        if (summed) {
          scattered.insert(axis);
          summed_cut = true;
          break;
        }
        if (cut.axes.empty()) cut.grain = target.cuts[d].grain;
        cut.axes.push_back(axis);
      }
    }
    if (!same_placement(mesh_, shape, sliced, from)) now = emit_slice(now, sliced);
    // 2. Reduce-scatter over the summed axes that the consumer cuts.
    if (summed_cut && enabled("reduce_scatter")) {
      Placement scatter = goal;
      scatter.pending = from.pending;
      for (int axis : scattered_axes(scatter, to_reduce))
        scatter.pending[static_cast<std::size_t>(axis)] = Reduction::None;
      std::vector<int> axes = scattered_axes(scatter, to_reduce);
      const std::optional<int> part = make_part(now, scatter, axes, why);
      now = part ? *part : emit_collective(now, CollectiveKind::ReduceScatter, reduction, axes, scatter, why);
      std::erase_if(to_reduce, [&](int a) { return std::find(axes.begin(), axes.end(), a) != axes.end(); });
    }
  }
  if (to_reduce.empty()) return now;
  Placement reduced = value(now).placement;
  for (int axis : to_reduce) reduced.pending[static_cast<std::size_t>(axis)] = Reduction::None;
  return emit_collective(now, CollectiveKind::AllReduce, reduction, to_reduce, reduced, why);
}

// The axes of `summed` that cut some dimension of the placement.
std::vector<int> Lowering::scattered_axes(const Placement& placement, const std::vector<int>& summed) const {
  std::vector<int> axes;
  for (int axis : summed) {
    for (const Cut& cut : placement.cuts) {
      if (std::find(cut.axes.begin(), cut.axes.end(), axis) != cut.axes.end()) axes.push_back(axis);
    }
  }
  return axes;
}

CollectiveKind Lowering::recognise(const Shape& shape, const Placement& from, const Placement& to) const {
  if (all_nested(mesh_, shape, from, to)) return CollectiveKind::AllGather;
  int lost = 0, gained = 0, other = 0;
  std::vector<int> lost_axes, gained_axes;
  for (std::size_t d = 0; d < shape.count(); ++d) {
    const Cut &a = from.cuts[d], &b = to.cuts[d];
    if (a == b) continue;
    if (nested(mesh_, shape[d].size, a, b)) {
      ++lost;
      lost_axes.assign(a.axes.begin() + static_cast<std::ptrdiff_t>(b.axes.size()), a.axes.end());
    } else if (nested(mesh_, shape[d].size, b, a)) {
      ++gained;
      gained_axes.assign(b.axes.begin() + static_cast<std::ptrdiff_t>(a.axes.size()), b.axes.end());
    } else {
      ++other;
    }
  }
  if (other == 0 && lost == 1 && gained == 1 && lost_axes == gained_axes) return CollectiveKind::AllToAll;
  if (other == 1 && lost == 0 && gained == 0) return CollectiveKind::Permute;
  return CollectiveKind::Exchange;
}

// Axes that are not summed over come first: cutting them moves nothing.
Placement Lowering::own_rows(const Shape& shape, Placement stored, const Placement& gradient) const {
  std::size_t first = 0;
  while (first < shape.count() && shape[first].size == 1) ++first;
  if (first == shape.count()) return stored;
  for (const bool summed : {false, true}) {
    for (int axis = 0; axis < mesh_.axis_count(); ++axis) {
      const bool cuts = std::any_of(stored.cuts.begin(), stored.cuts.end(), [&](const Cut& cut) {
        return std::find(cut.axes.begin(), cut.axes.end(), axis) != cut.axes.end();
      });
      const bool pending = gradient.pending[static_cast<std::size_t>(axis)] != Reduction::None;
      if (mesh_.axis_size(axis) > 1 && !cuts && pending == summed) stored.cuts[first].axes.push_back(axis);
    }
  }
  return stored;
}

bool Lowering::are_own_rows(const Shape& shape, const Placement& part, const Placement& stored) const {
  if (!part.complete() || !stored.complete()) return false;
  bool rows = true;  // no dimension before this one has more than one element
  for (std::size_t d = 0; d < shape.count(); ++d) {
    const bool same = part.cuts[d] == stored.cuts[d];
    if (!same && (!rows || !nested(mesh_, shape[d].size, part.cuts[d], stored.cuts[d]))) return false;
    rows = rows && shape[d].size == 1;
  }
  return true;
}

// The Run step that makes a value of stored variables and of scalars, component by component; null if there
// is none, or `target` is not of the rank's rows of those variables.
const Step* Lowering::made_of_rows(int id, const Placement& target) const {
  const auto made = std::find_if(program_.steps.rbegin(), program_.steps.rend(), [&](const Step& step) {
    return std::find(step.out.begin(), step.out.end(), id) != step.out.end();
  });
  if (made == program_.steps.rend() || made->kind != Step::Kind::Run || made->call.op->scalar == nullptr)
    return nullptr;
  const Shape& shape = value(id).type.shape;
  bool any = false;
  for (const int in : made->in) {
    if (value(in).type.shape.is_scalar()) continue;
    any = true;
    if (value(in).type.shape != shape) return nullptr;
    const bool rows = value(in).kind == ProgramValue::Kind::Variable
                          ? are_own_rows(shape, target, value(in).placement)
                          : made_of_rows(in, target) != nullptr;
    if (!rows) return nullptr;
  }
  return any ? &*made : nullptr;
}

// A slice of such a value is made of the rank's rows of the variables, so that replicas share the work: the
// update of a slot begins with such steps.
int Lowering::make_rows(int id, const Placement& target) {
  Step again = *made_of_rows(id, target);
  for (int& in : again.in) {
    if (value(in).type.shape.is_scalar()) continue;
    in = value(in).kind == ProgramValue::Kind::Variable ? reshard(in, target, "") : make_rows(in, target);
  }
  const int out = new_value({.name = value(id).name, .type = value(id).type, .placement = target});
  again.out = {out};
  emit(std::move(again));
  return out;
}

int Lowering::emit_slice(int id, const Placement& target) {
  ProgramValue result{.name = value(id).name, .type = value(id).type, .placement = target};
  const bool cut = !same_placement(mesh_, result.type.shape, value(id).placement, target);  // else a copy
  if (options_.shared_variables && cut && value(id).kind == ProgramValue::Kind::Variable &&
      are_own_rows(result.type.shape, target, value(id).placement)) {
    result.view_of = id;
    result.own_rows = true;
    return new_value(std::move(result));
  }
  if (options_.shared_variables && cut && origin_.region == Region::Update &&
      made_of_rows(id, target) != nullptr)
    return make_rows(id, target);
  Step step;
  step.kind = Step::Kind::Slice;
  step.in = {id};
  int out = new_value(std::move(result));
  step.out = {out};
  emit(std::move(step));
  inherit_sums(id, out);
  return out;
}

void Lowering::inherit_sums(int from, int to) {
  auto it = summed_.find(from);
  if (it == summed_.end() || value(to).placement.complete()) return;
  std::set<std::string> dims = it->second;
  summed_[to].insert(dims.begin(), dims.end());
}

int Lowering::emit_collective(int id, CollectiveKind kind, Reduction reduce,
                              const std::vector<int>& reduce_axes, const Placement& target,
                              const std::string& why) {
  Collective collective = describe(id, kind, reduce, reduce_axes, target, why);
  const int out = new_value({.name = value(id).name,
                             .type = value(id).type,
                             .placement = target,
                             .from_storage = value(base_of(id)).kind == ProgramValue::Kind::Variable});
  inherit_sums(id, out);
  emit_collective_into(id, out, std::move(collective));
  return out;
}

Collective Lowering::describe(int id, CollectiveKind kind, Reduction reduce,
                              const std::vector<int>& reduce_axes, const Placement& target,
                              const std::string& why) const {
  const Shape& shape = value(id).type.shape;
  Collective collective;
  collective.kind = kind;
  collective.reduce = reduce;
  collective.reduce_axes = reduce_axes;
  collective.move = identity_move(shape);
  std::set<int> axes(reduce_axes.begin(), reduce_axes.end());
  std::vector<std::string> dims;
  for (std::size_t d = 0; d < shape.count(); ++d) {
    const Cut &a = value(id).placement.cuts[d], &b = target.cuts[d];
    if (a == b) continue;
    dims.push_back(shape[d].name);
    std::set<int> before(a.axes.begin(), a.axes.end()), after(b.axes.begin(), b.axes.end());
    bool only_minor = nested(mesh_, shape[d].size, a, b) || nested(mesh_, shape[d].size, b, a);
    for (int axis : before) {
      if (after.count(axis) == 0 || !only_minor) axes.insert(axis);
    }
    for (int axis : after) {
      if (before.count(axis) == 0 || !only_minor) axes.insert(axis);
    }
  }
  collective.axes = sorted_axes(mesh_, axes);
  if (auto summed = summed_.find(id); reduce != Reduction::None && summed != summed_.end()) {
    dims.assign(summed->second.begin(), summed->second.end());  // what was summed says more than what is cut
  }
  collective.dim = fmt::format("{}", fmt::join(dims, ";"));
  collective.reason = why;
  return collective;
}

void Lowering::emit_collective_into(int in, int out, Collective collective) {
  bool counts_input =
      collective.kind == CollectiveKind::ReduceScatter || collective.kind == CollectiveKind::AllToAll;
  const ProgramValue& counted = value(counts_input ? in : out);
  collective.bytes = largest_bytes(counted.type, counted.placement);
  Step step;
  step.in = {in};
  step.out = {out};
  step.collective = std::move(collective);
  emit_start_and_wait(std::move(step), in);
}

void Lowering::emit_start_and_wait(Step step, int moved) {
  if (const std::string hint = removal_hint(step.collective, moved); !hint.empty())
    step.collective.reason += "; " + hint;
  step.kind = Step::Kind::Start;
  emit(step);
  step.kind = Step::Kind::Wait;
  step.start = static_cast<int>(program_.steps.size()) - 1;
  emit(std::move(step));
}

// Which rules made this collective necessary: those that split the dimensions it sums or moves over its axes.
std::string Lowering::removal_hint(const Collective& collective, int in) const {
  std::vector<std::string> rules;
  auto look = [&](const std::vector<Rule>& set, const char* prefix, const std::set<std::string>* dims) {
    for (const Rule& rule : set) {
      bool uses = std::any_of(collective.axes.begin(), collective.axes.end(), [&](int axis) {
        return std::find(rule.axes.begin(), rule.axes.end(), mesh_.axis_name(axis)) != rule.axes.end();
      });
      if (!uses || (dims != nullptr && rule.dim != "*" && dims->count(rule.dim) == 0)) continue;
      rules.push_back(fmt::format("{}{}:{}", prefix, rule.dim, fmt::join(rule.axes, "+")));
    }
  };
  if (value(base_of(in)).kind == ProgramValue::Kind::Variable) {
    look(layout_.params, "params.", nullptr);
    look(layout_.slots, "slots.", nullptr);
  }
  auto summed = summed_.find(in);
  if (rules.empty() && summed != summed_.end()) look(layout_.compute, "", &summed->second);
  if (rules.empty()) look(layout_.compute, "", nullptr);
  return rules.empty() ? "" : fmt::format("gone without {}", fmt::join(rules, " or "));
}

}  // namespace tessera
