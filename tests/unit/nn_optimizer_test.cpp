// Optimizers against formulas written out in plain double arithmetic, several steps long.
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/error.h"
#include "tessera/grad.h"
#include "tessera/optimizer.h"
#include "unit/nn_eval.h"

namespace tessera {
namespace {

using nn_testing::Evaluator;
using nn_testing::values_of;

const Shape kWeights{{"rows", 3}, {"cols", 4}};

// Gradient of step t: different in every element and step, one zero.
std::vector<double> gradient_at(int t) {
  std::vector<double> g;
  for (int i = 0; i < 12; ++i) g.push_back(std::sin(1.7 * i + t) * (i % 3 + 1) * 0.5);
  g[5] = 0;
  return g;
}

// A graph with one parameter "w" whose gradient is fed.
struct OneParameter {
  Graph graph;
  Updates updates;
  Evaluator eval;

  explicit OneParameter(const OptimizerConfig& config, bool weighted = false, DType dtype = DType::F64) {
    const Tensor w = graph.parameter("w", kWeights, Initializer::normal(0.3), dtype);
    const Tensor g = graph.input("g", kWeights, DType::F64);
    UpdateInputs inputs{
        graph.input("learning_rate", {}, DType::F64), graph.input("step", {}, DType::I32), {}};
    if (weighted) inputs.weight = graph.input("weight", {}, DType::F64);
    updates = build_updates(graph, {w}, {g}, config, inputs);
  }

  // Runs one update; returns {norm, finite}.
  std::pair<double, double> step(int t, double rate, const std::vector<double>& g, double weight = 1) {
    Tensors targets = updates.assignments;
    targets.push_back(updates.gradient_norm);
    targets.push_back(updates.finite);
    const std::vector<Array> out =
        eval.run(targets, {{"g", Array({kWeights, DType::F64}, g)},
                           {"learning_rate", Array({{}, DType::F64}, {rate})},
                           {"step", Array({{}, DType::I32}, {static_cast<double>(t)})},
                           {"weight", Array({{}, DType::F64}, {weight})}});
    return {out[out.size() - 2].get(0), out.back().get(0)};
  }

  std::vector<double> value(const std::string& name = "w") { return values_of(eval.variables.at(name)); }

  std::vector<double> initial() {
    eval.run({Tensor(&graph, graph.find_variable("w")->node, 0)});
    return value();
  }
};

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance) << "element " << i;
}

TEST(Optimizer, SgdDividesByTheWeightAndDecaysApart) {
  OptimizerConfig config;
  config.kind = OptimizerKind::Sgd;
  config.weight_decay = 0.1;
  OneParameter one(config, true);
  std::vector<double> w = one.initial();
  one.step(0, 0.5, gradient_at(0), 4);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] -= 0.5 * (gradient_at(0)[i] / 4 + 0.1 * w[i]);
  expect_near(one.value(), w, 1e-14);
}

TEST(Optimizer, AWeightOfZeroDividesByOne) {
  OptimizerConfig config;
  config.kind = OptimizerKind::Sgd;
  OneParameter one(config, true);
  const std::vector<double> w = one.initial();
  const auto [norm, finite] = one.step(0, 0.5, std::vector<double>(12, 0), 0);
  EXPECT_EQ(norm, 0);
  EXPECT_EQ(finite, 1);
  expect_near(one.value(), w, 0);
}

TEST(Optimizer, MomentumSubtractsTheNewVelocity) {
  OptimizerConfig config;
  config.kind = OptimizerKind::Momentum;
  config.momentum = 0.9;
  OneParameter one(config);
  std::vector<double> w = one.initial(), v(12, 0);
  for (int t = 0; t < 3; ++t) {
    const double rate = 0.1 / (t + 1);
    one.step(t, rate, gradient_at(t));
    for (std::size_t i = 0; i < 12; ++i) {
      v[i] = 0.9 * v[i] + gradient_at(t)[i];
      w[i] -= rate * v[i];
    }
  }
  expect_near(one.value(), w, 1e-14);
}

TEST(Optimizer, AdamWithAndWithoutBiasCorrection) {
  for (const bool correct : {true, false}) {
    OptimizerConfig config;
    config.bias_correction = correct;
    config.epsilon = 1e-6;
    config.weight_decay = 0.01;
    OneParameter one(config);
    std::vector<double> w = one.initial(), m(12, 0), v(12, 0);
    for (int t = 0; t < 4; ++t) {
      one.step(t, 0.01, gradient_at(t));
      for (std::size_t i = 0; i < 12; ++i) {
        const double g = gradient_at(t)[i];
        m[i] = 0.9 * m[i] + 0.1 * g;
        v[i] = 0.999 * v[i] + 0.001 * g * g;
        const double c1 = correct ? 1 - std::pow(0.9, t + 1) : 1,
                     c2 = correct ? 1 - std::pow(0.999, t + 1) : 1;
        w[i] -= 0.01 * ((m[i] / c1) / (std::sqrt(v[i] / c2) + 1e-6) + 0.01 * w[i]);
      }
    }
    expect_near(one.value(), w, 1e-12);
    expect_near(one.value("w/adam_m"), m, 1e-13);
  }
}

TEST(Optimizer, BiasCorrectionKeepsItsDigitsInF32) {
  OneParameter one(OptimizerConfig{}, false, DType::F32);
  const std::vector<double> w = one.initial();
  one.step(0, 0.5, gradient_at(0));
  const std::vector<double> after = one.value();
  // The first step of Adam moves every element by the rate against the gradient's sign.
  for (std::size_t i = 0; i < 12; ++i) {
    const double sign = gradient_at(0)[i] > 0 ? 1 : gradient_at(0)[i] < 0 ? -1 : 0;
    EXPECT_NEAR(after[i], w[i] - 0.5 * sign, 3e-7) << i;
  }
}

double rms(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum / static_cast<double>(x.size()));
}

// One Adafactor update of a [3, 4] matrix; r has the rows (dimension cols is the largest), c the columns.
void adafactor(std::vector<double>& w, const std::vector<double>& g, std::vector<double>& r,
               std::vector<double>& c, double decay, double rate) {
  std::vector<double> x(12);
  for (std::size_t i = 0; i < 3; ++i) {
    double mean = 0;
    for (std::size_t j = 0; j < 4; ++j) mean += (g[4 * i + j] * g[4 * i + j] + 1e-30) / 4;
    r[i] = decay * r[i] + (1 - decay) * mean;
  }
  for (std::size_t j = 0; j < 4; ++j) {
    double mean = 0;
    for (std::size_t i = 0; i < 3; ++i) mean += (g[4 * i + j] * g[4 * i + j] + 1e-30) / 3;
    c[j] = decay * c[j] + (1 - decay) * mean;
  }
  const double mean_r = (r[0] + r[1] + r[2]) / 3;
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 4; ++j)
      x[4 * i + j] = g[4 * i + j] / std::sqrt(r[i] / mean_r) / std::sqrt(c[j]);
  }
  const double clip = std::max(1.0, rms(x)), scale = std::max(rms(w), 1e-3);
  for (std::size_t i = 0; i < 12; ++i) w[i] -= rate * scale * x[i] / clip;
}

TEST(Optimizer, AdafactorFactoredWithBothDecays) {
  for (const auto form : {AdafactorOptions::Decay::Pow, AdafactorOptions::Decay::Adam}) {
    OptimizerConfig config;
    config.kind = OptimizerKind::Adafactor;
    config.adafactor.min_factored_size = 3;
    config.adafactor.decay = form;
    OneParameter one(config);
    std::vector<double> w = one.initial(), r(3, 0), c(4, 0);
    for (int t = 0; t < 4; ++t) {
      const double pow_decay = 1 - std::pow(t + 1, -0.8);
      const double adam_decay = 0.999 * (1 - std::pow(0.999, t)) / (1 - std::pow(0.999, t + 1));
      one.step(t, 0.05, gradient_at(t));
      adafactor(w, gradient_at(t), r, c, form == AdafactorOptions::Decay::Pow ? pow_decay : adam_decay, 0.05);
    }
    expect_near(one.value(), w, 1e-12);
    expect_near(one.value("w/adafactor_r"), r, 1e-13);
    expect_near(one.value("w/adafactor_c"), c, 1e-13);
  }
}

TEST(Optimizer, AdafactorUnfactoredWithMomentum) {
  OptimizerConfig config;
  config.kind = OptimizerKind::Adafactor;  // 3 < 128: not factored
  config.adafactor.beta1 = 0.8;
  config.adafactor.parameter_scale = false;
  config.adafactor.clipping_threshold = 0.5;
  OneParameter one(config);
  std::vector<double> w = one.initial(), v(12, 0), m(12, 0);
  for (int t = 0; t < 3; ++t) {
    one.step(t, 0.05, gradient_at(t));
    const double decay = 1 - std::pow(t + 1, -0.8);
    std::vector<double> x(12);
    for (std::size_t i = 0; i < 12; ++i) {
      const double g = gradient_at(t)[i];
      v[i] = decay * v[i] + (1 - decay) * (g * g + 1e-30);
      x[i] = g / std::sqrt(v[i]);
    }
    const double clip = std::max(1.0, rms(x) / 0.5);
    for (std::size_t i = 0; i < 12; ++i) {
      m[i] = 0.8 * m[i] + 0.2 * 0.05 * x[i] / clip;
      w[i] -= m[i];
    }
  }
  expect_near(one.value(), w, 1e-13);
}

TEST(Optimizer, AdafactorFactorsTheTwoLargestDimensionsFirstOnTies) {
  OptimizerConfig config;
  config.kind = OptimizerKind::Adafactor;
  config.adafactor.min_factored_size = 2;
  Graph graph;
  const Tensor p = graph.parameter("p", {{"a", 3}, {"b", 5}, {"c", 5}}, Initializer::ones());
  const Tensor q = graph.parameter("q", {{"a", 1}, {"b", 5}}, Initializer::ones());
  build_updates(graph, {p, q}, {ones_like(p), ones_like(q)}, config,
                {graph.input("learning_rate", {}), graph.input("step", {}, DType::I32), {}});
  const auto shape = [&](const std::string& name) {
    return to_string(graph.node(graph.find_variable(name)->node).outputs[0].shape);
  };
  EXPECT_EQ(shape("p/adafactor_r"), "a:3;c:5");  // b is the largest: the mean over it is gone
  EXPECT_EQ(shape("p/adafactor_c"), "a:3;b:5");
  EXPECT_EQ(shape("q/adafactor_v"), "a:1;b:5");
}

TEST(Optimizer, ClippingScalesAllGradientsByTheGlobalNorm) {
  OptimizerConfig config;
  config.kind = OptimizerKind::Sgd;
  config.clip_norm = 1;
  Graph graph;
  const Tensor a = graph.parameter("a", {{"x", 2}}, Initializer::zeros(), DType::F64);
  const Tensor b = graph.parameter("b", {}, Initializer::zeros(), DType::F64);
  const Tensor ga = graph.input("ga", {{"x", 2}}, DType::F64), gb = graph.input("gb", {}, DType::F64);
  const Updates u =
      build_updates(graph, {a, b}, {ga, gb}, config,
                    {graph.input("learning_rate", {}, DType::F64), graph.input("step", {}, DType::I32), {}});
  for (const auto& [size, expected] : {std::pair{1.0, 1.0 / 3}, std::pair{0.1, 0.1}}) {
    Evaluator eval;
    Tensors targets = u.assignments;
    targets.push_back(u.gradient_norm);
    const auto out = eval.run(targets, {{"ga", Array({{{"x", 2}}, DType::F64}, {size, -2 * size})},
                                        {"gb", Array({{}, DType::F64}, {2 * size})},
                                        {"learning_rate", Array({{}, DType::F64}, {1})},
                                        {"step", Array({{}, DType::I32}, {0})}});
    EXPECT_NEAR(out.back().get(0), 3 * size, 1e-14);
    expect_near(values_of(eval.variables.at("a")), {-expected, 2 * expected}, 1e-14);
    expect_near(values_of(eval.variables.at("b")), {-2 * expected}, 1e-14);
  }
}

TEST(Optimizer, SkipKeepsParametersAndSlotsWhenAGradientIsNotFinite) {
  for (const double bad : {std::nan(""), HUGE_VAL}) {
    OptimizerConfig config;
    config.nan = NanPolicy::Skip;
    config.clip_norm = 1;
    OneParameter one(config);
    one.step(0, 0.1, gradient_at(0));
    const std::vector<double> w = one.value(), m = one.value("w/adam_m"), v = one.value("w/adam_v");
    std::vector<double> g = gradient_at(1);
    g[7] = bad;
    EXPECT_EQ(one.step(1, 0.1, g).second, 0);
    expect_near(one.value(), w, 0);
    expect_near(one.value("w/adam_m"), m, 0);
    expect_near(one.value("w/adam_v"), v, 0);
    EXPECT_EQ(one.step(1, 0.1, gradient_at(1)).second, 1);
    EXPECT_NE(one.value(), w);
  }
}

TEST(Optimizer, GroupsSetDecayRateAndFreezing) {
  OptimizerConfig config;
  config.kind = OptimizerKind::Sgd;
  config.weight_decay = 0.5;
  config.groups = {{"*norm/*", 0.0, {}, {}, {}}, {"frozen_*", {}, {}, true, {}}, {"*/fast", {}, 3.0, {}, {}}};
  Graph graph;
  const Shape shape{{"x", 1}};
  for (const char* name : {"a/norm/scale", "frozen_b", "a/fast", "plain"}) {
    graph.parameter(name, shape, Initializer::ones(), DType::F64);
  }
  const Tensors trained = trainable_parameters(graph, config);
  ASSERT_EQ(trained.size(), 3u);
  Tensors gradients;
  for (const Tensor& p : trained) gradients.push_back(ones_like(p));
  const Updates u =
      build_updates(graph, trained, gradients, config,
                    {graph.input("learning_rate", {}, DType::F64), graph.input("step", {}, DType::I32), {}});
  Evaluator eval;
  eval.run(u.assignments,
           {{"learning_rate", Array({{}, DType::F64}, {0.1})}, {"step", Array({{}, DType::I32}, {0})}});
  EXPECT_NEAR(eval.variables.at("a/norm/scale").get(0), 1 - 0.1, 1e-15);
  EXPECT_NEAR(eval.variables.at("a/fast").get(0), 1 - 0.3 - 0.15, 1e-15);
  EXPECT_NEAR(eval.variables.at("plain").get(0), 1 - 0.1 - 0.05, 1e-15);
  EXPECT_FALSE(eval.variables.contains("frozen_b"));
}

TEST(Optimizer, AGroupThatMatchesNothingIsAnError) {
  OptimizerConfig config;
  config.groups = {{"enc/bais", 0.0, {}, {}, {}}};
  Graph graph;
  graph.parameter("enc/bias", {}, Initializer::zeros());
  try {
    trainable_parameters(graph, config);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(
        error.what(),
        "optimizer group 'enc/bais' matches none of the 1 parameters; the nearest is 'enc/bias'; correct the "
        "pattern ('*' matches any text)");
  }
}

TEST(Optimizer, SlotsMayBeNarrower) {
  OptimizerConfig config;
  config.slot_dtype = DType::BF16;
  OneParameter one(config);
  one.initial();
  one.step(0, 0.1, gradient_at(0));
  EXPECT_EQ(one.eval.variables.at("w/adam_m").type.dtype, DType::BF16);
  EXPECT_EQ(one.eval.variables.at("w").type.dtype, DType::F64);
}

TEST(Optimizer, InsideAScopeIsAnError) {
  Graph graph;
  const Tensor p = graph.parameter("p", {}, Initializer::zeros());
  const UpdateInputs inputs{graph.input("learning_rate", {}), graph.input("step", {}, DType::I32), {}};
  const Graph::Scope scope(graph, "inner");
  EXPECT_THROW(build_updates(graph, {p}, {ones_like(p)}, {}, inputs), UserError);
}

}  // namespace
}  // namespace tessera
