// A small network with a training step, for tests of sessions: sizes that no mesh divides, dropout, momentum.
#pragma once

#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tessera/error.h"
#include "tessera/grad.h"
#include "tessera/ops.h"
#include "tessera/optimizer.h"
#include "tessera/session.h"

namespace tessera::testing {

// How a run ended, and after how long.
struct RunEnd {
  std::string message;  // of the error, "" without one
  ExitCode code = ExitCode::Done;
  double seconds = 0;
};

inline RunEnd end_of(const std::function<void()>& run) {
  RunEnd end;
  const auto begin = std::chrono::steady_clock::now();
  try {
    run();
  } catch (const Error& e) {
    end.message = e.what();
    end.code = e.code();
  }
  end.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return end;
}

// Adam with clipped gradients, Adafactor that factors all matrices, momentum.
inline std::vector<OptimizerConfig> three_optimizers() {
  OptimizerConfig adam, adafactor, momentum;
  adam.clip_norm = 0.5;
  adafactor.kind = OptimizerKind::Adafactor;
  adafactor.adafactor.min_factored_size = 2;
  momentum.kind = OptimizerKind::Momentum;
  return {adam, adafactor, momentum};
}

struct Mlp {
  Graph graph;
  Tensor x, labels, hidden, logits, loss;
  std::vector<Tensor> parameters, updates;

  explicit Mlp(std::int64_t batch_size = 10, DType dtype = DType::F64) {
    const Dim batch{"batch", batch_size}, in{"pixels", 7}, mid{"hidden", 9}, classes{"classes", 5};
    x = graph.input("images", {batch, in}, dtype);
    labels = graph.input("labels", {batch}, DType::I32);
    const Tensor w1 = graph.parameter("w1", {in, mid}, Initializer::normal(0.5), dtype);
    const Tensor b1 = graph.parameter("b1", {mid}, Initializer::uniform(-0.1, 0.1), dtype);
    const Tensor w2 = graph.parameter("w2", {mid, classes}, Initializer::truncated_normal(0.5), dtype);
    parameters = {w1, b1, w2};
    hidden = dropout(tanh(einsum({x, w1}, {batch, mid}) + b1), 0.25);
    logits = einsum({hidden, w2}, {batch, classes});
    loss = reduce_mean(cross_entropy(logits, labels, "classes"));
    const Tensors grads = gradients({loss}, parameters);
    Graph::RegionScope update(graph, Region::Update);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Tensor p = parameters[i];
      const std::string name = i == 0 ? "w1" : i == 1 ? "b1" : "w2";
      const Tensor m =
          graph.variable(VariableKind::Slot, name + "/momentum", p.type(), Initializer::zeros(), name);
      const Tensor next = m * 0.9 + grads[i];
      updates.push_back(graph.assign(m, next));
      updates.push_back(graph.assign(p, p - next * 0.1));
    }
  }

  std::vector<Tensor> step() const {
    std::vector<Tensor> targets{loss};
    targets.insert(targets.end(), updates.begin(), updates.end());
    return targets;
  }

  FeedMap feeds() const {
    Array images(x.type()), targets(labels.type());
    for (std::int64_t i = 0; i < images.elements(); ++i)
      images.set(i, std::sin(0.7 * static_cast<double>(i)));
    for (std::int64_t i = 0; i < targets.elements(); ++i) targets.set(i, static_cast<double>(i * 3 % 5));
    return {{"images", images}, {"labels", targets}};
  }
};

inline double largest_difference(const Array& a, const Array& b) {
  if (!(a.type == b.type)) return INFINITY;
  double largest = 0;
  for (std::int64_t i = 0; i < a.elements(); ++i) largest = std::max(largest, std::abs(a.get(i) - b.get(i)));
  return largest;
}

}  // namespace tessera::testing
