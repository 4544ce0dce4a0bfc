// Parts of pending sums, made from all inputs of the op that would make the whole, where that moves fewer
// bytes than a reduce-scatter.
#include <algorithm>

#include "spmd/lower.h"

namespace tessera {

// A pending sum that is wanted in parts only: where the op that made it can make a part from all of its
// inputs, and these are the fewer bytes, they are gathered instead (the gradient of an embedding: its rows
// are the table's, its inputs a batch's tokens). The op's earlier result is dropped when nobody else reads
// it.
std::optional<int> Lowering::make_part(int id, const Placement& target, const std::vector<int>& summed,
                                       const std::string& why) {
  const auto made = maker_.find(id);
  if (made == maker_.end() || !enabled("split_output")) return std::nullopt;
  const Step maker = program_.steps[static_cast<std::size_t>(made->second)];
  if (maker.out.size() != 1) return std::nullopt;
  if (maker.call.op->contraction) return contract_part(maker, target, summed, why);
  if (maker.call.op->additive) return add_parts(maker, target, why);
  const std::optional<std::vector<Placement>> wanted = inputs_of_part(maker, target);
  if (!wanted) return std::nullopt;
  const OriginScope scope(*this, {maker.name, maker.key, maker.where, maker.region, origin_.recompute});
  std::vector<int> inputs;
  for (std::size_t i = 0; i < maker.in.size(); ++i) inputs.push_back(reshard(maker.in[i], (*wanted)[i], why));
  return emit_run(maker.call, inputs, {target}).front();
}

// Ranks that share memory read each other's inputs of a contraction where they lie (the gradient of a weight:
// the batch's activations). A reduce-scatter costs writing the whole result and reading all partial ones;
// this, what is read beyond a rank's own inputs.
std::optional<int> Lowering::contract_part(const Step& maker, const Placement& target,
                                           const std::vector<int>& summed, const std::string& why) {
  const int id = maker.out[0];
  if (!options_.shared_variables || !is_floating(value(id).type.dtype)) return std::nullopt;
  Step step;
  step.collective = describe(id, CollectiveKind::Contract, Reduction::Sum, summed, target, why);
  std::vector<int> axes = summed;
  std::sort(axes.begin(), axes.end());
  if (step.collective.axes != axes) return std::nullopt;
  const Shape& shape = value(id).type.shape;
  const std::int64_t members = mesh_.flat_size(summed);
  std::int64_t more = 0;
  for (const int in : maker.in) {
    const Type& type = value(in).type;
    Placement taken = value(in).placement;
    for (std::size_t d = 0; d < type.shape.count(); ++d)
      if (const int o = shape.find(type.shape[d].name); o >= 0)
        taken.cuts[d] = target.cuts[static_cast<std::size_t>(o)];
    const std::int64_t bytes = largest_bytes(type, taken);
    step.collective.bytes += (members - 1) * bytes;
    more += members * bytes - largest_bytes(type, value(in).placement);
  }
  if (more > largest_bytes(value(id).type, value(id).placement)) return std::nullopt;
  const int part = new_value({.name = value(id).name, .type = value(id).type, .placement = target});
  inherit_sums(id, part);
  step.call = maker.call;
  step.in = maker.in;
  step.out = {part};
  const OriginScope scope(
      *this, {maker.name, maker.key, maker.where, maker.region, origin_.recompute, maker.node_class});
  emit_start_and_wait(std::move(step), id);
  return part;
}

std::int64_t Lowering::largest_bytes(const Type& type, const Placement& placement) const {
  return largest_elements(mesh_, type.shape, placement) * static_cast<std::int64_t>(size_of(type.dtype));
}

// The parts of a sum of such values, when one of them is better made so.
std::optional<int> Lowering::add_parts(const Step& add, const Placement& target, const std::string& why) {
  bool better = false;
  for (int in : add.in) {
    if (!(value(in).type == value(add.out[0]).type) ||
        value(in).placement.pending != value(add.out[0]).placement.pending)
      return std::nullopt;
    const auto made = maker_.find(in);
    if (made == maker_.end()) continue;
    const Step& maker = program_.steps[static_cast<std::size_t>(made->second)];
    better = better || (maker.out.size() == 1 && inputs_of_part(maker, target));
  }
  if (!better) return std::nullopt;
  std::vector<int> parts;
  for (int in : add.in) parts.push_back(reshard(in, target, why));
  const OriginScope scope(*this, {add.name, add.key, add.where, add.region, origin_.recompute});
  return emit_run(add.call, parts, {target}).front();
}

// Where a step's inputs must be for it to make its result at `target`, which lacks pending sums and cuts only
// dimensions that the op makes by itself; nothing when that is not possible, or not cheaper than a
// reduce-scatter.
std::optional<std::vector<Placement>> Lowering::inputs_of_part(const Step& maker,
                                                               const Placement& target) const {
  const Call& call = maker.call;
  if (call.op->products != nullptr || call.op->additive) return std::nullopt;
  const ProgramValue& result = value(maker.out[0]);
  std::vector<int> summed;
  for (int axis : result.placement.pending_axes())
    if (target.pending[static_cast<std::size_t>(axis)] == Reduction::None) summed.push_back(axis);
  for (std::size_t d = 0; d < result.type.shape.count(); ++d) {
    const Dim& dim = result.type.shape[d];
    if (target.cuts[d] == result.placement.cuts[d]) continue;
    const bool whole = call.op->made != nullptr && call.op->made(call, 0, dim.name) == Role::Whole;
    if (whole || !continued_from(call, dim).empty()) return std::nullopt;
  }
  std::vector<Placement> inputs;
  std::int64_t gathered = 0;
  for (int id : maker.in) {
    Placement whole = value(id).placement;
    for (Cut& cut : whole.cuts) {
      const auto first =
          std::find_if(cut.axes.begin(), cut.axes.end(), [&](int a) { return meets({a}, summed); });
      if (!std::all_of(first, cut.axes.end(), [&](int a) { return meets({a}, summed); })) return std::nullopt;
      cut.axes.erase(first, cut.axes.end());
      if (cut.axes.empty()) cut.grain = 1;
    }
    if (!whole.complete()) return std::nullopt;
    gathered += largest_bytes(value(id).type, whole) - largest_bytes(value(id).type, value(id).placement);
    inputs.push_back(std::move(whole));
  }
  const std::int64_t scattered =
      largest_bytes(result.type, result.placement) - largest_bytes(result.type, target);
  if (4 * gathered > scattered) return std::nullopt;  // besides bytes, all ranks read all inputs
  return inputs;
}

}  // namespace tessera
