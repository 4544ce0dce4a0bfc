// Where updates of parameters are computed: at their slots, on the rows that a rank updates.
#include <algorithm>

#include "spmd/lower.h"

namespace tessera {
namespace {

// True when `fine` is `coarse` with further minor axes.
bool refines(const Cut& fine, const Cut& coarse) {
  return fine.axes.size() > coarse.axes.size() &&
         std::equal(coarse.axes.begin(), coarse.axes.end(), fine.axes.begin()) &&
         (coarse.whole() || fine.grain == coarse.grain);
}

}  // namespace

// A gradient is marked (storage_of) where its update begins. What makes nothing but that value, component by
// component (its cast from the type of the activations), is done where the update is: the sum that it waits
// for is then needed in parts only.
void Lowering::find_gradients(Scope& scope, const std::vector<int>& order) const {
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    const Node& node = scope.graph->node(*it);
    auto known = scope.storage_of.find(&node);
    if (node.attrs.has("storage_of"))
      known = scope.storage_of.emplace(&node, node.attrs.text("storage_of")).first;
    if (known == scope.storage_of.end()) continue;
    const Tensor& in = node.inputs[0];
    const Node& maker = scope.graph->node(in.node());
    const bool alone = scope.open_uses.at({in.node(), in.output()}) == 1;
    if (alone && maker.op->scalar != nullptr && maker.inputs.size() == 1 && maker.region == Region::Backward)
      scope.storage_of[&maker] = known->second;
  }
}

// Updates are computed where the slots (and stored parameters) live: a storage cut of an input is taken over
// by the op when its axes are free, so that gradients are reduce-scattered and slots never move (DESIGN 4.5).
void Lowering::refine_in_update(const Call& call, const std::vector<int>& inputs,
                                std::map<std::string, Cut>& cut) const {
  std::vector<int> used;
  for (const auto& [name, c] : cut) used.insert(used.end(), c.axes.begin(), c.axes.end());
  for (std::size_t i = 0; i < call.in.size(); ++i) {
    const Shape& shape = call.in[i].shape;
    for (std::size_t d = 0; d < shape.count(); ++d) {
      auto it = cut.find(shape[d].name);
      const Cut& actual = value(inputs[i]).placement.cuts[d];
      if (it == cut.end() || !refines(actual, it->second)) continue;
      std::vector<int> extra(actual.axes.begin() + static_cast<std::ptrdiff_t>(it->second.axes.size()),
                             actual.axes.end());
      if (meets(extra, used)) continue;
      used.insert(used.end(), extra.begin(), extra.end());
      it->second = actual;
    }
  }
}

// A gradient marked as belonging to a parameter is brought where the parameter's slots are stored, or to the
// rows of them that the rank updates; where it is cut so already, if with its axes in another order, it
// stays.
void Lowering::take_storage_cuts(const Call& call, const std::string& parameter, const Placement& gradient,
                                 std::map<std::string, Cut>& cut) const {
  const Variable slot{parameter, VariableKind::Slot, "", {}, -1};
  const Shape& shape = call.in[0].shape;
  Placement stored = storage_placement(mesh_, layout_, slot, shape);
  if (options_.shared_variables) {
    const Placement rows = own_rows(shape, stored, gradient);
    const auto axes_of = [](const Cut& c) { return std::set<int>(c.axes.begin(), c.axes.end()); };
    const bool there = are_own_rows(shape, gradient, stored) &&
                       std::equal(rows.cuts.begin(), rows.cuts.end(), gradient.cuts.begin(),
                                  [&](const Cut& a, const Cut& b) { return axes_of(a) == axes_of(b); });
    stored = there ? gradient : rows;
  }
  for (std::size_t d = 0; d < shape.count(); ++d) cut[shape[d].name] = stored.cuts[d];
}

}  // namespace tessera
