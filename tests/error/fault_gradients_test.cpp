// Faults of indexing, gradients, losses and random numbers that show only when a dimension is split
// (docs/faults.md).
#include <cmath>
#include <limits>

#include "error/run.h"

namespace tessera::testing {
namespace {

// ---------------------------------------------------------------------------------------------- indexing

TEST(Faults, X1X2IndexOfTheMaximumIsGlobal) {
  Small s;
  Tensor x = s.input("x", {{"d", 4}}, {10, 5, 3, 8}), ties = s.input("ties", {{"d", 4}}, {7, 1, 7, 0});
  const std::vector<On> layouts{{"m:2", "d:m"}, {"m:4", "d:m"}, {"m:3", "d:m"}, {"m:6", "d:m"}};
  expect_everywhere(s, argmax(x, "d"), {0}, layouts);
  expect_everywhere(s, argmax(ties, "d"), {0}, layouts);
  expect_everywhere(s, argmax(scale(x, -1), "d"), {2}, layouts);
  expect_everywhere(s, top_k(ties, "d", {"k", 3}).indices, {0, 2, 1}, layouts);
}

TEST(Faults, X3PrefixSumAlongASplitDimension) {
  Small s;
  Tensor x = s.input("x", {{"d", 1024}}, Values(1024, 1));
  Values reversed = counting(1, 1024);
  std::reverse(reversed.begin(), reversed.end());
  const std::vector<On> layouts{{"m:2", "d:m"}, {"m:3", "d:m"}};
  expect_everywhere(s, cumsum(x, "d"), counting(1, 1024), layouts);
  expect_everywhere(s, cumsum(x, "d", true), counting(0, 1024), layouts);
  expect_everywhere(s, cumsum(x, "d", false, true), reversed, layouts);
}

TEST(Faults, X4RollWithOneElementARank) {
  Small s;
  Tensor x = s.input("x", {{"d", 4}}, counting(0, 4)), w = s.input("w", {{"d", 4}}, counting(1, 4));
  Tensor rolled = concat({slice(x, "d", 3, 1), slice(x, "d", 0, 3)}, "d");
  expect_everywhere(s, rolled, {3, 0, 1, 2}, {{"m:4", "d:m"}, {"m:3", "d:m"}});
  expect_everywhere(s, gradients({mul(w, rolled)}, {x})[0], {2, 3, 4, 1}, {{"m:4", "d:m"}, {"m:3", "d:m"}});
}

TEST(Faults, X5ScatterIntoASplitDimension) {
  Small s;
  Tensor at = s.input("at", {{"n", 2}}, {3, 12}, DType::I32), one = s.input("one", {{"n", 2}}, {1, 1});
  Values want(16, 0);
  want[3] = want[12] = 1;
  expect_everywhere(s, scatter_add(at, one, {"d", 16}, {{"d", 16}}), want,
                    {{"m:2", "d:m"}, {"m:3", "d:m"}, {"m:2", "n:m"}, {"m:2;k:5", "n:m;d:k"}});
}

TEST(Faults, X7GradientOfASplitTable) {
  Small s;
  Tensor table = s.input("table", {{"v", 8}, {"m", 1}}, counting(0, 8));
  Tensor ids = s.input("ids", {{"b", 2}, {"l", 3}}, {0, 0, 5, 0, 0, 5}, DType::I32);
  Tensor d = gradients({gather(table, ids, "v")}, {table})[0];
  expect_everywhere(s, d, {4, 0, 0, 0, 0, 2, 0, 0},
                    {{"r:2", "v:r"}, {"r:2;c:2", "v:r;b:c"}, {"r:3;c:2", "v:r;l:c"}, {"r:2;idle:3", "v:r"}});
}

TEST(Faults, X10LookUpInASplitTableTouchesNoOtherRow) {
  Small s;
  const double inf = std::numeric_limits<double>::infinity();
  Tensor table = s.input("table", {{"v", 4}, {"m", 2}}, {1, 2, 3, 4, 5, 6, NAN, inf});
  Tensor ids = s.input("ids", {{"l", 4}}, {0, 1, 4, -1}, DType::I32);
  expect_everywhere(s, gather(table, ids, "v"), {1, 2, 3, 4, 0, 0, 0, 0},
                    {{"r:2", "v:r"}, {"r:3", "v:r"}, {"r:2;c:3", "v:r;l:c"}});
}

// ---------------------------------------------------------------------------------------------- gradients

TEST(Faults, G1GradientOfASummedLossIsNotScaled) {
  Small s;
  Tensor w = s.input("w", Shape(), {1}), d = s.input("d", {{"n", 2}}, {0, 1});
  Tensor loss = reduce_sum(mul(square(w) + 1.0, d));
  const std::vector<On> layouts{{"m:2", "n:m"}, {"m:3", "n:m"}, {"m:2;idle:2", "n:m"}};
  expect_everywhere(s, loss, {2}, layouts);
  expect_everywhere(s, gradients({loss}, {w})[0], {2}, layouts);
}

// A norm's scale has no split dimension of its own: its gradient is the sum over the parts of the sequence.
TEST(Faults, G2SmallWeightUnderASplitSequence) {
  Small s;
  Tensor x = s.input("x", {{"length", 5}, {"d", 2}}, counting(-3, 10)),
         scale = s.input("scale", {{"d", 2}}, {1, 2});
  Tensor up = s.input("up", {{"length", 5}, {"d", 2}}, counting(1, 10));
  Tensor grad = gradients({reduce_sum(mul(up, mul(x, scale)))}, {scale})[0];
  expect_everywhere(s, grad, {65, 100},
                    {{"m:2", "length:m"}, {"m:4", "length:m"}, {"m:2;k:2", "length:m;d:k"}});
  Tensor normed = gradients({mul(up, rms_norm(x, scale, "d"))}, {scale})[0];
  const Values want = s.run(normed), got = s.run(normed, "m:3", "length:m");
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5);
}

// Through an all-to-all and a shift, first and second derivative.
TEST(Faults, G7DerivativesOfMoves) {
  Small s;
  Tensor x = s.input("x", {{"p", 4}, {"q", 3}}, counting(0, 12)),
         c = s.input("c", {{"p", 3}, {"q", 4}}, counting(1, 12));
  Tensor turned = rename(x, {{"p", "q"}, {"q", "p"}});
  Tensor shifted = concat({slice(turned, "q", 1, 3), slice(turned, "q", 0, 1)}, "q");
  Tensor first = gradients({reduce_sum(mul(transpose(square(shifted), {"p", "q"}), c))}, {x})[0];
  Tensor second = gradients({reduce_sum(first)}, {x})[0];
  // c moved back: element (i, j) of x meets c(j, i - 1).
  Values twice, times;
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 3; ++j) {
      const double weight = 1 + j * 4 + (i + 3) % 4;
      twice.push_back(2 * weight);
      times.push_back(2 * weight * (i * 3 + j));
    }
  }
  const std::vector<On> layouts{{"m:2", "p:m"}, {"m:3", "q:m"}, {"m:2;k:3", "p:m;q:k"}};
  expect_everywhere(s, first, times, layouts);
  expect_everywhere(s, second, twice, layouts);
}

TEST(Faults, G9TiesAcrossRanks) {
  Small s;
  Tensor x = s.input("x", {{"d", 3}}, {2, 2, 1});
  expect_everywhere(s, gradients({reduce_max(x)}, {x})[0], {0.5, 0.5, 0},
                    {{"m:2", "d:m"}, {"m:3", "d:m"}, {"m:2", "d:m@2"}});
}

TEST(Faults, G11RowsThatNoRankOrOneRankUses) {
  Small s;
  Tensor table = s.input("table", {{"expert", 3}, {"m", 2}}, counting(0, 6));
  Tensor ids = s.input("ids", {{"n", 4}}, {0, 0, 0, 2}, DType::I32);
  Tensor d = gradients({gather(table, ids, "expert")}, {table})[0];
  expect_everywhere(s, d, {3, 3, 0, 0, 1, 1},
                    {{"m:2", "n:m"}, {"m:3", "expert:m"}, {"m:2;k:3", "n:m;expert:k"}});
}

TEST(Faults, X12X16GradientsOfStackAndOuterProduct) {
  Small s;
  Tensor a = s.input("a", {{"r", 2}, {"c", 2}}, counting(0, 4)),
         b = s.input("b", {{"r", 2}, {"c", 2}}, counting(0, 4));
  Tensor w = s.input("w", {{"s", 2}, {"r", 2}, {"c", 2}}, counting(0, 8));
  const Tensors d = gradients({mul(stack({a, b}, "s"), w)}, {a, b});
  expect_everywhere(s, d[0], {0, 1, 2, 3}, {{"m:2", "c:m"}, {"m:2", "s:m"}, {"m:2;k:3", "s:m;r:k"}});
  expect_everywhere(s, d[1], {4, 5, 6, 7}, {{"m:2", "c:m"}, {"m:2", "s:m"}});
  Tensor i = s.input("i", {{"i", 3}}, {1, 2, 4}), j = s.input("j", {{"j", 2}}, {5, 7});
  expect_everywhere(s, gradients({einsum({i, j}, {{"i", 3}, {"j", 2}})}, {j})[0], {7, 7},
                    {{"m:2", "i:m"}, {"m:2;k:2", "i:m;j:k"}});
}

// ---------------------------------------------------------------------------------------------- losses

TEST(Faults, M2IgnoredTargetsOnOneRankAndOnAll) {
  Small s;
  Tensor logits = s.input("logits", {{"n", 2}, {"v", 2}}, {1, 2, 0, 0}),
         targets = s.input("targets", {{"n", 2}}, {0, 1}, DType::I32);
  Tensor some = s.input("some", {{"n", 2}}, {0, 1}), none = s.input("none", {{"n", 2}}, {0, 0});
  auto mean = [&](const Tensor& weights) {
    return div(reduce_sum(mul(cross_entropy(logits, targets, "v"), weights)),
               maximum(reduce_sum(weights), constant(s.graph, 1, Shape())));
  };
  for (const On& on : {On{"", ""}, On{"m:2", "n:m"}, On{"m:2", "v:m"}, On{"m:2;k:2", "n:m;v:k"}}) {
    EXPECT_NEAR(s.run(mean(some), on.mesh, on.layout)[0], std::log(2.0), 1e-6) << on.layout;
    EXPECT_EQ(s.run(mean(none), on.mesh, on.layout), Values{0}) << on.layout;
    EXPECT_EQ(s.run(gradients({mean(none)}, {logits})[0], on.mesh, on.layout), Values(4, 0)) << on.layout;
  }
}

TEST(Faults, F1MaskedRowOnASplitDimension) {
  const double inf = std::numeric_limits<double>::infinity();
  for (DType dtype : {DType::F32, DType::BF16}) {
    Small s;
    Tensor x = s.input("x", {{"r", 2}, {"v", 4}}, {-inf, -inf, -inf, -inf, 0, -inf, 0, -inf}, dtype);
    Tensor p = softmax(x, "v");
    const std::vector<On> layouts{{"m:2", "v:m"}, {"m:4", "v:m"}, {"m:2;k:2", "r:m;v:k"}};
    expect_everywhere(s, p, {0, 0, 0, 0, 0.5, 0, 0.5, 0}, layouts);
    expect_everywhere(s, gradients({p}, {x})[0], Values(8, 0), layouts);
  }
}

// ---------------------------------------------------------------------------------------------- storage and
// random numbers

// 50257 rows over ranks that do not divide them: no padding row exists, none is read, and a step changes the
// rows that it should.
TEST(Faults, N5TableOfAPrimeNumberOfRows) {
  for (const char* mesh : {"", "m:2", "m:4", "m:8"}) {
    Small s;
    Tensor table = s.graph.parameter("table", {{"v", 50257}}, Initializer::constant(1));
    Tensor ids = s.input("ids", {{"n", 3}}, {0, 25129, 50256}, DType::I32);
    Tensor grad = gradients({square(gather(table, ids, "v"))}, {table})[0];
    Tensor update = s.graph.assign(table, sub(table, scale(grad, 0.25)));
    Session session(s.graph, Mesh::parse(mesh), Layout::parse(*mesh ? "v:m;params.*:m" : ""));
    session.run(session.compile({update}), {{"ids", Array(Type{{{"n", 3}}, DType::I32}, {0, 25129, 50256})}});
    const Array rows = session.store().read("table");
    EXPECT_EQ(session.store().bytes(), 4 * 50257) << "padding is stored";
    for (std::int64_t i = 0; i < 50257; ++i) {
      ASSERT_EQ(rows.get(i), i == 0 || i == 25129 || i == 50256 ? 0.5 : 1) << mesh << " row " << i;
    }
  }
}

TEST(Faults, D1D5RandomNumbersOnAnyMeshWithoutTraffic) {
  Small s;
  Tensor x = random_normal(s.graph, {{"n", 496}}), whole = random_uniform(s.graph, {{"k", 7}});
  const Values want = s.run(x);
  for (const char* mesh : {"m:4", "m:8", "m:16", "m:3"}) {
    EXPECT_EQ(s.run(x, mesh, "n:m"), want) << mesh;
    EXPECT_EQ(s.lowered(add(x, whole), mesh, "n:m").collective_bytes, 0) << mesh;
  }
}

}  // namespace
}  // namespace tessera::testing
