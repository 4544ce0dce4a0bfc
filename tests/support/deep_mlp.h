// A deep network of square layers with an SGD update: a gradient a layer to reduce, most of the work after
// it.
#pragma once

#include <string>

#include "tessera/grad.h"
#include "tessera/ops.h"
#include "tessera/session.h"

namespace tessera::testing {

struct DeepMlp {
  Graph graph;
  Tensors targets;  // the loss, then the assignments
  Type input;

  DeepMlp(int layers, std::int64_t rows, std::int64_t width) {
    const Dim batch{"batch", rows};
    Dim in{"width_a", width}, out{"width_b", width};
    input = {{batch, in}, DType::F32};
    Tensor x = graph.input("x", input.shape);
    Tensors parameters;
    for (int l = 0; l < layers; ++l, std::swap(in, out)) {
      parameters.push_back(graph.parameter("w" + std::to_string(l), {in, out}, Initializer::normal(0.05)));
      x = tanh(einsum({x, parameters.back()}, {batch, out}));
    }
    const Tensor loss = reduce_mean(square(x));
    const Tensors gradients = tessera::gradients({loss}, parameters);
    const Graph::RegionScope update(graph, Region::Update);
    targets = {loss};
    for (std::size_t p = 0; p < parameters.size(); ++p)
      targets.push_back(graph.assign(parameters[p], parameters[p] - 0.1 * gradients[p]));
  }

  FeedMap feeds() const {
    Array x(input);
    for (std::int64_t i = 0; i < x.elements(); ++i) x.set(i, 0.02 * static_cast<double>((i * 37) % 101 - 50));
    return {{"x", x}};
  }
};

}  // namespace tessera::testing
