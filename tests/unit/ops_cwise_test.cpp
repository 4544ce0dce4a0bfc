// Component-wise ops: broadcasting by name, corners, gradients at kinks, integer arithmetic, error messages.
#include <cmath>
#include <numbers>

#include "ops_values.h"

namespace tessera::testing {
namespace {

using ::testing::ElementsAre;

TEST(Broadcast, ByNameNotByPosition) {
  Graph g;
  const Tensor x = literal(g, {1, 2, 3, 4, 5, 6}, {{"a", 2}, {"b", 3}}),
               bias = literal(g, {10, 20}, {{"a", 2}});
  EXPECT_THAT(run(x + bias), ElementsAre(11, 12, 13, 24, 25, 26));
  const Tensor t = bias - x;
  EXPECT_EQ(to_string(t.type()), "f64[a:2;b:3]");
  EXPECT_THAT(run(t), ElementsAre(9, 8, 7, 16, 15, 14));
}

TEST(Broadcast, NeitherHoldsTheOther) {
  Graph g;
  const Tensor a = literal(g, {1, 2, 3, 4}, {{"a", 2}, {"b", 2}}),
               b = literal(g, {10, 20, 30, 40}, {{"b", 2}, {"c", 2}});
  const Tensor y = a * b;
  EXPECT_EQ(to_string(y.type()), "f64[a:2;b:2;c:2]");
  EXPECT_THAT(run(y), ElementsAre(10, 20, 60, 80, 30, 60, 120, 160));
}

TEST(Broadcast, GradientHasTheShapeOfTheInput) {
  Graph g;
  const Tensor a = literal(g, {1, 2, 3, 4}, {{"a", 2}, {"b", 2}}),
               turned = literal(g, {5, 6, 7, 8}, {{"b", 2}, {"a", 2}});
  const Tensor seed = literal(g, {1, 10, 100, 1000}, {{"a", 2}, {"b", 2}});
  const Tensor d = gradient(a - turned, turned, {seed});
  EXPECT_EQ(d.shape(), turned.shape());
  EXPECT_THAT(run(d), ElementsAre(-1, -100, -10, -1000));
  const Tensor bias = literal(g, {1, 1}, {{"b", 2}});
  EXPECT_THAT(run(gradient(a + bias, bias, {seed})), ElementsAre(101, 1010));
  EXPECT_THAT(run(gradient(maximum(bias, a), bias, {seed})), ElementsAre(0.5, 0));
}

TEST(Cwise, GradientsAtKinks) {
  Graph g;
  const Tensor x = literal(g, {-1, 0, 2}, {{"i", 3}});
  EXPECT_THAT(run(gradient(relu(x), x)), ElementsAre(0, 0, 1));
  EXPECT_THAT(run(gradient(abs(x), x)), ElementsAre(-1, 0, 1));
  EXPECT_THAT(run(gradient(leaky_relu(x, 0.25), x)), ElementsAre(0.25, 0.25, 1));
  const Tensor other = literal(g, {-1, 1, 1}, {{"i", 3}});
  EXPECT_THAT(run(gradient(maximum(x, other), x)), ElementsAre(0.5, 0, 1));
  EXPECT_THAT(run(gradient(minimum(x, other), x)), ElementsAre(0.5, 1, 0));
  EXPECT_FALSE(gradient(sign(x), x).valid());
  EXPECT_FALSE(gradient(stop_gradient(x), x).valid());
}

TEST(Cwise, Activations) {
  Graph g;
  const Tensor x = literal(g, {-1, 0.5, 2}, {{"i", 3}});
  const auto each = [](double (*f)(double)) { return near({f(-1), f(0.5), f(2)}, 1e-12); };
  EXPECT_THAT(run(swish(x)), each([](double v) { return v / (1 + std::exp(-v)); }));
  EXPECT_THAT(run(gelu(x)), each([](double v) {
                return v / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v)));
              }));
  EXPECT_THAT(run(gelu_erf(x)), each([](double v) { return v / 2 * std::erfc(-v / std::sqrt(2)); }));
  EXPECT_THAT(run(elu(x)), each([](double v) { return v > 0 ? v : std::expm1(v); }));
  EXPECT_THAT(run(selu(x)), each([](double v) {
                return 1.0507009873554805 * (v > 0 ? v : 1.6732632423543772 * std::expm1(v));
              }));
  EXPECT_THAT(run(leaky_relu(x)), ElementsAre(-0.2, 0.5, 2));
}

TEST(Cwise, FarOut) {
  Graph g;
  const Tensor x = literal(g, {-1000, 1000}, {{"i", 2}});
  EXPECT_THAT(run(softplus(x)), ElementsAre(0, 1000));
  EXPECT_THAT(run(sigmoid(x)), ElementsAre(0, 1));
  EXPECT_THAT(run(gradient(softplus(x), x)), ElementsAre(0, 1));
  EXPECT_THAT(run(gelu(x)), ElementsAre(0, 1000));
  EXPECT_THAT(run(is_finite(literal(g, {1, kInf, -kInf, kNaN}, {{"i", 4}}))), ElementsAre(1, 0, 0, 0));
}

TEST(Cwise, PowCorners) {
  Graph g;
  const Tensor a = literal(g, {0, 0, 2, 3}, {{"i", 4}}), b = literal(g, {0, 2, 0, 2}, {{"i", 4}});
  EXPECT_THAT(run(pow(a, b)), ElementsAre(1, 0, 1, 9));
  EXPECT_THAT(run(gradient(pow(a, b), a)), ElementsAre(0, 0, 0, 6));
  EXPECT_THAT(run(gradient(pow(a, b), b)), near({0, 0, std::log(2.0), 9 * std::log(3.0)}));
  EXPECT_THAT(run(pow(literal(g, {-2}, {{"i", 1}}), 3)), ElementsAre(-8));
  EXPECT_FALSE(gradient(pow(a, 0.0), a).valid());
}

TEST(Cwise, IntegerDivisionRoundsDown) {
  Graph g;
  const Dim i{"i", 5};
  const Tensor a = literal(g, {7, -7, 7, -7, 5}, {i}, DType::I32),
               b = literal(g, {2, 2, -2, -2, 0}, {i}, DType::I32);
  EXPECT_THAT(run(floordiv(a, b)), ElementsAre(3, -4, -4, 3, 0));
  EXPECT_THAT(run(mod(a, b)), ElementsAre(1, 1, -1, -1, 0));
  const Tensor x = literal(g, {7.5, -7.5, 7.5, -7.5, 5}, {i}), y = literal(g, {2, 2, -2, -2, 2.5}, {i});
  EXPECT_THAT(run(floordiv(x, y)), ElementsAre(3, -4, -4, 3, 2));
  EXPECT_THAT(run(mod(x, y)), ElementsAre(1.5, 0.5, -0.5, -1.5, 0));
}

TEST(Cwise, NumbersTakeTheTensorsType) {
  Graph g;
  const Tensor n = literal(g, {1, 2, 3}, {{"i", 3}}, DType::I32);
  EXPECT_EQ((n * 3 + 1).dtype(), DType::I32);
  EXPECT_THAT(run(2 - n * 3), ElementsAre(-1, -4, -7));
  EXPECT_EQ(message_of([&] { scale(n, 0.5); }),
            "scale: factor 0.5 does not fit an i32 tensor; cast the tensor first (scale_2, FILE:LINE)");
  const Tensor x = literal(g, {1, 2, 4}, {{"i", 3}});
  EXPECT_THAT(run(1 / x), ElementsAre(1, 0.5, 0.25));
}

TEST(Select, TheOtherBranchDoesNotLeak) {
  Graph g;
  const Tensor mask = literal(g, {1, 0, 1}, {{"i", 3}}, DType::Bool);
  const Tensor a = literal(g, {1, kNaN, 3}, {{"i", 3}}), b = literal(g, {kInf, 2, kNaN}, {{"i", 3}});
  const Tensor y = select(mask, a, b);
  EXPECT_THAT(run(y), ElementsAre(1, 2, 3));
  const Tensor seed = literal(g, {kInf, 5, 7}, {{"i", 3}});
  EXPECT_THAT(run(gradient(y, a, {seed})), ElementsAre(kInf, 0, 7));
  EXPECT_THAT(run(gradient(y, b, {seed})), ElementsAre(0, 5, 0));
}

TEST(Select, BroadcastsAllThree) {
  Graph g;
  const Tensor mask = literal(g, {1, 0}, {{"a", 2}}, DType::Bool), b = literal(g, {1, 2}, {{"b", 2}});
  const Tensor c = literal(g, {9}, {});
  const Tensor y = select(mask, b, c);
  EXPECT_EQ(to_string(y.type()), "f64[a:2;b:2]");
  EXPECT_THAT(run(y), ElementsAre(1, 2, 9, 9));
  EXPECT_THAT(run(gradient(y, c)), ElementsAre(2));
  EXPECT_THAT(run(gradient(y, b)), ElementsAre(1, 1));
}

TEST(Compare, AllSix) {
  Graph g;
  const Tensor a = literal(g, {1, 2, 3, kNaN}, {{"i", 4}}), b = literal(g, {2, 2, 2, 2}, {{"i", 4}});
  EXPECT_THAT(run(less(a, b)), ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(run(less_equal(a, b)), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(run(greater(a, b)), ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(run(greater_equal(a, b)), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(run(equal(a, b)), ElementsAre(0, 1, 0, 0));
  EXPECT_THAT(run(not_equal(a, b)), ElementsAre(1, 0, 1, 1));
}

TEST(Cast, RoundsOnceAndReturnsTheSameTensor) {
  Graph g;
  const Tensor x = literal(g, {1.00390625, -1.5, 2.75, 0}, {{"i", 4}}, DType::F32);
  EXPECT_EQ(cast(x, DType::F32), x);
  EXPECT_THAT(run(cast(x, DType::BF16)), ElementsAre(1, -1.5, 2.75, 0));  // 1 + 2^-8 ties to even
  EXPECT_THAT(run(cast(x, DType::I32)), ElementsAre(1, -1, 2, 0));
  EXPECT_THAT(run(cast(x, DType::Bool)), ElementsAre(1, 1, 1, 0));
  EXPECT_FALSE(gradients({cast(cast(x, DType::I32), DType::F32)}, {x})[0].valid());
}

TEST(Cwise, Errors) {
  Graph g;
  const Tensor x = g.input("x", {{"a", 2}}), y = g.input("y", {{"a", 3}}),
               n = g.input("n", {{"a", 2}}, DType::I32);
  EXPECT_EQ(message_of([&] { add(x, n); }),
            "add: input 0 is f32 but input 1 is i32; cast one of them (add, FILE:LINE)");
  EXPECT_EQ(
      message_of([&] { add(x, y); }),
      "add: dimension 'a' has size 2 in [a:2] but 3 in [a:3]; rename one or fix the size (add, FILE:LINE)");
  EXPECT_EQ(message_of([&] { exp(n); }),
            "exp: input 0 must be f32, bf16 or f64 but is i32; cast it (exp, FILE:LINE)");
  EXPECT_EQ(message_of([&] { select(x, x, x); }),
            "select: input 0 must be bool but is f32; cast it (select, FILE:LINE)");
  EXPECT_EQ(message_of([&] { relu(Tensor()); }),
            "relu: the tensor is empty (FILE:LINE); it was never made or its gradient does not exist");
}

}  // namespace
}  // namespace tessera::testing
