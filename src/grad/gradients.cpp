// The public functions of gradients: argument checks and what user code runs.
#include "base/check.h"
#include "grad/walk.h"
#include "tessera/grad.h"

namespace tessera {

Tensors gradients(const Tensors& ys, const Tensors& xs, const Tensors& seeds) {
  TESSERA_CHECK(!ys.empty(), "gradients: there is no tensor to differentiate; pass at least one");
  Graph* graph = ys[0].valid() ? &ys[0].graph() : nullptr;
  TESSERA_CHECK(seeds.empty() || seeds.size() == ys.size(),
                "gradients: {} seeds for {} tensors; pass one for each or none", seeds.size(), ys.size());
  for (const Tensors* list : {&ys, &xs, &seeds}) {
    for (const Tensor& t : *list) {
      if (list == &seeds && !t.valid()) continue;
      TESSERA_CHECK(t.valid(), "gradients: an empty Tensor was passed; it comes from no builder");
      TESSERA_CHECK(&t.graph() == graph, "gradients: '{}' and '{}' belong to two graphs; build both in one",
                    ys[0].name(), t.name());
    }
  }
  for (std::size_t i = 0; i < ys.size(); ++i) {
    TESSERA_CHECK(is_floating(ys[i].dtype()),
                  "gradients: '{}' is {} ({}); only floating tensors have gradients", ys[i].name(),
                  to_string(ys[i].dtype()), where_text(graph->node(ys[i].node())));
    TESSERA_CHECK(seeds.empty() || !seeds[i].valid() ||
                      (same_dims(seeds[i].shape(), ys[i].shape()) && seeds[i].dtype() == ys[i].dtype()),
                  "gradients: the seed of '{}' is {} but the tensor is {}; they must be equal", ys[i].name(),
                  to_string(seeds[i].type()), to_string(ys[i].type()));
  }
  const Graph::RegionScope region(*graph, Region::Backward);
  return ReverseWalk(*graph, ys, xs, seeds).run();
}

Tensors custom_gradient(const Tensors& inputs, const std::function<Tensors()>& body,
                        const std::function<Tensors(const Tensors& output_grads)>& grad) {
  const Op* identity_op = find_op("identity");
  Tensors outputs = body();
  for (Tensor& t : outputs) {
    TESSERA_CHECK(t.valid(), "custom_gradient: the body returns an empty Tensor; it comes from no builder");
    t = t.graph().add(*identity_op, {t}, {}, t.graph().node(t.node()).where, "custom_gradient")[0];
  }
  if (!outputs.empty()) outputs[0].graph().set_custom_gradient({inputs, outputs, grad});
  return outputs;
}

Tensors recompute(Graph& graph, const std::function<Tensors()>& body) {
  const int first = static_cast<int>(graph.nodes().size());
  Tensors outputs = body();
  const int last = static_cast<int>(graph.nodes().size());
  if (first < last) graph.add_recompute_range({first, last});
  return outputs;
}

}  // namespace tessera
