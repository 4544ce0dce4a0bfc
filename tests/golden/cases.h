// The small programs whose lowering is kept as text in tests/golden/*.txt, and of which tests count bytes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/grad.h"
#include "tessera/program.h"

namespace tessera::testing {

struct GoldenCase {
  std::string name, mesh, layout;
  std::function<std::vector<Tensor>(Graph&)> build;  // returns the targets
};

const std::vector<GoldenCase>& golden_cases();

// Two fully connected layers, forward and backward (peers.md A5): targets are the loss and both gradients,
// where the gradients are wanted as the rules place the weights.
struct TwoLayers {
  std::int64_t batch = 8, io = 12, hidden = 20;
};
std::vector<Tensor> build_two_layers(Graph& g, const TwoLayers& sizes);

}  // namespace tessera::testing
