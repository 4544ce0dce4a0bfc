// Micro-batches: gradients summed over several programs, applied by another, equal those of the whole batch.
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/grad.h"
#include "tessera/optimizer.h"
#include "unit/nn_eval.h"

namespace tessera {
namespace {

using nn_testing::Evaluator;
using nn_testing::values_of;

// A loss with unequal weights per row, over the rows [begin, end) of the data.
struct Regression {
  Graph graph;
  Tensors parameters, gradients_;
  Tensor loss, weight;

  Regression(std::int64_t rows) {
    const Dim batch{"batch", rows}, in{"in", 3};
    const Tensor x = graph.input("x", {batch, in}, DType::F64);
    const Tensor w = graph.input("row_weight", {batch}, DType::F64);
    const Tensor p = graph.parameter("p", {in}, Initializer::normal(1), DType::F64);
    loss = reduce_sum(mul(square(einsum({x, p}, {batch}) - 1.0), w));
    weight = reduce_sum(w);
    parameters = trainable_parameters(graph, {});
    gradients_ = gradients({loss}, parameters);
  }
};

std::map<std::string, Array> rows_of(int begin, int end) {
  std::vector<double> x, w;
  for (int r = begin; r < end; ++r) {
    for (int i = 0; i < 3; ++i) x.push_back(std::cos(3.0 * r + i));
    w.push_back(r % 4);
  }
  const Dim batch{"batch", end - begin};
  return {{"x", Array({{batch, {"in", 3}}, DType::F64}, x)}, {"row_weight", Array({{batch}, DType::F64}, w)}};
}

TEST(MicroBatches, UnevenOnesEqualTheWholeBatchForSeveralSteps) {
  OptimizerConfig config;
  config.clip_norm = 0.3;
  Regression whole(7);
  const UpdateInputs inputs{whole.graph.input("learning_rate", {}, DType::F64),
                            whole.graph.input("step", {}, DType::I32), whole.weight};
  const Updates updates = build_updates(whole.graph, whole.parameters, whole.gradients_, config, inputs);
  Evaluator expected;

  Regression first(3), second(2);
  const auto accumulate = [](Regression& r) {
    return build_accumulation(r.graph, r.parameters, r.gradients_, {{"loss", r.loss}, {"weight", r.weight}});
  };
  const Tensors add3 = accumulate(first), add2 = accumulate(second);
  Graph apply;
  const ApplyOutputs outputs = build_apply(first.graph, apply, config, "weight");
  Tensors apply_targets = outputs.updates.assignments;
  for (const auto& [name, value] : outputs.sums) apply_targets.push_back(value);
  Evaluator micro;

  for (int t = 0; t < 3; ++t) {
    const std::map<std::string, Array> scalars{{"learning_rate", Array({{}, DType::F64}, {0.1})},
                                               {"step", Array({{}, DType::I32}, {static_cast<double>(t)})}};
    auto feeds = rows_of(0, 7);
    feeds.insert(scalars.begin(), scalars.end());
    Tensors targets = updates.assignments;
    targets.push_back(whole.loss);
    const double loss = expected.run(targets, feeds).back().get(0);
    micro.run(add3, rows_of(0, 3));
    micro.run(add2, rows_of(3, 5));
    micro.run(add2, rows_of(5, 7));
    const std::vector<Array> sums = micro.run(apply_targets, scalars);
    EXPECT_NEAR(sums[sums.size() - 2].get(0), loss, 1e-12);
    EXPECT_EQ(sums.back().get(0), 0 + 1 + 2 + 3 + 0 + 1 + 2);
    const std::vector<double> a = values_of(micro.variables.at("p")),
                              b = values_of(expected.variables.at("p"));
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12) << "element " << i;
  }
}

}  // namespace
}  // namespace tessera
