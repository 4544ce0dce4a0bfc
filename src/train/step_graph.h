// The graphs of one training step: forward, backward and update, or their two halves for micro-batches.
#pragma once

#include <vector>

#include "tessera/config.h"
#include "tessera/data.h"
#include "tessera/layout.h"

namespace tessera {

// What a step fetches, in this order, before the assignments.
enum StepFetch : std::size_t { kLossSum, kWeight, kGradientNorm, kFinite };

ModelShape model_shape(const Config& config, const BatchShape& shape);

// Targets of the whole step, or with `accumulate` of the half that sums gradients, loss and weight. A
// language model's source length is taken as 0.
Tensors build_training_step(Graph& graph, const Config& config, ModelShape shape, bool accumulate);
// Targets of the other half: fetches and assignments.
Tensors build_apply_step(const Graph& accumulate, Graph& apply, const Config& config);

// Bounds of the micro-batches: a cut of the batch in multiples of the number of its parts, so that each rank
// has work in each. Empty ones are left out.
std::vector<Interval> micro_batches(std::int64_t batch, std::int64_t count, std::int64_t parts);
// Into how many parts a layout cuts the batch.
std::int64_t batch_parts(const Mesh& mesh, const Layout& layout);

}  // namespace tessera
