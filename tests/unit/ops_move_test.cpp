// Data movement with numbers checked by hand, and the gradients of views. The generated tests cut every
// dimension; here stand the cases that users of such systems reported (ids: faults catalogue).
#include <gtest/gtest.h>

#include <numeric>

#include "support/evaluate.h"
#include "tessera/error.h"
#include "tessera/grad.h"
#include "unit/ops_values.h"

namespace tessera::testing {
namespace {

using ::testing::Test;

std::vector<double> counting(std::int64_t n) {
  std::vector<double> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 0.0);
  return values;
}

class Moves : public Test {
 protected:
  Tensor feed(const std::string& name, const Shape& shape, DType dtype = DType::F32) {
    options_.feeds[name] = Array({shape, dtype}, counting(shape.elements()));
    return graph_.input(name, shape, dtype);
  }
  std::vector<double> values(const Tensor& t) { return evaluate({t}, options_)[0].values(); }
  // Gradient of sum(y * (0, 1, 2, ...)).
  std::vector<double> counted_gradient(const Tensor& y, const Tensor& x) {
    const Tensor seed = constant(graph_, counting(y.shape().elements()), y.shape(), y.dtype());
    return values(gradients({y}, {x}, {seed})[0]);
  }

  Graph graph_;
  EvaluateOptions options_;
};

TEST_F(Moves, TransposeReordersAndComesBack) {
  const Tensor x = feed("x", {{"a", 2}, {"b", 3}});
  const Tensor y = transpose(x, {"b", "a"});
  EXPECT_EQ(values(y), (std::vector<double>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(counted_gradient(y, x), (std::vector<double>{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(transpose(x, {"a", "b"}), x);
}

TEST_F(Moves, BroadcastRepeatsAndItsGradientSums) {
  const Tensor x = feed("x", {{"b", 2}});
  const Tensor y = broadcast(x, {{"a", 2}, {"b", 2}, {"c", 2}});
  EXPECT_EQ(values(y), (std::vector<double>{0, 0, 1, 1, 0, 0, 1, 1}));
  EXPECT_EQ(counted_gradient(y, x), (std::vector<double>{0 + 1 + 4 + 5, 2 + 3 + 6 + 7}));
}

TEST_F(Moves, RenameSwapsTwoNamesAtOnce) {
  const Tensor x = feed("x", {{"a", 2}, {"b", 3}});
  const Tensor y = rename(x, {{"a", "b"}, {"b", "a"}});
  EXPECT_EQ(to_string(y.shape()), "b:2;a:3");
  EXPECT_EQ(values(y), counting(6));
  EXPECT_EQ(rename(x, {{"a", "a"}}), x);
  EXPECT_EQ(counted_gradient(y, x), counting(6));
}

// R1: 0..63 as [4,4,4], the middle merged away and split back.
TEST_F(Moves, ReshapeIsRowMajorWhateverTheDimensions) {
  const Tensor x = feed("x", {{"a", 4}, {"b", 4}, {"c", 4}});
  const Tensor y = reshape(x, {{"d", 8}, {"e", 8}});
  EXPECT_EQ(values(y), counting(64));
  EXPECT_EQ(values(split_dim(merge(x, {"a", "b"}, "ab"), "ab", {{"a", 4}, {"b", 4}})), counting(64));
  EXPECT_EQ(values(reshape(y, {{"a", 2}, {"one", 1}, {"b", 32}})), counting(64));
}

// R3 and shapes without a common refinement: every element keeps its place.
TEST_F(Moves, ReshapeWithoutCommonRefinement) {
  for (const auto& [from, to] :
       std::vector<std::pair<const char*, const char*>>{{"a:4;b:6", "d:8;e:3"},
                                                        {"a:4;b:6", "d:3;e:8"},
                                                        {"a:2;b:9;c:2", "d:3;e:4;f:3"},
                                                        {"a:5;b:7;c:3", "c:3;a:5;b:7"},
                                                        {"x:3;a:6;b:10", "x:3;d:15;e:4"},
                                                        {"a:1;b:1;c:6", "c:6;b:1"},
                                                        {"a:30;b:7", "d:7;e:30"},
                                                        {"a:6;b:1;c:35", "c:35;d:6"}}) {
    Graph graph;
    const Shape shape = parse_shape(from);
    const Tensor x = graph.input("x", shape), y = reshape(x, parse_shape(to));
    EvaluateOptions options;
    options.feeds["x"] = Array({shape, DType::F32}, counting(shape.elements()));
    EXPECT_EQ(evaluate({y}, options)[0].values(), counting(shape.elements())) << from << " -> " << to;
    EXPECT_EQ(graph.node(y.node()).op->moves(call_of(graph.node(y.node()))).size() == 1,
              std::string(to) == "d:8;e:3" || std::string(to) == "c:6;b:1")
        << from << " -> " << to;
  }
}

// R4: [8, f] -> [2, 4, f] stays one move, so a cut of the 4 can be kept; roles say which cut continues.
TEST_F(Moves, ReshapeContinuesTheMajorDimension) {
  const Tensor x = feed("x", {{"heads", 3}, {"d_kv", 4}, {"length", 5}});
  const Tensor y = merge(x, {"heads", "d_kv"}, "heads");
  const Call call = call_of(graph_.node(y.node()));
  EXPECT_EQ(to_string(y.shape()), "heads:12;length:5");
  EXPECT_EQ(role_of(call, 0, "heads"), Role::Map);
  EXPECT_EQ(role_of(call, 0, "d_kv"), Role::Whole);
  EXPECT_EQ(role_of(call, 0, "length"), Role::Map);
  EXPECT_EQ(call.op->renames(call), (Renames{{"heads", "heads"}}));
  EXPECT_EQ(call.op->resized(call), Names{"heads"});
  EXPECT_EQ(call.op->moves(call).size(), 1u);
}

// U5: a dimension of size 2 padded to 6 and cut back.
TEST_F(Moves, PadAndSliceBack) {
  const Tensor x = feed("x", {{"rows", 2}, {"cols", 3}});
  const Tensor padded = pad(x, "rows", 1, 3), y = slice(padded, "rows", 1, 2);
  EXPECT_EQ(values(padded), (std::vector<double>{0, 0, 0, 0, 1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(values(y), counting(6));
  EXPECT_EQ(counted_gradient(y, x), counting(6));
  EXPECT_EQ(values(pad(x, "cols", 0, 1, -2.5)), (std::vector<double>{0, 1, 2, -2.5, 3, 4, 5, -2.5}));
  EXPECT_EQ(counted_gradient(pad(x, "cols", 1, 1, 7), x), (std::vector<double>{1, 2, 3, 6, 7, 8}));
}

// U11: x[3,4,5] at index 1 of the first dimension.
TEST_F(Moves, UnstackTakesOneIndex) {
  const Tensor x = feed("x", {{"a", 3}, {"b", 4}, {"c", 5}});
  const Tensors parts = unstack(x, "a");
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(to_string(parts[1].shape()), "b:4;c:5");
  std::vector<double> expected = counting(20);
  for (double& v : expected) v += 20;
  EXPECT_EQ(values(parts[1]), expected);
  // The outputs that nobody uses get zeros.
  std::vector<double> gradient(60, 0.0);
  std::iota(gradient.begin() + 20, gradient.begin() + 40, 0.0);
  EXPECT_EQ(counted_gradient(parts[1], x), gradient);
}

// X12: stack of two [2,2], upstream 0..7.
TEST_F(Moves, StackGradientGoesToEachInput) {
  const Tensor a = feed("a", {{"rows", 2}, {"cols", 2}}), b = feed("b", {{"rows", 2}, {"cols", 2}});
  const Tensor y = stack({a, b}, "layer");
  EXPECT_EQ(to_string(y.shape()), "layer:2;rows:2;cols:2");
  EXPECT_EQ(counted_gradient(y, a), (std::vector<double>{0, 1, 2, 3}));
  EXPECT_EQ(counted_gradient(y, b), (std::vector<double>{4, 5, 6, 7}));
}

// X13: concat on the second-last dimension for two to five dimensions: interleaves by leading index.
TEST_F(Moves, ConcatInEveryRank) {
  const std::vector<Dim> leading = {{"e", 2}, {"d", 3}, {"c", 2}};
  for (std::size_t n = 0; n <= leading.size(); ++n) {
    Graph graph;
    std::vector<Dim> first(leading.begin(), leading.begin() + static_cast<std::ptrdiff_t>(n)), second = first;
    for (const Dim& d : {Dim{"b", 2}, Dim{"a", 3}}) first.push_back(d);
    for (const Dim& d : {Dim{"b", 1}, Dim{"a", 3}}) second.push_back(d);
    const Shape x{Shape(first)}, y{Shape(second)};
    EvaluateOptions options;
    options.feeds["x"] = Array({x, DType::F32}, counting(x.elements()));
    std::vector<double> negative = counting(y.elements());
    for (double& v : negative) v = -1 - v;
    options.feeds["y"] = Array({y, DType::F32}, negative);
    const Tensor joined = concat({graph.input("x", x), graph.input("y", y)}, "b");
    std::vector<double> expected;
    for (std::int64_t i = 0; i < y.elements() / 3; ++i) {
      for (int k = 0; k < 6; ++k) expected.push_back(static_cast<double>(6 * i + k));
      for (int k = 0; k < 3; ++k) expected.push_back(static_cast<double>(-1 - 3 * i - k));
    }
    EXPECT_EQ(evaluate({joined}, options)[0].values(), expected) << n + 2 << " dimensions";
  }
}

TEST_F(Moves, SplitAllowsEmptyPartsAndZeroGradients) {
  const Tensor x = feed("x", {{"rows", 2}, {"cols", 4}});
  const Tensors parts = split(x, "cols", {1, 0, 3});
  EXPECT_EQ(values(parts[0]), (std::vector<double>{0, 4}));
  EXPECT_EQ(values(parts[1]), std::vector<double>{});
  EXPECT_EQ(values(parts[2]), (std::vector<double>{1, 2, 3, 5, 6, 7}));
  EXPECT_EQ(counted_gradient(parts[2], x), (std::vector<double>{0, 0, 1, 2, 0, 3, 4, 5}));
}

TEST_F(Moves, SourcesCountAndRepeat) {
  EXPECT_EQ(values(range(graph_, {"a", 4})), counting(4));
  EXPECT_EQ(values(constant(graph_, 2.5, {{"a", 2}})), (std::vector<double>{2.5, 2.5}));
  EXPECT_EQ(values(constant(graph_, Doubles{3, 1, 2}, {{"a", 3}}, DType::I32)),
            (std::vector<double>{3, 1, 2}));
  const Tensor x = feed("x", {{"a", 3}}, DType::I32);
  EXPECT_EQ(values(zeros_like(x)), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(ones_like(x).dtype(), DType::I32);
  EXPECT_EQ(values(ones_like(x)), (std::vector<double>{1, 1, 1}));
}

// ------------------------------------------------------------------------------------------------ messages

TEST_F(Moves, MessagesNameTheDimensionAndBothFacts) {
  const Tensor x = feed("x", {{"rows", 2}, {"cols", 6}}), y = feed("y", {{"rows", 3}, {"cols", 6}});
  EXPECT_EQ(bare_message_of([&] { slice(x, "cols", 4, 3); }),
            "slice: [4, 7) is not inside dimension 'cols' of size 6");
  EXPECT_EQ(bare_message_of([&] { slice(x, "col", 0, 1); }),
            "slice: the input has no dimension 'col', only [rows:2;cols:6]");
  EXPECT_EQ(bare_message_of([&] { pad(x, "rows", -1, 0, 3); }),
            "pad: -1 elements before and 0 after dimension 'rows'");
  EXPECT_EQ(bare_message_of([&] {
              concat({x, y}, "cols");
            }),
            "concat: [rows:2;cols:6] and [rows:3;cols:6] differ in more than 'cols'");
  EXPECT_EQ(bare_message_of([&] {
              split(x, "cols", {1, 2});
            }),
            "split: the sizes add up to 3 but dimension 'cols' has size 6");
  EXPECT_EQ(bare_message_of([&] {
              stack({x, y}, "layer");
            }),
            "stack: [rows:2;cols:6] and [rows:3;cols:6] differ");
  EXPECT_EQ(bare_message_of([&] {
              rename(x, {{"rows", "cols"}});
            }),
            "rename: both 'rows' and 'cols' of [rows:2;cols:6] would be called 'cols'");
  EXPECT_EQ(bare_message_of([&] { transpose(x, {"cols"}); }),
            "transpose: the order names 1 of the 2 dimensions of [rows:2;cols:6]");
  EXPECT_EQ(bare_message_of([&] {
              broadcast(x, {{"rows", 2}});
            }),
            "broadcast: the target [rows:2] lacks dimension 'cols' of the input [rows:2;cols:6]");
  EXPECT_EQ(bare_message_of([&] {
              reshape(x, {{"a", 5}});
            }),
            "reshape: [rows:2;cols:6] has 12 elements but [a:5] has 5");
}

}  // namespace
}  // namespace tessera::testing
