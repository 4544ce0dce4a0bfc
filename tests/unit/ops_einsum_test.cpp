// Contraction against numbers worked out by hand.
#include "ops_values.h"

namespace tessera::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

const Dim kRow{"row", 4}, kIn{"in", 4}, kCol{"col", 4};

TEST(Einsum, MatrixProduct) {
  Graph g;
  const Tensor a = literal(g, counting(16), {kRow, kIn}), b = literal(g, counting(16), {kIn, kCol});
  const Tensor y = einsum({a, b});
  EXPECT_EQ(to_string(y.type()), "f64[row:4;col:4]");
  EXPECT_THAT(run(y),
              ElementsAre(56, 62, 68, 74, 152, 174, 196, 218, 248, 286, 324, 362, 344, 398, 452, 506));
}

TEST(Einsum, OutputOrderIsAsked) {
  Graph g;
  const Tensor a = literal(g, {1, 2, 3, 4, 5, 6}, {{"row", 2}, {"in", 3}});
  const Tensor b = literal(g, {1, 0, -1}, {{"in", 3}});
  EXPECT_THAT(run(einsum({a, b}, Shape{{"row", 2}})), ElementsAre(-2, -2));
  const Tensor turned = einsum({a, b}, Shape{{"in", 3}, {"row", 2}});
  EXPECT_EQ(to_string(turned.type()), "f64[in:3;row:2]");
  EXPECT_THAT(run(turned), ElementsAre(1, 4, 0, 0, -3, -6));
}

TEST(Einsum, BatchDimensionsStay) {
  Graph g;
  const Tensor a = literal(g, counting(6), {{"batch", 2}, {"in", 3}});
  const Tensor b = literal(g, counting(12), {{"batch", 2}, {"in", 3}, {"out", 2}});
  const Tensor y = einsum({a, b}, Shape{{"batch", 2}, {"out", 2}});
  // batch 0: 0*(0,1) + 1*(2,3) + 2*(4,5); batch 1: 3*(6,7) + 4*(8,9) + 5*(10,11)
  EXPECT_THAT(run(y), ElementsAre(10, 13, 100, 112));
}

TEST(Einsum, DimensionsOfNoInputAreBroadcast) {
  Graph g;
  const Tensor a = literal(g, {1, 2}, {{"row", 2}}), b = literal(g, {3, 4}, {{"row", 2}});
  const Tensor y = einsum({a, b}, Shape{{"copy", 3}});
  EXPECT_THAT(run(y), ElementsAre(11, 11, 11));
}

TEST(Einsum, OneInputIsSummedAndTransposed) {
  Graph g;
  const Tensor a = literal(g, counting(12), {{"x", 2}, {"y", 3}, {"z", 2}});
  const Tensor y = einsum({a}, Shape{{"z", 2}, {"x", 2}});
  EXPECT_THAT(run(y), ElementsAre(6, 24, 9, 27));
}

// x[i], y[j] -> [i, j]: the gradient of the sum to y is sum(x) everywhere, in the shape of y.
TEST(Einsum, GradientOfTheOuterProduct) {
  Graph g;
  const Tensor x = literal(g, {1, 2, 4}, {{"i", 3}}), y = literal(g, {3, 5}, {{"j", 2}});
  const Tensor outer = einsum({x, y}, Shape{{"i", 3}, {"j", 2}});
  EXPECT_THAT(run(outer), ElementsAre(3, 5, 6, 10, 12, 20));
  const Tensor dy = gradient(outer, y);
  EXPECT_EQ(dy.shape(), y.shape());
  EXPECT_THAT(run(dy), ElementsAre(7, 7));
  EXPECT_THAT(run(gradient(outer, x)), ElementsAre(8, 8, 8));
}

// A dimension that one input alone has and that is summed: its gradient is the same for every element.
TEST(Einsum, GradientOfADimensionSummedInOneInput) {
  Graph g;
  const Tensor x = literal(g, counting(12), {{"row", 2}, {"spare", 3}, {"in", 2}}),
               w = literal(g, {10, 100}, {{"in", 2}});
  const Tensor y = einsum({x, w}, Shape{{"row", 2}});
  EXPECT_THAT(run(y), ElementsAre(60 + 900, 240 + 2700));
  EXPECT_THAT(run(gradient(y, x)), ElementsAre(10, 100, 10, 100, 10, 100, 10, 100, 10, 100, 10, 100));
  EXPECT_THAT(run(gradient(y, w)), ElementsAre(30, 36));
}

int count_of(const Graph& g, const char* op) {
  int count = 0;
  for (const Node& node : g.nodes()) count += std::string(node.op->name) == op;
  return count;
}

// (a b) c costs 2*50*2 + 2*2*60 products, a (b c) 50*2*60 + 2*50*60: the first is chosen whatever the order
// of the arguments.
TEST(Einsum, ThreeInputsCheapestFirst) {
  const Shape output{{"m", 2}, {"n", 60}};
  for (const std::vector<int>& order : {std::vector<int>{0, 1, 2}, {2, 1, 0}, {1, 2, 0}}) {
    Graph g;
    const Tensors xs{literal(g, counting(100), {{"m", 2}, {"k", 50}}),
                     literal(g, counting(100), {{"k", 50}, {"l", 2}}),
                     literal(g, counting(120), {{"l", 2}, {"n", 60}})};
    Args args;
    for (int i : order) args.emplace_back(xs[static_cast<std::size_t>(i)]);
    const Tensor y = einsum(args, output);
    ASSERT_EQ(count_of(g, "einsum"), 2);
    double products = 0;
    for (const Node& node : g.nodes()) {
      if (std::string(node.op->name) == "einsum") products += node.op->flops(call_of(node)) / 2;
    }
    EXPECT_EQ(products, 2 * 50 * 2 + 2 * 2 * 60);
    const Doubles values = run(y);
    const double ab0 = 80850, ab1 = 82075;  // sum k*2k and sum k*(2k+1), k < 50
    EXPECT_EQ(values[0], ab1 * 60);
    EXPECT_EQ(values[59], ab0 * 59 + ab1 * 119);
  }
}

TEST(Einsum, IntegersAreExactAndWrap) {
  Graph g;
  const Tensor a = literal(g, {1 << 20, 7}, {{"in", 2}}, DType::I32),
               b = literal(g, {1 << 12, 3}, {{"in", 2}}, DType::I32);
  EXPECT_THAT(run(einsum({a, b})), ElementsAre(21));  // 2^32 + 21
}

TEST(Einsum, EmptySumIsZero) {
  Graph g;
  const Tensor a = literal(g, {}, {{"row", 2}, {"in", 0}}), b = literal(g, {}, {{"in", 0}, {"col", 2}});
  EXPECT_THAT(run(einsum({a, b})), ElementsAre(0, 0, 0, 0));
}

TEST(Einsum, Errors) {
  Graph g;
  const Tensor x = g.input("x", {{"batch", 2}, {"d_model", 512}}),
               w = g.input("w", {{"d_model", 1024}, {"d_ff", 8}});
  EXPECT_EQ(message_of([&] {
              einsum({x, w});
            }),
            "einsum: dimension 'd_model' has size 512 in 'x' but 1024 in 'w' (FILE:LINE); rename one or fix "
            "the size");
  EXPECT_EQ(message_of([&] {
              einsum({x, g.input("h", {{"d_model", 512}}, DType::BF16)});
            }),
            "einsum: 'x' is f32 but 'h' is bf16 (FILE:LINE); cast one of them");
  EXPECT_EQ(
      message_of([&] {
        einsum({x}, Shape{{"batch", 3}});
      }),
      "einsum: dimension 'batch' has size 3 in the output but 2 in the inputs (FILE:LINE); fix one of them");
  EXPECT_EQ(message_of([&] { einsum(Args{}); }), "einsum: has no inputs (FILE:LINE)");
}

}  // namespace
}  // namespace tessera::testing
