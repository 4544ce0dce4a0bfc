// Recomputation: when the walk enters a recorded block from behind, the block's nodes are cloned, and what
// the gradients of its nodes read comes from the clones. Cloning at that moment puts the clones, in creation
// order, behind the gradient that arrives at the block.
#include "base/check.h"
#include "grad/walk.h"

namespace tessera {
namespace {

bool is_source(const Node& node) {
  return node.op == &kInputOp || node.op == &kVariableOp || node.op == &kAssignOp;
}

}  // namespace

void ReverseWalk::enter_recomputed(int id) {
  for (std::size_t i = 0; i < waiting_.size();) {
    const Graph::RecomputeRange range = waiting_[i];
    if (id < range.first || id >= range.last) {
      ++i;
      continue;
    }
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    clone(range);
  }
}

void ReverseWalk::clone(const Graph::RecomputeRange& range) {
  const Graph::RegionScope region(graph_, Region::Backward, graph_.next_recompute_group());
  for (int id = range.first; id < range.last; ++id) {
    const Node& node = graph_.node(id);
    if (is_source(node)) continue;
    Tensors inputs;
    for (const Tensor& t : node.inputs) inputs.push_back(current(t));
    const Graph::OriginScope scope(graph_, node.name, node.where);
    const std::string key = node.key;
    graph_.add(*node.op, inputs, node.attrs, node.where, "recompute");
    clone_of_[id] = static_cast<int>(graph_.nodes().size()) - 1;
    graph_.mutable_node(clone_of_[id]).key = key;
  }
  clone_custom_gradients(range);
}

// So that second derivatives through the clones follow the same functions.
void ReverseWalk::clone_custom_gradients(const Graph::RecomputeRange& range) {
  for (int id = range.first; id < range.last; ++id) {
    const Graph::CustomGradient* custom = graph_.custom_gradient(id);
    if (!custom || custom->outputs.front().node() != id) continue;
    Graph::CustomGradient copy{{}, {}, custom->grad};
    for (const Tensor& t : custom->inputs) copy.inputs.push_back(current(t));
    for (const Tensor& t : custom->outputs) copy.outputs.push_back(current(t));
    graph_.set_custom_gradient(std::move(copy));
  }
}

Tensor ReverseWalk::current(const Tensor& t) const {
  if (!t.valid()) return t;
  const auto it = clone_of_.find(t.node());
  return it == clone_of_.end() ? t : Tensor(&graph_, it->second, t.output());
}

// Gradient functions build on the tensors of the forward pass; here their nodes turn to the clones.
void ReverseWalk::redirect(std::size_t first_new) {
  if (clone_of_.empty()) return;
  for (std::size_t id = first_new; id < graph_.nodes().size(); ++id) {
    for (Tensor& t : graph_.mutable_node(static_cast<int>(id)).inputs) t = current(t);
  }
}

}  // namespace tessera
