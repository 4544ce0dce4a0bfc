// Reductions and argmax against numbers worked out by hand, whole and in parts.
#include "ops_values.h"
#include "support/cutting.h"

namespace tessera::testing {
namespace {

using ::testing::ElementsAre;

TEST(Reduce, SumMeanMaxMin) {
  Graph g;
  const Tensor x = literal(g, {1, -2, 3, 4, 5, -6}, {{"a", 2}, {"b", 3}});
  EXPECT_THAT(run(reduce_sum(x, {"b"})), ElementsAre(2, 3));
  EXPECT_THAT(run(reduce_sum(x, {"a"})), ElementsAre(5, 3, -3));
  EXPECT_THAT(run(reduce_sum(x)), ElementsAre(5));
  EXPECT_THAT(run(reduce_mean(x, {"b"})), near({2.0 / 3, 1}));
  EXPECT_THAT(run(reduce_max(x, {"b"})), ElementsAre(3, 5));
  EXPECT_THAT(run(reduce_min(x, {"a", "b"})), ElementsAre(-6));
}

TEST(Reduce, AnyAndAll) {
  Graph g;
  const Tensor x = literal(g, {1, 0, 1, 1, 0, 0}, {{"a", 3}, {"b", 2}}, DType::Bool);
  EXPECT_THAT(run(reduce_any(x, {"b"})), ElementsAre(1, 1, 0));
  EXPECT_THAT(run(reduce_all(x, {"b"})), ElementsAre(0, 1, 0));
}

TEST(Reduce, NothingGivesTheIdentity) {
  Graph g;
  const Shape none{{"a", 0}, {"b", 2}};
  EXPECT_THAT(run(reduce_sum(literal(g, {}, none), {"a"})), ElementsAre(0, 0));
  EXPECT_THAT(run(reduce_max(literal(g, {}, none), {"a"})), ElementsAre(-kInf, -kInf));
  EXPECT_THAT(run(reduce_min(literal(g, {}, none, DType::I32), {"a"})),
              ElementsAre(2147483647.0, 2147483647.0));
  EXPECT_THAT(run(reduce_any(literal(g, {}, none, DType::Bool), {"a"})), ElementsAre(0, 0));
  EXPECT_THAT(run(reduce_all(literal(g, {}, none, DType::Bool), {"a"})), ElementsAre(1, 1));
}

Doubles mean_in_parts(const Doubles& values, const Shape& shape, const std::vector<std::int64_t>& cuts) {
  const Type type{shape, DType::F64};
  Strings dims;
  for (const Dim& dim : shape) dims.push_back(dim.name);
  Call call{find_op("reduce_mean"), {type}, {}, {{"dims", dims}}, "mean"};
  call.out = call.op->infer(call);
  return run_in_parts(call, {Array(type, values)}, *plan_of(call, shape[0]), cuts)[0].values();
}

// A mean of the shards' means would give 6.5, and an empty shard's NaN would spread.
TEST(Reduce, MeanOfUnequalAndEmptyShards) {
  EXPECT_THAT(mean_in_parts(counting(12), {{"a", 3}, {"b", 4}}, {0, 2, 3}), near({5.5}));
  EXPECT_THAT(mean_in_parts(counting(4), {{"a", 1}, {"b", 4}}, {0, 0, 1}), near({1.5}));
}

TEST(Reduce, MaximumSharesItsGradientAmongTies) {
  Graph g;
  const Tensor x = literal(g, {2, 2, 1, 0, 3, 0}, {{"a", 2}, {"b", 3}});
  EXPECT_THAT(run(gradient(reduce_max(x, {"b"}), x)), ElementsAre(0.5, 0.5, 0, 0, 1, 0));
  EXPECT_THAT(run(gradient(reduce_min(x, {"b"}), x)), ElementsAre(0, 0, 1, 0.5, 0, 0.5));
  const Tensor seed = literal(g, {10, 100}, {{"a", 2}});
  EXPECT_THAT(run(gradient(reduce_max(x, {"b"}), x, {seed})), ElementsAre(5, 5, 0, 0, 100, 0));
}

// bf16 cannot count past 256.
TEST(Reduce, ManyTiesInBf16) {
  Graph g;
  const Tensor x = cast(literal(g, Doubles(1000, 1.0), {{"a", 1000}}), DType::BF16);
  const Doubles dx = run(gradient(reduce_max(x), x));
  EXPECT_NEAR(dx[0], 1e-3, 4e-6);
  EXPECT_NEAR(dx[999], 1e-3, 4e-6);
}

TEST(Reduce, SumOf512OnesInBf16) {
  Graph g;
  EXPECT_THAT(run(reduce_sum(literal(g, Doubles(512, 1.0), {{"a", 512}}, DType::BF16))), ElementsAre(512));
}

TEST(Reduce, NaNWins) {
  Graph g;
  const Tensor x = literal(g, {1, kNaN, 3, 4}, {{"a", 2}, {"b", 2}});
  EXPECT_TRUE(std::isnan(run(reduce_max(x, {"b"}))[0]));
  EXPECT_TRUE(std::isnan(run(reduce_min(x))[0]));
  EXPECT_EQ(run(reduce_max(x, {"b"}))[1], 4);
}

TEST(Reduce, GradientOfSumAndMeanIsBroadcast) {
  Graph g;
  const Tensor x = literal(g, counting(6), {{"a", 2}, {"b", 3}}), seed = literal(g, {4, 8}, {{"a", 2}});
  EXPECT_THAT(run(gradient(reduce_sum(x, {"b"}), x, {seed})), ElementsAre(4, 4, 4, 8, 8, 8));
  EXPECT_THAT(run(gradient(reduce_mean(x, {"b"}), x, {seed})),
              near({4. / 3, 4. / 3, 4. / 3, 8. / 3, 8. / 3, 8. / 3}));
}

TEST(Reduce, Errors) {
  Graph g;
  const Tensor x = g.input("x", {{"a", 2}, {"b", 3}});
  EXPECT_EQ(message_of([&] { reduce_sum(x, {"c"}); }),
            "reduce_sum: input 0 has no dimension 'c', only [a:2;b:3] (at reduce_sum, FILE:LINE); name one "
            "of its dimensions");
  EXPECT_EQ(message_of([&] {
              reduce_sum(x, {"a", "a"});
            }),
            "reduce_sum: dimension 'a' is listed twice (reduce_sum, FILE:LINE)");
  EXPECT_EQ(message_of([&] { reduce_any(x); }),
            "reduce_any: input 0 must be bool but is f32; cast it (reduce_any, FILE:LINE)");
  EXPECT_EQ(message_of([&] { reduce_mean(cast(x, DType::I32)); }),
            "reduce_mean: input 0 must be f32, bf16 or f64 but is i32; cast it (reduce_mean, FILE:LINE)");
}

TEST(Argmax, GlobalIndexAndLowestOnTies) {
  Graph g;
  const Dim four{"i", 4};
  EXPECT_THAT(run(argmax(literal(g, {10, 5, 3, 8}, {four}), "i")), ElementsAre(0));
  EXPECT_THAT(run(argmax(literal(g, {7, 1, 7, 0}, {four}), "i")), ElementsAre(0));
  EXPECT_THAT(run(argmax(literal(g, {1, 5, 2, 5, 5, 4}, {{"row", 2}, {"i", 3}}), "i")), ElementsAre(1, 0));
  EXPECT_THAT(run(argmax(literal(g, {1, 5, 2, 5, 5, 4}, {{"row", 2}, {"i", 3}}), "row")),
              ElementsAre(1, 0, 1));
  EXPECT_THAT(run(argmax(literal(g, {-kInf, -kInf}, {{"i", 2}}), "i")), ElementsAre(0));
}

// The kernel and its expansion must agree about NaN, else the answer would depend on the layout.
TEST(Argmax, ExpansionTreatsNaNTheSame) {
  const Type type{{{"row", 3}, {"i", 3}}, DType::F32};
  Call call{find_op("argmax"), {type}, {}, {{"dim", "i"}}, "argmax"};
  call.out = call.op->infer(call);
  const Array x(type, {1, kNaN, 9, kNaN, kNaN, 2, 3, 4, 4});
  EXPECT_THAT(run_op(call, {x})[0].values(), ElementsAre(1, 0, 1));
  EXPECT_THAT(run_expansion(call, {x})[0].values(), ElementsAre(1, 0, 1));
}

TEST(Argmax, OfNothingIsAnError) {
  Graph g;
  EXPECT_EQ(message_of([&] {
              argmax(g.input("x", {{"a", 2}, {"i", 0}}), "i");
            }),
            "argmax: dimension 'i' of [a:2;i:0] has no elements (argmax, FILE:LINE)");
}

}  // namespace
}  // namespace tessera::testing
