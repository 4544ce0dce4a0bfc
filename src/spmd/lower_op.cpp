// Lowering of one op: how its roles and the rules cut its dimensions, which pending sums flow through it,
// where its results are left.
#include <algorithm>

#include "base/check.h"
#include "spmd/lower.h"

namespace tessera {
namespace {

bool contains(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<int> real_axes(const Mesh& mesh, const Cut& cut) {
  std::vector<int> axes;
  std::copy_if(cut.axes.begin(), cut.axes.end(), std::back_inserter(axes),
               [&](int a) { return mesh.axis_size(a) > 1; });
  return axes;
}

// How the shards' outputs are pending where a dimension with this role is split.
Reduction reduction_of(Role role) {
  switch (role) {
    case Role::Map:
    case Role::Whole:
      return Reduction::None;
    case Role::Sum:
    case Role::Joint:
      return Reduction::Sum;
    case Role::Max:
      return Reduction::Max;
    case Role::Min:
      return Reduction::Min;
  }
  TESSERA_ASSERT(false, "unknown role");
}

std::string where_text(const Call& call, const Location& where) {
  std::string line = to_string(where);
  return line.empty() ? call.name : fmt::format("{}, {}", call.name, line);
}

}  // namespace

bool meets(const std::vector<int>& a, const std::vector<int>& b) {
  return std::any_of(a.begin(), a.end(), [&](int x) { return std::find(b.begin(), b.end(), x) != b.end(); });
}

std::string continued_from(const Call& call, const Dim& out) {
  Renames renames = call.op->renames ? call.op->renames(call) : Renames{};
  std::string source = out.name;
  bool renamed_away = false;
  for (const auto& [from, to] : renames) {
    if (to == out.name) source = from;
    if (from == out.name && to != out.name) renamed_away = true;
  }
  if (source == out.name && renamed_away) return "";
  bool resized = call.op->resized != nullptr && contains(call.op->resized(call), source);
  for (const Type& in : call.in) {
    int d = in.shape.find(source);
    if (d < 0) continue;
    if (source == out.name && resized && in.shape[static_cast<std::size_t>(d)].size != out.size) continue;
    return source;
  }
  return "";
}

Role Lowering::role(const Call& call, std::size_t input, const std::string& dim) const {
  const Role role = role_of(call, static_cast<int>(input), dim);
  return role == Role::Joint && !enabled("joint") ? Role::Whole : role;
}

std::vector<int> Lowering::lower_op(Scope& scope, const Node& node, const std::vector<int>& inputs) {
  Call call = call_of(node);
  call.name = node.name;  // values and steps are named after the node; messages add the location themselves
  if (call.op->moves != nullptr) return lower_moves(scope, node, call, inputs);
  if (const std::optional<int> copy = kept_copy(call, inputs)) return {*copy};
  const auto gradient = scope.storage_of.find(&node);
  OpCuts cuts = decide_cuts(call, inputs, gradient == scope.storage_of.end() ? "" : gradient->second);
  check_conflicts(call, cuts.cut);
  if (!cuts.split_whole.empty() && call.op->expand != nullptr) return expand_op(call, inputs, cuts);
  std::vector<bool> delayed(inputs.size(), false);
  std::vector<int> pending =
      delayed_axes(scope, node, call, inputs, cuts, delayed).value_or(std::vector<int>{});
  std::vector<int> brought;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Placement target = cuts.inputs[i];
    if (delayed[i]) target.pending = value(inputs[i]).placement.pending;
    brought.push_back(reshard(inputs[i], target, fmt::format("for {} '{}'", call.op->name, call.name)));
  }
  std::vector<Placement> outputs;
  for (std::size_t o = 0; o < call.out.size(); ++o) {
    outputs.push_back(output_placement(call, static_cast<int>(o), cuts, pending));
  }
  std::vector<int> results = emit_run(call, brought, outputs);
  note_sums(call, brought, results, cuts);
  return results;
}

// Remembers, for people, which dimensions a pending result was summed over: those of this op and those of its
// pending inputs.
void Lowering::note_sums(const Call& call, const std::vector<int>& inputs, const std::vector<int>& outputs,
                         const OpCuts& cuts) {
  std::set<std::string> flowing;
  std::map<std::string, std::vector<int>> split;  // dimensions that this op sums over, their axes
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    auto known = summed_.find(inputs[i]);
    if (known != summed_.end() && !value(inputs[i]).placement.complete())
      flowing.insert(known->second.begin(), known->second.end());
    for (const Dim& dim : call.in[i].shape)
      if (reduction_of(role(call, i, dim.name)) != Reduction::None)
        split[dim.name] = real_axes(mesh_, cuts.cut.at(dim.name));
  }
  for (int id : outputs) {
    if (value(id).placement.complete()) continue;
    std::set<std::string>& dims = summed_[id] = flowing;
    for (const auto& [dim, axes] : split)
      if (meets(axes, value(id).placement.pending_axes())) dims.insert(dim);
  }
}

Lowering::OpCuts Lowering::decide_cuts(const Call& call, const std::vector<int>& inputs,
                                       const std::string& storage_of) {
  OpCuts cuts;
  auto actual_cut = [&](std::size_t i, std::size_t d) { return value(inputs[i]).placement.cuts[d]; };
  // Whole dimensions: no input has it split right now, or home does not, so that it is gathered there anyway.
  std::map<std::string, bool> whole_already;
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    const Shape& shape = call.in[i].shape;
    for (std::size_t d = 0; d < shape.count(); ++d) {
      const std::string& name = shape[d].name;
      if (role(call, i, name) != Role::Whole) {
        cuts.cut.emplace(name, home_cut(shape[d]));
      } else {
        bool whole =
            real_axes(mesh_, actual_cut(i, d)).empty() || real_axes(mesh_, home_cut(shape[d])).empty();
        auto [it, fresh] = whole_already.emplace(name, whole);
        if (!fresh) it->second = it->second && whole;
      }
    }
  }
  for (const auto& [name, whole] : whole_already) {
    if (!whole) cuts.split_whole.push_back(name);
  }
  if (origin_.region == Region::Update) refine_in_update(call, inputs, cuts.cut);
  if (!storage_of.empty()) take_storage_cuts(call, storage_of, value(inputs[0]).placement, cuts.cut);
  if (call.op->aligned != nullptr) {
    for (const auto& [dim, part] : call.op->aligned(call)) cuts.cut[part] = {cuts.cut[dim].axes, 1};
  }
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    const Shape& shape = call.in[i].shape;
    Placement target = replicated(mesh_, shape);
    for (std::size_t d = 0; d < shape.count(); ++d) {
      if (role(call, i, shape[d].name) != Role::Whole) target.cuts[d] = cuts.cut.at(shape[d].name);
    }
    cuts.inputs.push_back(std::move(target));
  }
  return cuts;
}

void Lowering::check_conflicts(const Call& call, const std::map<std::string, Cut>& cut) const {
  std::map<std::string, Cut> all = cut;
  for (std::size_t o = 0; o < call.out.size(); ++o) {
    for (const Dim& dim : call.out[o].shape) {
      if (!continued_from(call, dim).empty()) continue;
      bool whole =
          call.op->made != nullptr && call.op->made(call, static_cast<int>(o), dim.name) == Role::Whole;
      if (!whole) all.emplace(dim.name, home_cut(dim));
    }
  }
  Renames aligned = call.op->aligned ? call.op->aligned(call) : Renames{};
  std::map<int, std::string> user;  // axis -> dimension
  for (const auto& [name, c] : all) {
    bool follower = std::any_of(aligned.begin(), aligned.end(),
                                [&, &n = name](const auto& pair) { return pair.second == n; });
    if (follower) continue;
    for (int axis : c.axes) {
      auto [it, fresh] = user.emplace(axis, name);
      if (fresh) continue;
      std::vector<std::string> free_axes;
      for (int a = 0; a < mesh_.axis_count(); ++a) {
        bool taken = std::any_of(all.begin(), all.end(),
                                 [&](const auto& other) { return meets({a}, other.second.axes); });
        if (!taken) free_axes.push_back(mesh_.axis_name(a));
      }
      std::string choice = free_axes.empty() ? std::string("drop one of the two rules")
                                             : fmt::format("put one of them on {}, or drop one rule",
                                                           fmt::join(free_axes, " or "));
      throw UserError(fmt::format(
          "{}: dimensions '{}' and '{}' are both split over axis '{}' ({}); {}, or rename one before this op",
          call.op->name, it->second, name, mesh_.axis_name(axis), where_text(call, origin_.where), choice));
    }
  }
}

std::vector<int> Lowering::expand_op(const Call& call, const std::vector<int>& inputs, const OpCuts& cuts) {
  Graph scratch;
  Graph::RegionScope region(scratch, origin_.region, origin_.recompute);
  ExpandContext context{scratch, call, {}, {}, origin_.where};
  Scope scope;
  scope.graph = &scratch;
  scope.expansion = true;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    context.inputs.push_back(scratch.input(fmt::format("in{}", i), call.in[i].shape, call.in[i].dtype));
  }
  for (const std::string& name : cuts.split_whole) {
    for (const Type& in : call.in) {
      int d = in.shape.find(name);
      if (d >= 0) context.parts[name] = mesh_.flat_size(home_cut(in.shape[static_cast<std::size_t>(d)]).axes);
    }
  }
  std::vector<Tensor> outputs = call.op->expand(context);
  std::vector<int> order = lowering_order(scratch, outputs, enabled("early_update"));
  count_uses(scope, order, {});
  for (std::size_t i = 0; i < inputs.size(); ++i) set_value(scope, {context.inputs[i].node(), 0}, inputs[i]);
  for (int id : order) lower_node(scope, id);
  std::vector<int> values;
  for (const Tensor& out : outputs) values.push_back(scope.value.at({out.node(), out.output()}));
  return values;
}

// The axes over which this op's result stays pending because an input is (DESIGN 4.4), or nothing.
std::optional<std::vector<int>> Lowering::delayed_axes(const Scope& scope, const Node& node, const Call& call,
                                                       const std::vector<int>& inputs, const OpCuts& cuts,
                                                       std::vector<bool>& delayed) const {
  if (!enabled("delay") || call.op->linear == nullptr || call.op->products != nullptr) return std::nullopt;
  std::vector<int> pending;
  std::size_t candidates = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Placement& placement = value(inputs[i]).placement;
    std::vector<int> axes = placement.pending_axes();
    bool sums = !axes.empty() && std::all_of(axes.begin(), axes.end(), [&](int a) {
      return placement.pending[static_cast<std::size_t>(a)] == Reduction::Sum;
    });
    const Tensor& in = node.inputs[i];
    bool usable = sums && call.op->linear(call, static_cast<int>(i)) &&
                  scope.must_complete.count({in.node(), in.output()}) == 0;
    if (!usable || (candidates > 0 && (!call.op->additive || axes != pending))) continue;
    pending = axes;
    delayed[i] = true;
    ++candidates;
  }
  bool possible = candidates > 0 && (!call.op->additive || candidates == inputs.size());
  std::int64_t in_bytes = 0, out_bytes = 0;
  for (std::size_t i = 0; possible && i < inputs.size(); ++i) {
    for (const Cut& cut : cuts.inputs[i].cuts) possible = possible && !meets(cut.axes, pending);
    if (delayed[i]) {
      in_bytes += largest_elements(mesh_, call.in[i].shape, cuts.inputs[i]) *
                  static_cast<std::int64_t>(size_of(call.in[i].dtype));
    }
  }
  for (std::size_t o = 0; possible && o < call.out.size(); ++o) {
    Placement out = output_placement(call, static_cast<int>(o), cuts, {});
    for (const Cut& cut : out.cuts) possible = possible && !meets(cut.axes, pending);
    for (int axis : out.pending_axes()) possible = possible && !meets({axis}, pending);
    out_bytes += largest_elements(mesh_, call.out[o].shape, out) *
                 static_cast<std::int64_t>(size_of(call.out[o].dtype));
  }
  if (possible && out_bytes <= in_bytes) return pending;
  delayed.assign(inputs.size(), false);
  return std::nullopt;
}

Placement Lowering::output_placement(const Call& call, int output, const OpCuts& cuts,
                                     const std::vector<int>& delayed) const {
  const Shape& shape = call.out[static_cast<std::size_t>(output)].shape;
  Placement placement = replicated(mesh_, shape);
  const Names resized = call.op->resized != nullptr ? call.op->resized(call) : Names{};
  Names kept;  // input dimensions that this output continues
  for (std::size_t d = 0; d < shape.count(); ++d) {
    std::string source = continued_from(call, shape[d]);
    if (source.empty()) {
      bool whole = call.op->made != nullptr && call.op->made(call, output, shape[d].name) == Role::Whole;
      if (!whole) placement.cuts[d] = home_cut(shape[d]);
      continue;
    }
    auto it = cuts.cut.find(source);
    if (it == cuts.cut.end()) continue;  // Whole
    placement.cuts[d] = it->second;
    if (!contains(resized, source)) kept.push_back(source);
    if (source != shape[d].name) placement.cuts[d].grain = 1;
  }
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    for (const Dim& dim : call.in[i].shape) {
      const Reduction reduction = reduction_of(role(call, i, dim.name));
      if (reduction == Reduction::None || contains(kept, dim.name)) continue;
      for (int axis : real_axes(mesh_, cuts.cut.at(dim.name)))
        placement.pending[static_cast<std::size_t>(axis)] = reduction;
    }
  }
  for (int axis : delayed) placement.pending[static_cast<std::size_t>(axis)] = Reduction::Sum;
  return placement;
}

std::vector<int> Lowering::emit_run(const Call& call, const std::vector<int>& inputs,
                                    const std::vector<Placement>& outputs) {
  Step step;
  step.kind = Step::Kind::Run;
  step.call = call;
  step.in = inputs;
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    std::string name = o == 0 ? call.name : fmt::format("{}:{}", call.name, o);
    if (call.name != origin_.name) name = fmt::format("{}/{}", origin_.name, name);  // inside an expansion
    step.out.push_back(new_value({.name = name, .type = call.out[o], .placement = outputs[o]}));
  }
  if (call.op->exchange != nullptr) join_ranks(step);
  std::vector<int> out = step.out;
  for (int id : out) maker_[id] = static_cast<int>(program_.steps.size());
  if (call.op->products != nullptr) count_repeated_work(call, inputs, outputs);
  emit(std::move(step));
  return out;
}

// Where Joint dimensions are split, their ranks run the step together.
void Lowering::join_ranks(Step& step) const {
  std::set<int> axes;
  Names dims;
  Call local = step.call;
  for (std::size_t i = 0; i < step.in.size(); ++i) {
    const ProgramValue& in = value(step.in[i]);
    std::vector<Dim> sizes = in.type.shape.dims();
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      const Cut& cut = in.placement.cuts[d];
      const std::vector<int> real = real_axes(mesh_, cut);
      sizes[d].size = largest_part(mesh_, cut, sizes[d].size);
      if (real.empty() || role(step.call, i, sizes[d].name) != Role::Joint) continue;
      axes.insert(real.begin(), real.end());
      if (!contains(dims, sizes[d].name)) dims.push_back(sizes[d].name);
    }
    local.in[i].shape = Shape(std::move(sizes));
  }
  if (axes.empty()) return;
  const Exchange told = step.call.op->exchange(local);
  Collective& c = step.collective;
  c.kind = CollectiveKind::Joint;
  c.axes.assign(axes.begin(), axes.end());
  c.dim = fmt::format("{}", fmt::join(dims, ";"));
  c.bytes = told.times * told.bytes * (mesh_.flat_size(c.axes) - 1);
  c.reason = fmt::format("parts of '{}' are computed together", c.dim);
}

void Lowering::count_repeated_work(const Call& call, const std::vector<int>& inputs,
                                   const std::vector<Placement>& outputs) {
  const double flops = product_flops(call);
  heavy_flops_ += flops;
  for (int axis = 0; axis < mesh_.axis_count(); ++axis) {
    auto cut_by = [&](const Placement& p) {
      return p.pending[static_cast<std::size_t>(axis)] != Reduction::None ||
             std::any_of(p.cuts.begin(), p.cuts.end(), [&](const Cut& c) { return meets({axis}, c.axes); });
    };
    bool used =
        std::any_of(outputs.begin(), outputs.end(), cut_by) ||
        std::any_of(inputs.begin(), inputs.end(), [&](int id) { return cut_by(value(id).placement); });
    if (!used) repeated_[axis] += flops;
  }
}

}  // namespace tessera
