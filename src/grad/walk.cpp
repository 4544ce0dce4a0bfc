// Reverse walk: visits nodes in reverse creation order, sums what arrived at each output and hands it to the
// record. The order of every sum follows from the graph alone, so that results repeat bit for bit.
#include "grad/walk.h"

#include <algorithm>

#include "base/check.h"

namespace tessera {
namespace {

bool differentiable(const Graph& graph, int id) {
  const Op& op = *graph.node(id).op;
  return op.grad || op.expand || graph.custom_gradient(id);
}

const Tensors& sources(const Graph& graph, int id) {
  const Graph::CustomGradient* custom = graph.custom_gradient(id);
  return custom ? custom->inputs : graph.node(id).inputs;
}

}  // namespace

ReverseWalk::ReverseWalk(Graph& graph, const Tensors& ys, const Tensors& xs, const Tensors& seeds)
    : graph_(graph), ys_(ys), xs_(xs), seeds_(seeds), waiting_(graph.recompute_ranges()) {
  std::sort(waiting_.begin(), waiting_.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.last > b.last;
  });
}

Tensors ReverseWalk::run() {
  mark_between();
  seed();
  for (int id = last_; id >= first_; --id) visit(id);
  Tensors gradients;
  for (const Tensor& x : xs_) gradients.push_back(total(x));
  return gradients;
}

bool ReverseWalk::flows_into(const Tensor& t) const {
  return is_floating(t.dtype()) && (is_x_.contains(slot(t)) || depends_[static_cast<std::size_t>(t.node())]);
}

void ReverseWalk::mark_between() {
  first_ = static_cast<int>(graph_.nodes().size());
  for (const Tensor& x : xs_) {
    is_x_[slot(x)] = true;
    first_ = std::min(first_, x.node());
  }
  for (const Tensor& y : ys_) last_ = std::max(last_, y.node());
  depends_.assign(static_cast<std::size_t>(std::max(last_ + 1, first_)), false);
  for (int id = first_; id <= last_; ++id) {
    if (!differentiable(graph_, id)) continue;
    const Tensors& inputs = sources(graph_, id);
    depends_[static_cast<std::size_t>(id)] = std::any_of(
        inputs.begin(), inputs.end(), [&](const Tensor& t) { return t.node() >= first_ && flows_into(t); });
  }
}

void ReverseWalk::seed() {
  for (std::size_t i = 0; i < ys_.size(); ++i) {
    const Tensor& y = ys_[i];
    if (y.node() < first_ || !flows_into(y)) continue;
    const Node& node = graph_.node(y.node());
    const Graph::OriginScope scope(graph_, node.name + "/grad", node.where);
    contribute(y, i < seeds_.size() && seeds_[i].valid() ? seeds_[i] : ones_like(y));
  }
}

void ReverseWalk::contribute(const Tensor& target, Tensor gradient) {
  if (!gradient.valid() || target.node() < first_ || !flows_into(target)) return;
  TESSERA_ASSERT(same_dims(gradient.shape(), target.shape()) && gradient.dtype() == target.dtype(),
                 "the gradient of '{}' is {} but the tensor is {}", target.name(), to_string(gradient.type()),
                 to_string(target.type()));
  if (gradient.shape() != target.shape()) {
    Strings order;
    for (const Dim& d : target.shape()) order.push_back(d.name);
    gradient = transpose(gradient, order);
  }
  contributions_[slot(target)].push_back(gradient);
}

Tensor ReverseWalk::total(const Tensor& t) {
  if (const auto it = totals_.find(slot(t)); it != totals_.end()) return it->second;
  const auto it = contributions_.find(slot(t));
  if (it == contributions_.end()) return {};
  const Node& node = graph_.node(t.node());
  const Graph::OriginScope scope(graph_, node.name + "/grad", node.where);
  Tensor sum = it->second[0];
  for (std::size_t i = 1; i < it->second.size(); ++i) sum = add(sum, it->second[i]);
  return totals_[slot(t)] = sum;
}

void ReverseWalk::visit(int id) {
  if (!depends_[static_cast<std::size_t>(id)]) return;
  const Node& node = graph_.node(id);
  if (const Graph::CustomGradient* custom = graph_.custom_gradient(id)) {
    // The outputs are one block of nodes; when the first of them is reached, all their gradients are
    // complete.
    if (custom->outputs.front().node() == id) visit_custom(*custom);
    return;
  }
  Tensors output_grads;
  bool any = false;
  for (std::size_t o = 0; o < node.outputs.size(); ++o) {
    output_grads.push_back(total(Tensor(&graph_, id, static_cast<int>(o))));
    any = any || output_grads.back().valid();
  }
  if (!any) return;
  enter_recomputed(id);
  const Graph::OriginScope scope(graph_, node.name + "/grad", node.where);
  if (node.op->grad) {
    visit_record(id, output_grads);
  } else {
    visit_expansion(id, output_grads);
  }
}

void ReverseWalk::visit_record(int id, const Tensors& output_grads) {
  const Node& node = graph_.node(id);
  const std::size_t first_new = graph_.nodes().size();
  GradContext context{graph_, node, {}, output_grads, Tensors(node.inputs.size())};
  for (std::size_t o = 0; o < node.outputs.size(); ++o)
    context.outputs.emplace_back(&graph_, id, static_cast<int>(o));
  node.op->grad(context);
  if (context.through_expansion) return visit_expansion(id, output_grads);
  redirect(first_new);
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    contribute(node.inputs[i], current(context.input_grads[i]));
}

// A fused record without a gradient of its own, or none for these outputs: its expansion is built here and
// differentiated. The inputs
// pass through identities, since one tensor may be several inputs.
void ReverseWalk::visit_expansion(int id, const Tensors& output_grads) {
  const Node& node = graph_.node(id);
  const std::size_t first_new = graph_.nodes().size();
  const Call call = call_of(node);
  ExpandContext context{graph_, call, {}, {}, node.where};
  for (const Tensor& t : node.inputs) context.inputs.push_back(identity(t));
  const Tensors outputs = node.op->expand(context);
  for (std::size_t i = first_new; i < graph_.nodes().size(); ++i) {
    Node& part = graph_.mutable_node(static_cast<int>(i));
    if (part.op->random) part.key = node.key;
  }
  redirect(first_new);
  Tensors ys, xs, seeds;
  std::vector<std::size_t> at;
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    if (!output_grads[o].valid()) continue;
    ys.push_back(outputs[o]);
    seeds.push_back(output_grads[o]);
  }
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (!flows_into(node.inputs[i])) continue;
    xs.push_back(context.inputs[i]);
    at.push_back(i);
  }
  const Tensors inner = ReverseWalk(graph_, ys, xs, seeds).run();
  for (std::size_t i = 0; i < at.size(); ++i) contribute(node.inputs[at[i]], inner[i]);
}

void ReverseWalk::visit_custom(const Graph::CustomGradient& custom) {
  Tensors output_grads;
  bool any = false;
  for (const Tensor& t : custom.outputs) {
    output_grads.push_back(total(t));
    any = any || output_grads.back().valid();
  }
  if (!any) return;
  enter_recomputed(custom.outputs.front().node());
  const Node& node = graph_.node(custom.outputs.front().node());
  const Graph::OriginScope scope(graph_, node.name + "/grad", node.where);
  const std::size_t first_new = graph_.nodes().size();
  for (std::size_t o = 0; o < output_grads.size(); ++o) {
    if (!output_grads[o].valid()) output_grads[o] = zeros_like(custom.outputs[o]);
  }
  const Tensors grads = custom.grad(output_grads);
  redirect(first_new);
  TESSERA_CHECK(grads.size() == custom.inputs.size(),
                "custom_gradient: the function returns {} gradients for {} inputs ({})", grads.size(),
                custom.inputs.size(), where_text(node));
  for (std::size_t i = 0; i < grads.size(); ++i) {
    const Tensor& input = custom.inputs[i];
    TESSERA_CHECK(!grads[i].valid() ||
                      (same_dims(grads[i].shape(), input.shape()) && grads[i].dtype() == input.dtype()),
                  "custom_gradient: the gradient of input {} is {} but '{}' is {} ({})", i,
                  to_string(grads[i].type()), input.name(), to_string(input.type()), where_text(node));
    contribute(input, current(grads[i]));
  }
}

}  // namespace tessera
