// Softmax family, norms and cross-entropy against numbers worked out by hand.
#include <cmath>

#include "ops_values.h"

namespace tessera::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

const Dim kLine{"row", 2}, kVocab{"vocab", 3};

bool all_finite(const Tensor& t) {
  for (double value : run(t)) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

TEST(Softmax, LargeLogits) {
  Graph g;
  EXPECT_THAT(run(softmax(literal(g, {1000, 0}, {{"v", 2}}), "v")), ElementsAre(1, 0));
  Doubles logits;
  for (int i = 0; i < 8; ++i) logits.push_back(10.0 * i);
  const Doubles p = run(softmax(literal(g, logits, {{"v", 8}}), "v"));
  EXPECT_NEAR(p[6], 4.5397868608866649e-5, 1e-15);
  EXPECT_NEAR(p[7], 0.99995460007, 1e-11);
}

TEST(Softmax, AlongTheOuterDimension) {
  Graph g;
  const double one = 1 / (1 + std::exp(-1.0));
  const Tensor x = literal(g, {0, 5, 1, 5}, {{"a", 2}, {"b", 2}});
  EXPECT_THAT(run(softmax(x, "a")), near({1 - one, 0.5, one, 0.5}));
  EXPECT_THAT(run(log_softmax(x, "a")),
              near({std::log(1 - one), std::log(0.5), std::log(one), std::log(0.5)}));
  EXPECT_THAT(run(log_sum_exp(x, "a")), near({std::log(1 + std::exp(1.0)), 5 + std::log(2.0)}));
}

// A fully masked row among others, in every type, kernel and expansion alike: zeros and finite gradients.
TEST(Softmax, FullyMaskedRow) {
  for (DType type : {DType::F32, DType::BF16, DType::F64}) {
    Graph g;
    const Tensor x = literal(g, {-kInf, -kInf, -kInf, 0, -kInf, 0}, {kLine, kVocab}, type);
    EXPECT_THAT(run(softmax(x, "vocab")), ElementsAre(0, 0, 0, 0.5, 0, 0.5));
    EXPECT_EQ(run(log_softmax(x, "vocab"))[0], -kInf);
    EXPECT_EQ(run(log_sum_exp(x, "vocab"))[0], -kInf);
    for (const char* name : {"softmax", "log_softmax", "log_sum_exp"}) {
      Call call{find_op(name), {x.type()}, {}, {{"dim", "vocab"}}, name};
      call.out = call.op->infer(call);
      const std::vector<Array> input = evaluate({x});
      EXPECT_TRUE(difference(run_expansion(call, input)[0], run_op(call, input)[0], 1e-2, 1e-6).empty())
          << name;
    }
    const Tensor weights = literal(g, {1, 2, 3, 4, 5, 6}, {kLine, kVocab}, type);
    EXPECT_TRUE(all_finite(gradient(softmax(x, "vocab") * weights, x)));
    EXPECT_TRUE(all_finite(gradient(log_softmax(x, "vocab"), x)));
    EXPECT_TRUE(all_finite(gradient(log_sum_exp(x, "vocab"), x)));
  }
}

TEST(Softmax, GradientSumsToZero) {
  Graph g;
  const Tensor x = literal(g, {1, 2, 4}, {kVocab}), seed = literal(g, {1, 0, 0}, {kVocab});
  const Doubles p = run(softmax(x, "vocab"));
  EXPECT_THAT(run(gradient(softmax(x, "vocab"), x, {seed})),
              near({p[0] * (1 - p[0]), -p[0] * p[1], -p[0] * p[2]}));
}

TEST(Norm, LayerNorm) {
  Graph g;
  const Dim d{"d", 2};
  const Tensor x = literal(g, {0, 4, 3, 3}, {kLine, d}), bias = literal(g, {0, 100}, {d});
  const Tensor gain = literal(g, {1, 10}, {d});
  // Row 0: mean 2, variance 4, epsilon 5: (-2, 2) / 3. Row 1: no deviation.
  EXPECT_THAT(run(layer_norm(x, gain, bias, "d", 5)), near({-2. / 3, 100 + 20. / 3, 0, 100}));
}

TEST(Norm, RmsNorm) {
  Graph g;
  const Dim d{"d", 2};
  const Tensor x = literal(g, {3, 5, 0, 0}, {kLine, d}), gain = literal(g, {1, 10}, {d});
  // Row 0: mean square 17, epsilon 8.
  EXPECT_THAT(run(rms_norm(x, gain, "d", 8)), near({3. / 5, 50. / 5, 0, 0}));
}

// A gradient of ones through a gain of ones is all mean: layer norm passes nothing on.
TEST(Norm, GradientsOfLayerNorm) {
  Graph g;
  const Dim d{"d", 3};
  const Tensor x = literal(g, {1, 2, 6, -4, 0, 1}, {kLine, d});
  const Tensor gain = literal(g, {1, 1, 1}, {d}), bias = literal(g, {0, 0, 0}, {d});
  const Tensor y = layer_norm(x, gain, bias, "d");
  EXPECT_THAT(run(gradient(y, x)), near({0, 0, 0, 0, 0, 0}));
  const Doubles values = run(y);
  EXPECT_THAT(run(gradient(y, gain)),
              near({values[0] + values[3], values[1] + values[4], values[2] + values[5]}));
  EXPECT_THAT(run(gradient(y, bias)), ElementsAre(2, 2, 2));
}

TEST(Norm, StatisticsOfBf16AreWide) {
  Graph g;
  const Dim d{"d", 512};
  const Tensor x = literal(g, Doubles(512, 1.0), {d}, DType::BF16),
               gain = literal(g, Doubles(512, 1.0), {d}, DType::BF16);
  EXPECT_THAT(run(rms_norm(x, gain, "d")), Each(1));
}

TEST(Norm, Errors) {
  Graph g;
  const Tensor x = g.input("x", {{"row", 2}, {"d", 3}}), other = g.input("gain", {{"e", 3}});
  EXPECT_EQ(message_of([&] { rms_norm(x, other, "d"); }),
            "rms_norm: input 1 has dimension e:3, but x is [row:2;d:3]; scale and bias may only have "
            "dimensions of x "
            "(rms_norm, FILE:LINE)");
}

// ----------------------------------------------------------------------------------------------
// cross-entropy

class Loss : public ::testing::Test {
 protected:
  Graph g;
  // Softmax (1/4, 1/2, 1/4) and (1/8, 1/8, 3/4).
  Tensor logits = literal(g, {0, std::log(2.0), 0, 0, 0, std::log(6.0)}, {kLine, kVocab});
  double log_z0 = std::log(4.0), log_z1 = std::log(8.0);

  Tensor targets(const Doubles& ids) { return literal(g, ids, {kLine}, DType::I32); }
};

TEST_F(Loss, ClassZeroIsAClass) {
  EXPECT_THAT(run(cross_entropy(logits, targets({0, 1}), "vocab")), near({std::log(4.0), std::log(8.0)}));
}

TEST_F(Loss, LabelSmoothing) {
  const double s = 0.3;
  const Doubles loss = run(cross_entropy(logits, targets({1, 2}), "vocab", {.label_smoothing = s}));
  EXPECT_THAT(loss, near({(1 - s) * std::log(2.0) + s / 3 * (std::log(4.0) + std::log(2.0) + std::log(4.0)),
                          (1 - s) * std::log(4.0 / 3) + s / 3 * (2 * std::log(8.0) + std::log(4.0 / 3))}));
}

TEST_F(Loss, TargetsOutsideCountForTheZLossOnly) {
  EXPECT_THAT(run(cross_entropy(logits, targets({-1, 3}), "vocab", {.label_smoothing = 0.1})),
              ElementsAre(0, 0));
  const Tensor loss = cross_entropy(logits, targets({-1, 1}), "vocab", {.z_loss = 0.5});
  EXPECT_THAT(run(loss), near({0.5 * log_z0 * log_z0, log_z1 + 0.5 * log_z1 * log_z1}));
  EXPECT_THAT(run(gradient(loss, logits)), near({log_z0 / 4, log_z0 / 2, log_z0 / 4, 1. / 8 + log_z1 / 8,
                                                 1. / 8 - 1 + log_z1 / 8, 3. / 4 + log_z1 * 3 / 4}));
}

TEST_F(Loss, GradientIsSoftmaxMinusTarget) {
  const Tensor seed = literal(g, {1, 10}, {kLine});
  const Tensor loss = cross_entropy(logits, targets({1, 0}), "vocab");
  EXPECT_THAT(run(gradient(loss, logits, {seed})), near({.25, -.5, .25, -8.75, 1.25, 7.5}));
}

// Weights of zero: the loss and its gradient are zero, whatever the row holds.
TEST_F(Loss, AllIgnored) {
  const Tensor masked = literal(g, {-kInf, -kInf, -kInf, 1, -kInf, 2}, {kLine, kVocab});
  const Tensor weights = literal(g, {0, 0}, {kLine});
  const Tensor loss = cross_entropy(masked, targets({1, 2}), "vocab", {.z_loss = 0.1}) * weights;
  EXPECT_THAT(run(loss), ElementsAre(0, 0));
  EXPECT_THAT(run(gradient(loss, masked)), Each(0));
}

TEST_F(Loss, MaskedRowHasNoLossAndNoGradient) {
  const Tensor masked = literal(g, {-kInf, -kInf, -kInf, 0, -kInf, 0}, {kLine, kVocab});
  const Tensor loss = cross_entropy(masked, targets({1, 2}), "vocab");
  EXPECT_THAT(run(loss), near({0, std::log(2.0)}));
  EXPECT_THAT(run(gradient(loss, masked)), near({0, 0, 0, .5, 0, -.5}));
}

TEST_F(Loss, KernelsEqualExpansionsOnMaskedRows) {
  const Type x{{kLine, kVocab}, DType::F32}, ids{{kLine}, DType::I32}, row{{kLine}, DType::F32};
  const Attrs attrs{{"dim", "vocab"}, {"label_smoothing", 0.0}, {"z_loss", 0.25}};
  Call forward{find_op("cross_entropy"), {x, ids}, {}, attrs, "loss"};
  forward.out = forward.op->infer(forward);
  const Array values(x, {-kInf, -kInf, -kInf, 1, -kInf, 2}), target(ids, {1, 2});
  const std::vector<Array> a = run_op(forward, {values, target}),
                           b = run_expansion(forward, {values, target});
  for (int o : {0, 1}) EXPECT_EQ(difference(a[o], b[o], 1e-6, 1e-6), "") << o;
  Call backward{find_op("cross_entropy_grad"), {x, ids, row, row}, {}, attrs, "loss_grad"};
  backward.out = backward.op->infer(backward);
  const std::vector<Array> inputs{values, target, a[1], Array(row, {3, -2})};
  EXPECT_EQ(difference(run_op(backward, inputs)[0], run_expansion(backward, inputs)[0], 1e-6, 1e-6), "");
}

TEST_F(Loss, Bf16LogitsGiveAnF32Loss) {
  const Tensor loss = cross_entropy(cast(logits, DType::BF16), targets({1, 0}), "vocab");
  EXPECT_EQ(loss.dtype(), DType::F32);
  EXPECT_EQ(gradient(loss, logits).dtype(), DType::F64);
  EXPECT_THAT(run(loss), near({std::log(2.0), std::log(8.0)}, 0.01));
}

TEST_F(Loss, DimensionsThatDifferByNameOnly) {
  const Tensor x = g.input("x", {{"batch", 2}, {"length2", 3}, {"vocab", 4}});
  const Tensor ids = g.input("ids", {{"batch", 2}, {"length", 3}}, DType::I32);
  EXPECT_EQ(message_of([&] { cross_entropy(x, ids, "vocab"); }),
            "cross_entropy: targets are [batch:2;length:3] but logits without 'vocab' are "
            "[batch:2;length2:3] (missing from "
            "targets: length2; not in logits: length); rename or reduce until they agree (cross_entropy, "
            "FILE:LINE)");
}

}  // namespace
}  // namespace tessera::testing
