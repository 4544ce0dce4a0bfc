// Small cases from faults seen in other systems (ids of the fault list), with their right values, on one
// rank.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/evaluate.h"
#include "tessera/error.h"
#include "tessera/grad.h"

namespace tessera::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
using Values = std::vector<double>;

class Fault : public ::testing::Test {
 protected:
  Tensor input(const std::string& name, const Shape& shape, const Values& values, DType dtype = DType::F32) {
    options_.feeds[name] = Array({shape, dtype}, values);
    return g_.input(name, shape, dtype);
  }
  Values value(const Tensor& t) { return evaluate({t}, options_)[0].values(); }

  Graph g_;
  EvaluateOptions options_;
};

Values counting(int first, int count) {
  Values values;
  for (int i = 0; i < count; ++i) values.push_back(first + i);
  return values;
}

TEST_F(Fault, U1MeanIsOverElementsNotOverMeans) {
  const Tensor x = input("x", {{"a", 3}, {"b", 4}}, counting(0, 12));
  EXPECT_EQ(value(reduce_mean(x)), Values{5.5});
  EXPECT_EQ(value(reduce_mean(slice(x, "a", 0, 1))), Values{1.5});
}

TEST_F(Fault, U11OneIndexOfADimension) {
  const Tensor x = input("x", {{"a", 3}, {"b", 4}, {"c", 5}}, counting(0, 60));
  EXPECT_EQ(value(unstack(x, "a")[1]), counting(20, 20));
}

TEST_F(Fault, U5PadAndShrinkBack) {
  const Tensor x = input("x", {{"a", 2}}, {5, 7});
  const Tensor padded = pad(x, "a", 0, 4), back = slice(padded, "a", 0, 2);
  EXPECT_EQ(value(padded), (Values{5, 7, 0, 0, 0, 0}));
  EXPECT_EQ(value(back), (Values{5, 7}));
  EXPECT_EQ(value(gradients({back}, {x})[0]), (Values{1, 1}));
}

TEST_F(Fault, U12StatisticsOfAllElements) {
  const Tensor x = input("x", {{"a", 4}}, {0, 0, 0, 4});
  const Tensor mean = reduce_mean(x);
  EXPECT_EQ(value(mean), Values{1});
  EXPECT_EQ(value(reduce_mean(square(sub(x, mean)))), Values{3});
}

TEST_F(Fault, L8ConcatDoesNotSumOverIdleAxes) {
  const Tensor a = input("a", {{"d", 4}}, Values(4, 1)), b = input("b", {{"d", 12}}, Values(12, 1));
  EXPECT_EQ(value(concat({a, b}, "d")), Values(16, 1));
}

TEST_F(Fault, P1ConstantAfterTheSum) {
  const Tensor x = input("x", {{"a", 10}}, counting(0, 10));
  EXPECT_EQ(value(reduce_sum(x) + 10.0), Values{55});
}

TEST_F(Fault, P4P5SoftmaxShiftsByTheMaximum) {
  const Tensor wide = input("wide", {{"v", 8}}, {0, 10, 20, 30, 40, 50, 60, 70}, DType::F64);
  const Values p = value(softmax(wide, "v"));
  EXPECT_NEAR(p[6], 4.54e-5, 1e-7);
  EXPECT_NEAR(p[7], 0.999955, 1e-6);
  EXPECT_EQ(value(softmax(input("far", {{"v", 2}}, {1000, 0}), "v")), (Values{1, 0}));
  EXPECT_EQ(value(log_sum_exp(input("big", {{"v", 2}}, {1000, 1000}, DType::F64), "v")),
            Values{1000 + std::log(2.0)});
}

TEST_F(Fault, X1X2ArgmaxIsGlobalAndTakesTheFirst) {
  EXPECT_EQ(value(argmax(input("x", {{"d", 4}}, {10, 5, 3, 8}), "d")), Values{0});
  const Tensor ties = input("ties", {{"d", 4}}, {7, 1, 7, 0});
  EXPECT_EQ(value(argmax(ties, "d")), Values{0});
  const TopK top = top_k(ties, "d", {"k", 3});
  EXPECT_EQ(value(top.values), (Values{7, 7, 1}));
  EXPECT_EQ(value(top.indices), (Values{0, 2, 1}));
}

TEST_F(Fault, X3PrefixSums) {
  const Tensor x = input("x", {{"d", 1024}}, Values(1024, 1));
  Values reversed = counting(1, 1024);
  std::reverse(reversed.begin(), reversed.end());
  EXPECT_EQ(value(cumsum(x, "d")), counting(1, 1024));
  EXPECT_EQ(value(cumsum(x, "d", true)), counting(0, 1024));
  EXPECT_EQ(value(cumsum(x, "d", false, true)), reversed);
}

TEST_F(Fault, X4GradientOfARoll) {
  const Tensor x = input("x", {{"d", 4}}, {0, 1, 2, 3}), w = input("w", {{"d", 4}}, {1, 2, 3, 4});
  const Tensor rolled = concat({slice(x, "d", 3, 1), slice(x, "d", 0, 3)}, "d");
  EXPECT_EQ(value(rolled), (Values{3, 0, 1, 2}));
  EXPECT_EQ(value(gradients({mul(w, rolled)}, {x})[0]), (Values{2, 3, 4, 1}));
}

TEST_F(Fault, X5ScatterUsesGlobalPositions) {
  const Tensor at = input("at", {{"n", 2}}, {3, 12}, DType::I32), one = input("one", {{"n", 2}}, {1, 1});
  Values expected(16, 0);
  expected[3] = expected[12] = 1;
  EXPECT_EQ(value(scatter_add(at, one, {"d", 16}, {{"d", 16}})), expected);
}

TEST_F(Fault, X7TableGradientCountsRepeats) {
  const Tensor table = input("table", {{"v", 8}, {"m", 1}}, counting(0, 8));
  const Tensor ids = input("ids", {{"b", 2}, {"l", 3}}, {0, 0, 5, 0, 0, 5}, DType::I32);
  const Tensor d = gradients({gather(table, ids, "v")}, {table})[0];
  EXPECT_EQ(value(d), (Values{4, 0, 0, 0, 0, 2, 0, 0}));
}

TEST_F(Fault, X10LookUpDoesNotTouchOtherRows) {
  const Tensor table = input("table", {{"v", 4}, {"m", 2}}, {1, 2, 3, 4, 5, 6, NAN, kInf});
  const Tensor ids = input("ids", {{"l", 4}}, {0, 1, 4, -1}, DType::I32);
  EXPECT_EQ(value(gather(table, ids, "v")), (Values{1, 2, 3, 4, 0, 0, 0, 0})) << "outside: zeros";
}

TEST_F(Fault, X12GradientOfStack) {
  const Tensor a = input("a", {{"r", 2}, {"c", 2}}, counting(0, 4)),
               b = input("b", {{"r", 2}, {"c", 2}}, counting(0, 4));
  const Tensor w = input("w", {{"s", 2}, {"r", 2}, {"c", 2}}, counting(0, 8));
  const Tensors d = gradients({mul(stack({a, b}, "s"), w)}, {a, b});
  EXPECT_EQ(value(d[0]), (Values{0, 1, 2, 3}));
  EXPECT_EQ(value(d[1]), (Values{4, 5, 6, 7}));
}

TEST_F(Fault, X13ConcatOnTheSecondLastOfManyDimensions) {
  std::vector<Dim> dims{{"p", 2}, {"q", 3}};
  for (int count = 2; count <= 5; ++count) {
    const int n = static_cast<int>(Shape(dims).elements());
    const std::string name = dims[dims.size() - 2].name, tag = std::to_string(count);
    const Tensor a = input("a" + tag, Shape(dims), counting(0, n)),
                 b = input("b" + tag, Shape(dims), counting(100, n));
    const int block = static_cast<int>(dims[dims.size() - 2].size * dims.back().size);
    Values expected;
    for (int lead = 0; lead < n / block; ++lead) {
      for (int first : {0, 100}) {
        for (double v : counting(first + lead * block, block)) expected.push_back(v);
      }
    }
    EXPECT_EQ(value(concat({a, b}, name)), expected) << to_string(Shape(dims));
    dims.insert(dims.begin(), {"lead" + tag, 2});
  }
}

TEST_F(Fault, X16GradientOfAnOuterProduct) {
  const Tensor i = input("i", {{"i", 3}}, {1, 2, 4}), j = input("j", {{"j", 2}}, {5, 7});
  EXPECT_EQ(value(gradients({einsum({i, j}, {{"i", 3}, {"j", 2}})}, {j})[0]), (Values{7, 7}));
  EXPECT_EQ(value(gradients({mul(i, j)}, {j})[0]), (Values{7, 7}));
}

TEST_F(Fault, G1GradientOfASummedLoss) {
  const Tensor w = input("w", Shape(), {1}), d = input("d", {{"n", 2}}, {0, 1});
  const Tensor loss = reduce_sum(mul(square(w) + 1.0, d));
  EXPECT_EQ(value(loss), Values{2});
  EXPECT_EQ(value(gradients({loss}, {w})[0]), Values{2});
}

TEST_F(Fault, G9TiesOfMaxShareEqually) {
  const Tensor x = input("x", {{"d", 3}}, {2, 2, 1});
  EXPECT_EQ(value(gradients({reduce_max(x)}, {x})[0]), (Values{0.5, 0.5, 0}));
  const Tensor y = input("y", {{"d", 3}}, {2, 5, 0});
  EXPECT_EQ(value(gradients({maximum(x, y)}, {x})[0]), (Values{0.5, 0, 1}));
}

TEST_F(Fault, G11UnusedRowsHaveZeroGradient) {
  const Tensor table = input("table", {{"expert", 2}, {"m", 2}}, {1, 2, 3, 4});
  const Tensor none = input("none", {{"n", 0}}, {}, DType::I32);
  EXPECT_EQ(value(gradients({reduce_sum(gather(table, none, "expert"))}, {table})[0]), Values(4, 0));
}

TEST_F(Fault, D1RandomValuesAreAFunctionOfTheGlobalIndex) {
  const Tensor all = random_normal(g_, {{"n", 496}});
  const Values first = value(all), again = value(all);
  EXPECT_EQ(first, again);
  options_.step = 1;
  EXPECT_NE(value(all), first);
  options_.step = 0;
  options_.seed = 9;
  EXPECT_NE(value(all), first);
}

TEST_F(Fault, D4DropoutRateInBf16) {
  const Dim n{"n", 200000};
  const Tensor ones = constant(g_, 1.0, {n}, DType::BF16);
  const Tensor kept =
      reduce_sum(cast(greater(cast(dropout(ones, 0.1), DType::F32), constant(g_, 0.5, Shape())), DType::F32));
  const double rate = value(kept)[0] / 200000, sigma = std::sqrt(0.9 * 0.1 / 200000);
  EXPECT_NEAR(rate, 0.9, 3 * sigma);
}

TEST_F(Fault, F1FullyMaskedRows) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F64}) {
    const std::string name = std::string("x_") + to_string(dtype);
    const Tensor x = input(name, {{"r", 2}, {"v", 3}}, {-kInf, -kInf, -kInf, 0, 0, -kInf}, dtype);
    const Tensor p = softmax(x, "v");
    EXPECT_EQ(value(p), (Values{0, 0, 0, 0.5, 0.5, 0})) << to_string(dtype);
    for (double d : value(gradients({square(p)}, {x})[0])) EXPECT_TRUE(std::isfinite(d)) << to_string(dtype);
  }
}

TEST_F(Fault, F3LongSumsOfBf16) {
  const Tensor x = input("x", {{"n", 512}}, Values(512, 1), DType::BF16);
  EXPECT_EQ(value(reduce_sum(x)), Values{512}) << "a bf16 accumulator would stop at 256";
  const Tensor y = input("y", {{"n", 512}}, Values(512, 1), DType::BF16);
  EXPECT_EQ(value(einsum({x, y}, Shape())), Values{512});
  EXPECT_EQ(value(reduce_mean(x)), Values{1});
}

TEST_F(Fault, SelectKeepsTheOtherBranchOut) {
  const Tensor c = input("c", {{"n", 2}}, {1, 0}, DType::Bool);
  const Tensor a = input("a", {{"n", 2}}, {1, NAN}), b = input("b", {{"n", 2}}, {kInf, 2});
  const Tensor y = select(c, a, b);
  EXPECT_EQ(value(y), (Values{1, 2}));
  EXPECT_EQ(value(gradients({scale(y, 3)}, {a})[0]), (Values{3, 0}));
}

TEST_F(Fault, M2AllTargetsIgnored) {
  const Tensor logits = input("logits", {{"n", 2}, {"v", 3}}, {1, 2, 3, 4, 5, 6});
  const Tensor targets = input("targets", {{"n", 2}}, {0, 1}, DType::I32),
               weights = input("weights", {{"n", 2}}, {0, 0});
  const Tensor loss = reduce_sum(mul(cross_entropy(logits, targets, "v"), weights));
  EXPECT_EQ(value(loss), Values{0});
  EXPECT_EQ(value(gradients({loss}, {logits})[0]), Values(6, 0));
}

TEST_F(Fault, M3ClassZeroIsAClass) {
  const Tensor logits = input("logits", {{"n", 2}, {"v", 2}}, {0, 0, 0, 0}, DType::F64);
  const Tensor targets = input("targets", {{"n", 2}}, {0, 1}, DType::I32);
  const Values loss = value(cross_entropy(logits, targets, "v"));
  EXPECT_NEAR(loss[0], std::log(2.0), 1e-15);
  EXPECT_NEAR(loss[1], std::log(2.0), 1e-15);
}

TEST_F(Fault, M8TargetsWithAnotherDimension) {
  const Tensor logits = input("logits", {{"batch", 2}, {"length2", 3}, {"vocab", 4}}, Values(24, 0));
  const Tensor targets = input("targets", {{"batch", 2}, {"length", 3}}, Values(6, 0), DType::I32);
  try {
    cross_entropy(logits, targets, "vocab");
    FAIL() << "dimensions that differ by name only were accepted";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("length2"), std::string::npos) << error.what();
  }
}

TEST_F(Fault, M5MeansOfNothing) {
  const Tensor none = input("none", {{"n", 0}}, {});
  EXPECT_EQ(value(reduce_sum(none)), Values{0});
  EXPECT_EQ(value(reduce_max(none)), Values{-kInf});
  EXPECT_EQ(value(reduce_min(none)), Values{kInf});
}

}  // namespace
}  // namespace tessera::testing
