// Faults seen in other systems (docs/faults.md) that show only when a dimension is split: each on the layout
// that broke there, with its right value. Parts are uneven or empty wherever the fault allows it.
#include "error/run.h"

namespace tessera::testing {
namespace {

// ---------------------------------------------------------------------------------------------- uneven sizes

TEST(Faults, U1MeanOfUnequalAndEmptyShards) {
  Small s;
  Tensor x = s.input("x", {{"a", 3}, {"b", 4}}, counting(0, 12)),
         one = s.input("one", {{"c", 1}, {"b", 4}}, counting(0, 4));
  expect_everywhere(s, reduce_mean(x), {5.5}, {{"m:2", "a:m"}, {"m:4", "a:m"}, {"m:3", "b:m"}});
  expect_everywhere(s, reduce_mean(one), {1.5}, {{"m:2", "c:m"}});
}

TEST(Faults, U4RowParallelProductOfUnevenParts) {
  Small s;
  Tensor x = s.input("x", {{"n", 9}, {"k", 16}}, counting(0, 144)),
         w = s.input("w", {{"k", 16}, {"p", 10}}, counting(-80, 160));
  Tensor y = einsum({x, w}, {{"n", 9}, {"p", 10}});
  expect_everywhere(s, y, s.run(y), {{"m:6", "k:m"}, {"m:6", "n:m"}, {"m:2;q:3", "n:m;k:q"}});
}

TEST(Faults, U6BatchSmallerThanItsAxis) {
  for (std::int64_t batch : {4, 10}) {
    Small s;
    Tensor x = s.input("x", {{"batch", batch}, {"d", 2}}, counting(1, static_cast<int>(2 * batch)));
    Tensor loss = reduce_mean(square(x));
    Tensor d = gradients({loss}, {x})[0];
    expect_everywhere(s, d, s.run(d), {{"m:8", "batch:m"}, {"m:4", "batch:m"}, {"m:3;k:4", "batch:m+k"}});
  }
}

// Cross product of rows that are cut (0, 2) in one factor and (1, 1) in the other.
TEST(Faults, U8OtherCutPointsAreRealigned) {
  Small s;
  auto turned = [](const Tensor& x, int by) {
    return concat({slice(x, "xyz", by, 3 - by), slice(x, "xyz", 0, by)}, "xyz");
  };
  Tensor a = s.input("a", {{"p", 2}, {"xyz", 3}}, {1, 0, 0, 0, 1, 0}),
         b = s.input("b", {{"q", 2}, {"xyz", 3}}, {0, 1, 0, 0, 0, 1});
  Tensor c = rename(b, {{"q", "p"}});
  Tensor cross = sub(mul(turned(a, 1), turned(c, 2)), mul(turned(a, 2), turned(c, 1)));
  expect_everywhere(s, cross, {0, 0, 1, 1, 0, 0}, {{"m:2", "p:m@2;q:m"}, {"m:2", "p:m;q:m@2"}});
}

// Two heads of four over four ranks: the merged dimension divides, the heads do not.
TEST(Faults, U9MergedHeads) {
  Small s;
  Tensor x = s.input("x", {{"heads", 2}, {"d_kv", 4}}, counting(0, 8));
  Tensor merged = square(merge(x, {"heads", "d_kv"}, "features"));
  Tensor back = reduce_sum(split_dim(merged, "features", {{"heads", 2}, {"d_kv", 4}}), {"d_kv"});
  expect_everywhere(s, back, {14, 126},
                    {{"m:4", "heads:m"},
                     {"m:4", "heads:m;features:m"},
                     {"m:4", "heads:m;features:m@4"},
                     {"m:4", "features:m"}});
  EXPECT_EQ(s.lowered(back, "m:4", "heads:m;features:m@4").count.count("all_to_all"), 0u)
      << "grain 4 keeps heads whole";
}

TEST(Faults, U11IndexOfASplitDimension) {
  Small s;
  Tensor x = s.input("x", {{"a", 3}, {"b", 4}, {"c", 5}}, counting(0, 60));
  expect_everywhere(s, unstack(x, "a")[1], counting(20, 20),
                    {{"m:2", "a:m"}, {"m:5", "a:m"}, {"m:2;k:3", "a:m;b:k"}});
}

TEST(Faults, U12StatisticsOfUnequalShards) {
  Small s;
  Tensor x = s.input("x", {{"n", 4}}, {0, 0, 0, 4});
  Tensor variance = reduce_mean(square(sub(x, reduce_mean(x))));
  expect_everywhere(s, variance, {3}, {{"m:2", "n:m@3"}, {"m:3", "n:m"}, {"m:8", "n:m"}});
}

TEST(Faults, U13EveryRowIsOwnedOnce) {
  for (std::int64_t size : {0, 1, 2, 10, 64, 1000}) {
    for (std::int64_t parts : {1, 2, 3, 7, 16, 65}) {
      for (std::int64_t grain : {1, 3, 64}) {
        EXPECT_EQ(cut_at(size, grain, parts, 0), 0);
        EXPECT_EQ(cut_at(size, grain, parts, parts), size);
        for (std::int64_t i = 0; i < parts; ++i)
          EXPECT_LE(cut_at(size, grain, parts, i), cut_at(size, grain, parts, i + 1));
      }
    }
  }
}

// ---------------------------------------------------------------------------------------------- meshes and
// layouts

TEST(Faults, L5TwoAxesInTheOtherOrder) {
  Small s;
  Tensor a = s.input("a", {{"i", 4}, {"k", 4}}, counting(0, 16)),
         b = s.input("b", {{"k2", 4}, {"j", 4}}, counting(0, 16));
  Tensor y = einsum({a, rename(b, {{"k2", "k"}})}, {{"i", 4}, {"j", 4}});
  expect_everywhere(s, y, {56, 62, 68, 74, 152, 174, 196, 218, 248, 286, 324, 362, 344, 398, 452, 506},
                    {{"r:2;c:2", "k:r+c;k2:c+r"}, {"r:2;c:2", "k:c+r;k2:r+c"}});
}

TEST(Faults, L7FirstAxisIsTheOuterOne) {
  Mesh mesh = Mesh::parse("r:2;c:2");
  Interval rows = part_of(mesh, Cut{{0, 1}}, 8, mesh.rank_of({1, 0}));
  EXPECT_EQ(rows.begin, 4);
  EXPECT_EQ(rows.end, 6);
}

TEST(Faults, L8AxesThatNothingUses) {
  Small s;
  Tensor a = s.input("a", {{"d", 4}}, Values(4, 1)), b = s.input("b", {{"d", 12}}, Values(12, 1));
  Tensor both = concat({a, b}, "d");
  expect_everywhere(s, both, Values(16, 1), {{"m:4;idle:2", "d:m"}, {"idle:2;m:3", "d:m"}});
  expect_everywhere(s, reduce_sum(both), {16}, {{"m:4;idle:2", "d:m"}, {"idle:2;m:3", "d:m"}});
}

TEST(Faults, O6CoordinatesAreIntegers) {
  const std::int64_t beyond = (std::int64_t{1} << 24) + 1;  // a float32 rounds this to 2^24
  EXPECT_EQ(cut_at(4 * beyond, 1, 2 * beyond, beyond), 2 * beyond);
  EXPECT_EQ(cut_at(std::int64_t{1} << 61, 1, std::int64_t{1} << 30, 3), std::int64_t{3} << 31);
  Mesh mesh = Mesh::parse("a:512;b:2;c:1024");
  EXPECT_EQ(mesh.rank_of(mesh.coordinates(mesh.ranks() - 2)), mesh.ranks() - 2);
}

// ---------------------------------------------------------------------------------------------- pending sums

TEST(Faults, P1ConstantBesideAPendingSum) {
  Small s;
  Tensor x = s.input("x", {{"n", 10}}, counting(0, 10));
  expect_everywhere(s, reduce_sum(x) + 10.0, {55}, {{"m:2", "n:m"}, {"m:3", "n:m"}});
  Tensor w = s.input("w", {{"n", 10}, {"out", 2}}, counting(0, 20)),
         bias = s.input("bias", {{"out", 2}}, {1, 2});
  expect_everywhere(s, add(einsum({x, w}, {{"out", 2}}), bias), {571, 617},
                    {{"m:2", "n:m"}, {"m:2;k:2", "n:m;out:k"}});
}

TEST(Faults, P2MaximumOfAPendingSum) {
  Small s;
  Tensor x = s.input("x", {{"k", 2}, {"n", 2}}, {1, 3, 2, 1});
  expect_everywhere(s, reduce_max(reduce_sum(x, {"k"})), {4}, {{"m:2", "k:m"}, {"m:2;p:2", "k:m;n:p"}});
}

TEST(Faults, P4P5SoftmaxOverASplitDimension) {
  Small s;
  Tensor wide = s.input("wide", {{"v", 8}}, {0, 10, 20, 30, 40, 50, 60, 70});
  Tensor far = s.input("far", {{"v", 2}}, {1000, 0});
  for (const On& on : {On{"m:8", "v:m"}, On{"m:3", "v:m"}, On{"m:2", "v:m"}}) {
    const Values p = s.run(softmax(wide, "v"), on.mesh, on.layout);
    EXPECT_NEAR(p[6], 4.5398e-5, 1e-8);
    EXPECT_NEAR(p[7], 0.9999546, 1e-6);
    EXPECT_EQ(s.run(softmax(far, "v"), on.mesh, on.layout), (Values{1, 0}));
  }
}

// Two sums of the same numbers, one of which crosses ranks, are two sums.
TEST(Faults, H9LocalAndGlobalSumsAreNotMerged) {
  Small s;
  Tensor x = s.input("x", {{"a", 2}, {"b", 2}}, {1, 2, 3, 4}, DType::BF16);
  Tensor both = concat({reduce_sum(x, {"a"}), rename(reduce_sum(x, {"b"}), {{"a", "b"}})}, "b");
  expect_everywhere(s, both, {4, 6, 3, 7}, {{"m:2", "a:m"}, {"m:2", "b:m"}, {"m:2;k:2", "a:m;b:k"}});
}

TEST(Faults, F3MeanOfLargeHalfPrecisionNumbers) {
  Small s;
  Tensor x = s.input("x", {{"n", 16}}, Values(16, 8000), DType::BF16),
         small = s.input("small", {{"n", 16}}, Values(16, 1), DType::BF16);
  expect_everywhere(s, reduce_mean(x), {8000}, {{"m:16", "n:m"}, {"m:3", "n:m"}});
  expect_everywhere(s, scale(reduce_mean(scale(small, 0x1p-23)), 0x1p23), {1}, {{"m:16", "n:m"}});
}

TEST(Faults, N2InfinityNormIsAMaximum) {
  Small s;
  Tensor a = s.input("a", {{"n", 3}}, {3, -12, 4}), b = s.input("b", {{"k", 2}}, {-5, 9});
  Tensor norm = maximum(reduce_max(abs(a)), reduce_max(abs(b)));
  expect_everywhere(s, norm, {12}, {{"m:2", "n:m"}, {"m:2", "n:m;k:m"}, {"m:4;p:3", "n:m;k:p"}});
}

// ---------------------------------------------------------------------------------------------- moves

TEST(Faults, R1R7MergeOfASplitInnerDimensionAndWhatFollows) {
  Small s;
  Tensor x = s.input("x", {{"a", 4}, {"b", 4}, {"c", 4}}, counting(0, 64));
  Tensor view = reshape(x, {{"d", 8}, {"e", 8}});
  const std::vector<On> layouts{
      {"m:2", "b:m"}, {"m:3", "b:m"}, {"m:2", "b:m;e:m"}, {"m:2;k:3", "b:m;d:k"}, {"m:2;k:3", "a:k;c:m;e:m"}};
  expect_everywhere(s, view, counting(0, 64), layouts);
  expect_everywhere(s, split_dim(merge(x, {"a", "b"}, "n"), "n", {{"a", 4}, {"b", 4}}), counting(0, 64),
                    layouts);
  Tensor later = transpose(view, {"e", "d"});
  later = reduce_mean(concat({slice(later, "d", 2, 3), slice(later, "d", 0, 1)}, "d"), {"e"});
  expect_everywhere(s, later, {19.5, 27.5, 35.5, 3.5}, layouts);
  Tensor p = softmax(scale(view, 0.1), "e");
  const Values want = s.run(p);
  for (const On& on : layouts) {
    const Values got = s.run(p, on.mesh, on.layout);
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6) << on.layout;
  }
}

TEST(Faults, R3CutsThatDoNotMatch) {
  Small s;
  Tensor x = s.input("x", {{"a", 4}, {"b", 6}}, counting(0, 24));
  expect_everywhere(s, reshape(x, {{"d", 8}, {"e", 3}}), counting(0, 24),
                    {{"m:2", "a:m;d:m"}, {"m:2;n:3", "a:m;e:n"}, {"m:3", "a:m;e:m"}, {"m:5", "b:m;d:m"}});
}

// A batch in micro-batches: free when the split stays on the outer part, exact on either.
TEST(Faults, R4SplittingABatch) {
  Small s;
  Tensor x = s.input("x", {{"batch", 8}, {"f", 3}}, counting(0, 24));
  Tensor rows_first = split_dim(x, "batch", {{"rows", 4}, {"micro", 2}}),
         micro_first = split_dim(x, "batch", {{"micro", 2}, {"rows", 4}});
  expect_everywhere(s, micro_first, counting(0, 24), {{"m:4", "batch:m;rows:m"}, {"m:3", "batch:m;rows:m"}});
  expect_everywhere(s, rows_first, counting(0, 24), {{"m:4", "batch:m;rows:m"}});
  EXPECT_EQ(s.lowered(rows_first, "m:4", "batch:m;rows:m").collective_bytes, 0);
}

TEST(Faults, U5ShrinkBackOfUnevenParts) {
  Small s;
  Tensor x = s.input("x", {{"n", 2}}, {5, 7});
  Tensor back = slice(pad(x, "n", 0, 4), "n", 0, 2);
  expect_everywhere(s, back, {5, 7}, {{"m:4", "n:m"}, {"m:3", "n:m"}});
  expect_everywhere(s, gradients({square(back)}, {x})[0], {10, 14}, {{"m:4", "n:m"}});
}

}  // namespace
}  // namespace tessera::testing
