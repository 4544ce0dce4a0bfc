// Reverse-mode gradients. Gradients are ordinary nodes of the same graph, so second derivatives work.
#pragma once

#include <functional>
#include <vector>

#include "tessera/ops.h"

namespace tessera {

// Gradients of sum(ys[i] * seeds[i]) with respect to xs (any tensors of the graph; the sub-graph between xs
// and ys is differentiated). Without seeds: ones. An x without a path to any y gets an invalid Tensor. New
// nodes lie in Region::Backward, named after the node they differentiate, with its Location. Blocks recorded
// by recompute() are cloned for the backward pass. Throws UserError when a y is not floating.
Tensors gradients(const Tensors& ys, const Tensors& xs, const Tensors& seeds = {});

// Runs `body` and gives its outputs the gradient `grad(output gradients) -> gradients of inputs` (invalid
// where none). `inputs` are the tensors that receive gradients; body's own inner gradients are ignored.
Tensors custom_gradient(const Tensors& inputs, const std::function<Tensors()>& body,
                        const std::function<Tensors(const Tensors& output_grads)>& grad);

// Runs `body` and marks the nodes it makes: their values are not kept for the backward pass but computed
// again there, once the incoming gradient is known (DESIGN 4.16). Random ops repeat their bits.
Tensors recompute(Graph& graph, const std::function<Tensors()>& body);

}  // namespace tessera
