// First and second derivatives of every record against central differences in f64.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "support/op_param.h"
#include "support/samples.h"
#include "tessera/grad.h"

namespace tessera::testing {
namespace {

constexpr double kStep = 1e-6;

class Gradient : public EveryOp {};

// A scalar function of named inputs: sum over outputs of seed * output.
struct Problem {
  Graph graph;
  Tensors xs;         // every input of the op
  Tensors ys, seeds;  // floating outputs and what they are weighted with
  EvaluateOptions options;

  void feed(const Tensor& t, const Array& value) { options.feeds[t.name()] = value; }
};

Array weights_for(const Type& type, std::uint64_t seed) {
  Array array(type);
  const RandomKey key = random_key(seed, "weights", 0);
  for (std::int64_t i = 0; i < array.elements(); ++i) {
    array.set(i, 0.25 + static_cast<double>(random_uniform_at(key, static_cast<std::uint64_t>(i))));
  }
  return array;
}

double weighted_sum(const Tensors& ys, const Tensors& seeds, const EvaluateOptions& options) {
  const std::vector<Array> values = evaluate(ys, options);
  double sum = 0;
  for (std::size_t y = 0; y < ys.size(); ++y) {
    const Array& weight = options.feeds.at(seeds[y].name());
    for (std::int64_t i = 0; i < weight.elements(); ++i) sum += weight.get(i) * values[y].get(i);
  }
  return sum;
}

double magnitude(const Tensors& ys, const Tensors& seeds, const EvaluateOptions& options) {
  const std::vector<Array> values = evaluate(ys, options);
  double sum = 0;
  for (std::size_t y = 0; y < ys.size(); ++y) {
    const Array& weight = options.feeds.at(seeds[y].name());
    for (std::int64_t i = 0; i < weight.elements(); ++i) sum += std::abs(weight.get(i) * values[y].get(i));
  }
  return sum;
}

// Compares the gradient of the weighted sum with respect to x (zero when invalid) with differences, element
// by element.
void check_against_differences(const Problem& p, const Tensors& ys, const Tensors& seeds, const Tensor& x,
                               const Tensor& gradient) {
  const Array point = p.options.feeds.at(x.name());
  Array found(point.type);
  if (gradient.valid()) found = evaluate({gradient}, p.options)[0];
  ASSERT_EQ(found.type, point.type) << "gradient of " << x.name();
  std::vector<double> expected;
  double scale = 0;
  for (std::int64_t i = 0; i < point.elements(); ++i) {
    double side[2];
    for (int s = 0; s < 2; ++s) {
      EvaluateOptions moved = p.options;
      moved.feeds[x.name()].set(i, point.get(i) + (s == 0 ? kStep : -kStep));
      side[s] = weighted_sum(ys, seeds, moved);
    }
    expected.push_back((side[0] - side[1]) / (2 * kStep));
    scale = std::max({scale, std::abs(expected.back()), std::abs(found.get(i))});
  }
  // Differences themselves err by rounding (1e-16 of the terms over the step) and by the third derivative.
  const double tolerance = 1e-6 * scale + 1e-9 * magnitude(ys, seeds, p.options) + 1e-9;
  for (std::int64_t i = 0; i < point.elements(); ++i) {
    EXPECT_NEAR(found.get(i), expected[static_cast<std::size_t>(i)], tolerance)
        << "d/d " << x.name() << " [" << i << "]";
  }
}

void build(Problem& p, const SampleCase& c) {
  const std::vector<Array> inputs = inputs_of(c, Fill::Reals);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    p.xs.push_back(p.graph.input(fmt::format("x{}", i), inputs[i].type.shape, inputs[i].type.dtype));
    p.feed(p.xs.back(), inputs[i]);
  }
  const Tensors outputs = p.graph.add(*c.op, p.xs, c.attrs, Location("sample", 1));
  for (const Tensor& y : outputs) {
    if (!is_floating(y.dtype())) continue;
    p.ys.push_back(y);
    p.seeds.push_back(p.graph.input(fmt::format("seed{}", p.ys.size()), y.shape(), y.dtype()));
    p.feed(p.seeds.back(), weights_for(y.type(), p.ys.size()));
  }
}

bool differentiable(const SampleCase& c) {
  const auto floating = [](const Type& t) { return is_floating(t.dtype); };
  const Call call = c.call();
  return std::any_of(call.in.begin(), call.in.end(), floating) &&
         std::any_of(call.out.begin(), call.out.end(), floating);
}

bool has_gradient(const Op& op) {
  if (op.grad) return true;
  if (!op.expand) return false;  // an integer op may have an expansion, but no gradient
  const std::vector<SampleCase> cases = cases_of(op, DType::F64);
  return std::any_of(cases.begin(), cases.end(), differentiable);
}

TEST_P(Gradient, MatchesDifferences) {
  if (!has_gradient(op())) GTEST_SKIP() << "no gradient";
  int checked = 0;
  for (const SampleCase& c : cases_of(op(), DType::F64)) {
    if (!differentiable(c)) continue;
    SCOPED_TRACE(c.text());
    Problem p;
    build(p, c);
    const Tensors gradient = gradients(p.ys, p.xs, p.seeds);
    for (std::size_t i = 0; i < p.xs.size(); ++i) {
      if (!is_floating(p.xs[i].dtype())) continue;
      check_against_differences(p, p.ys, p.seeds, p.xs[i], gradient[i]);
      ++checked;
    }
  }
  EXPECT_GT(checked, 0) << "no sample has a floating input that could be differentiated";
}

TEST_P(Gradient, OfTheGradientMatchesDifferences) {
  if (!has_gradient(op())) GTEST_SKIP() << "no gradient";
  for (const SampleCase& c : cases_of(op(), DType::F64)) {
    if (!differentiable(c)) continue;
    SCOPED_TRACE(c.text());
    Problem p;
    build(p, c);
    Tensors first, weights;
    for (const Tensor& g : gradients(p.ys, p.xs, p.seeds)) {
      if (!g.valid()) continue;
      first.push_back(g);
      weights.push_back(p.graph.input(fmt::format("weight{}", first.size()), g.shape(), g.dtype()));
      p.feed(weights.back(), weights_for(g.type(), 10 + first.size()));
    }
    if (first.empty()) continue;
    Tensors inputs = p.xs;
    inputs.insert(inputs.end(), p.seeds.begin(), p.seeds.end());
    const Tensors second = gradients(first, inputs, weights);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (is_floating(inputs[i].dtype())) check_against_differences(p, first, weights, inputs[i], second[i]);
    }
  }
}

TESSERA_FOR_EVERY_OP(Gradient);

}  // namespace
}  // namespace tessera::testing
