// Look-up by index, run-time slices, top-k and cumulative sums with numbers checked by hand (ids: faults
// catalogue).
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/evaluate.h"
#include "tessera/error.h"
#include "tessera/grad.h"
#include "unit/ops_values.h"

namespace tessera::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNaN = std::nan("");

class Index : public ::testing::Test {
 protected:
  Tensor feed(const std::string& name, const Shape& shape, const std::vector<double>& values,
              DType dtype = DType::F32) {
    options_.feeds[name] = Array({shape, dtype}, values);
    return graph_.input(name, shape, dtype);
  }
  std::vector<double> values(const Tensor& t) { return evaluate({t}, options_)[0].values(); }

  Graph graph_;
  EvaluateOptions options_;
};

TEST_F(Index, OneHotLeavesOutsideIndicesOff) {
  const Tensor i = feed("i", {{"b", 4}}, {1, -1, 3, 0}, DType::I32);
  EXPECT_EQ(values(one_hot(i, {"v", 3}, 5, -1)),
            (std::vector<double>{-1, 5, -1, -1, -1, -1, -1, -1, -1, 5, -1, -1}));
}

// X10: rows that nobody asks for may hold NaN and infinity.
TEST_F(Index, GatherTouchesOnlyTheRowsAskedFor) {
  const Tensor table = feed("t", {{"v", 4}, {"d", 2}}, {0, 1, 2, 3, kInfinity, 5, kNaN, kNaN});
  const Tensor i = feed("i", {{"b", 2}, {"l", 2}}, {1, 0, 4, -1}, DType::I32);
  const Tensor y = gather(table, i, "v");
  EXPECT_EQ(to_string(y.shape()), "b:2;l:2;d:2");
  EXPECT_EQ(values(y), (std::vector<double>{2, 3, 0, 1, 0, 0, 0, 0}));
}

TEST_F(Index, GatherBatchesSharedNames) {
  const Tensor table = feed("t", {{"b", 2}, {"v", 3}}, {0, 1, 2, 10, 11, 12});
  const Tensor i = feed("i", {{"l", 2}, {"b", 2}}, {2, 0, 1, 2}, DType::I32);
  const Tensor y = gather(table, i, "v");
  EXPECT_EQ(to_string(y.shape()), "l:2;b:2");
  EXPECT_EQ(values(y), (std::vector<double>{2, 10, 1, 12}));
}

// X7: V = 8, ids [0,0,5] twice, upstream ones: row 0 gets 4, row 5 gets 2.
TEST_F(Index, GradientOfTheTableCountsDuplicates) {
  const Tensor table = feed("t", {{"v", 8}}, std::vector<double>(8, 1.0));
  const Tensor i = feed("i", {{"b", 2}, {"l", 3}}, {0, 0, 5, 0, 0, 5}, DType::I32);
  const Tensor dy = gradients({gather(table, i, "v")}, {table})[0];
  EXPECT_EQ(values(dy), (std::vector<double>{4, 0, 0, 0, 0, 2, 0, 0}));
}

// X5: zeros[16], ones put at 3 and 12.
TEST_F(Index, ScatterHitsExactlyTheIndices) {
  const Tensor i = feed("i", {{"n", 3}}, {3, 12, 16}, DType::I32), one = feed("u", {{"n", 3}}, {1, 1, 1});
  std::vector<double> expected(16, 0.0);
  expected[3] = expected[12] = 1;
  EXPECT_EQ(values(scatter_add(i, one, {"v", 16}, {{"v", 16}})), expected);
}

TEST_F(Index, ScatterSumsInF32WhateverTheType) {
  // 300 ones in bf16: a bf16 sum would stop at 256.
  const Tensor i = feed("i", {{"n", 300}}, std::vector<double>(300, 1.0), DType::I32);
  const Tensor u = feed("u", {{"n", 300}}, std::vector<double>(300, 1.0), DType::BF16);
  EXPECT_EQ(values(scatter_add(i, u, {"v", 2}, {{"v", 2}})), (std::vector<double>{0, 300}));
}

TEST_F(Index, ScatterAddsInIndexOrder) {
  // (2^24 + 1) + 1 in f32 loses both ones; (1 + 1) + 2^24 keeps them.
  const Tensor u = feed("u", {{"n", 3}}, {16777216, 1, 1}), i = feed("i", {{"n", 3}}, {0, 0, 0}, DType::I32);
  EXPECT_EQ(values(scatter_add(i, u, {"v", 1}, {{"v", 1}})), std::vector<double>{16777216});
  const Tensor w = feed("w", {{"n", 3}}, {1, 1, 16777216});
  EXPECT_EQ(values(scatter_add(i, w, {"v", 1}, {{"v", 1}})), std::vector<double>{16777218});
}

TEST_F(Index, DynamicSliceClampsItsStart) {
  const Tensor x = feed("x", {{"b", 2}, {"l", 4}}, {0, 1, 2, 3, 4, 5, 6, 7});
  const std::vector<std::vector<double>> expected = {{0, 1, 4, 5}, {1, 2, 5, 6}, {2, 3, 6, 7}};
  for (const auto& [start, row] :
       std::vector<std::pair<double, std::size_t>>{{-3, 0}, {0, 0}, {1, 1}, {2, 2}, {9, 2}}) {
    const Tensor at = constant(graph_, start, Shape(), DType::I32);
    EXPECT_EQ(values(dynamic_slice(x, at, "l", 2)), expected[row]) << start;
  }
}

TEST_F(Index, UpdateSliceReplacesAndPassesGradients) {
  const Tensor x = feed("x", {{"b", 2}, {"l", 3}}, {0, 1, 2, 3, 4, 5}),
               u = feed("u", {{"l", 1}, {"b", 2}}, {8, 9});
  const Tensor y = update_slice(x, u, constant(graph_, 2, Shape(), DType::I32), "l");
  EXPECT_EQ(values(y), (std::vector<double>{0, 1, 8, 3, 4, 9}));
  const Tensor seed = feed("s", {{"b", 2}, {"l", 3}}, {1, 2, 3, 4, 5, 6});
  const Tensors g = gradients({y}, {x, u}, {seed});
  EXPECT_EQ(values(g[0]), (std::vector<double>{1, 2, 0, 4, 5, 0}));
  EXPECT_EQ(values(g[1]), (std::vector<double>{3, 6}));
}

TEST_F(Index, TopKTakesTheLowestIndexOnTies) {
  const Tensor x = feed("x", {{"v", 5}, {"b", 2}}, {7, 3, 1, 9, 7, 3, 0, -kInfinity, 5, 3});
  const TopK top = top_k(x, "v", {"k", 3});
  EXPECT_EQ(to_string(top.values.shape()), "b:2;k:3");
  EXPECT_EQ(values(top.values), (std::vector<double>{7, 7, 5, 9, 3, 3}));
  EXPECT_EQ(values(top.indices), (std::vector<double>{0, 2, 4, 1, 0, 2}));
  const Tensor seed = feed("s", {{"b", 2}, {"k", 3}}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(values(gradients({top.values}, {x}, {seed})[0]),
            (std::vector<double>{1, 5, 0, 4, 2, 6, 0, 0, 3, 0}));
}

TEST_F(Index, TopKKeepsInfinitiesAndNaN) {
  const Tensor x = feed("x", {{"v", 4}}, {-kInfinity, 2, kNaN, -kInfinity});
  const TopK top = top_k(x, "v", {"k", 4});
  EXPECT_EQ(values(top.indices), (std::vector<double>{2, 1, 0, 3}));
  const Tensor i = feed("i", {{"v", 3}}, {-2147483648.0, 5, -2147483648.0}, DType::I32);
  EXPECT_EQ(values(top_k(i, "v", {"k", 3}).indices), (std::vector<double>{1, 0, 2}));
}

// X3: ones[1024], all four variants.
TEST_F(Index, CumsumCountsExactly) {
  for (const DType dtype : {DType::F32, DType::I32, DType::F64}) {
    Graph graph;
    const Tensor x = graph.input("x", {{"n", 1024}}, dtype);
    EvaluateOptions options;
    options.feeds["x"] = Array(x.type(), std::vector<double>(1024, 1.0));
    const std::vector<Array> y = evaluate(
        {cumsum(x, "n"), cumsum(x, "n", true), cumsum(x, "n", false, true), cumsum(x, "n", true, true)},
        options);
    for (std::int64_t i = 0; i < 1024; ++i) {
      ASSERT_EQ(y[0].get(i), static_cast<double>(i + 1));
      ASSERT_EQ(y[1].get(i), static_cast<double>(i));
      ASSERT_EQ(y[2].get(i), static_cast<double>(1024 - i));
      ASSERT_EQ(y[3].get(i), static_cast<double>(1023 - i));
    }
  }
}

TEST_F(Index, CumsumGradientRunsBackwards) {
  const Tensor x = feed("x", {{"n", 3}, {"b", 2}}, {0, 1, 2, 3, 4, 5});
  const Tensor seed = feed("s", {{"n", 3}, {"b", 2}}, {1, 10, 2, 20, 3, 30});
  EXPECT_EQ(values(gradients({cumsum(x, "n")}, {x}, {seed})[0]), (std::vector<double>{6, 60, 5, 50, 3, 30}));
  EXPECT_EQ(values(gradients({cumsum(x, "n", true)}, {x}, {seed})[0]),
            (std::vector<double>{5, 50, 3, 30, 0, 0}));
}

// The expansions for a split dimension, run on one rank: all parts but the first are empty there.
TEST_F(Index, PartsOfASplitDimensionGiveTheSame) {
  const Tensor x = feed("x", {{"b", 2}, {"v", 5}}, {4, 1, 4, 0, 3, -1, -2, -1, -9, 6});
  const TopK top = top_k(x, "v", {"k", 2});
  const Tensor sums = cumsum(x, "v", true, true);
  for (const Tensor& y : {top.values, sums}) {
    const Call call = call_of(graph_.node(y.node()));
    ExpandContext ctx{graph_, call, {x}, {{"v", 3}}, {}};
    const Tensors parts = call.op->expand(ctx);
    for (std::size_t o = 0; o < parts.size(); ++o) {
      EXPECT_EQ(values(parts[o]), values(Tensor(&graph_, y.node(), static_cast<int>(o)))) << call.op->name;
    }
  }
}

// ------------------------------------------------------------------------------------------------ messages

TEST_F(Index, MessagesNameTheDimensionAndBothFacts) {
  const Tensor x = feed("x", {{"b", 2}, {"v", 3}}, {0, 1, 2, 3, 4, 5});
  const Tensor i = feed("i", {{"b", 4}}, {0, 1, 2, 0}, DType::I32),
               scalar = constant(graph_, 0, Shape(), DType::I32);
  EXPECT_EQ(bare_message_of([&] { gather(x, x, "v"); }), "gather: the index tensor must be i32 but is f32");
  EXPECT_EQ(bare_message_of([&] { gather(x, i, "v"); }),
            "gather: dimension 'b' has size 2 in the table but 4 in the indices");
  EXPECT_EQ(bare_message_of([&] { gather(x, i, "b"); }),
            "gather: both table and indices [b:4] have the dimension 'b'");
  EXPECT_EQ(bare_message_of([&] {
              one_hot(i, {"b", 3});
            }),
            "one_hot: the indices [b:4] have a dimension 'b' already");
  EXPECT_EQ(bare_message_of([&] {
              scatter_add(i, x, {"r", 2}, {{"r", 2}, {"v", 3}});
            }),
            "scatter_add: dimension 'b' has size 4 in the indices but 2 in the updates");
  EXPECT_EQ(bare_message_of([&] { dynamic_slice(x, i, "v", 1); }),
            "dynamic_slice: the start must be a scalar but is [b:4]");
  EXPECT_EQ(bare_message_of([&] { dynamic_slice(x, scalar, "v", 4); }),
            "dynamic_slice: 4 elements do not fit into dimension 'v' of size 3");
  EXPECT_EQ(bare_message_of([&] {
              top_k(x, "v", {"k", 4});
            }),
            "top_k: cannot take 4 of the 3 elements of 'v'");
  EXPECT_EQ(bare_message_of([&] {
              top_k(x, "v", {"b", 2});
            }),
            "top_k: the input [b:2;v:3] has a dimension 'b' already");
  EXPECT_EQ(bare_message_of([&] { cumsum(less(x, x), "v"); }), "cumsum: bool cannot be summed");
}

}  // namespace
}  // namespace tessera::testing
