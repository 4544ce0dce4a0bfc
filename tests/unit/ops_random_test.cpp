// Random sources and dropout: the same bits for every cut of the tensor, right distributions, and a gradient
// that uses the mask of the forward pass (ids: faults catalogue).
#include <gtest/gtest.h>

#include <cmath>

#include "support/evaluate.h"
#include "tessera/error.h"
#include "tessera/grad.h"

namespace tessera::testing {
namespace {

constexpr std::uint64_t kSeed = 11;

// Runs a source shard by shard along every dimension, with an uneven and an empty part, and compares with one
// piece.
void expect_same_in_parts(const Tensor& t, const Array* input = nullptr) {
  const Node& node = t.graph().node(t.node());
  const Call call = call_of(node);
  const RandomState random{kSeed, 5, node.key};
  std::vector<Array> inputs;
  if (input) inputs.push_back(*input);
  const Array whole = run_op(call, inputs, random)[0];
  for (std::size_t d = 0; d < t.shape().count(); ++d) {
    const std::int64_t size = t.shape()[d].size;
    const std::vector<std::int64_t> cuts = {0, size / 3, size / 3, size};
    Array joined(t.type());
    for (std::size_t p = 0; p + 1 < cuts.size(); ++p) {
      Box box = whole_box(t.shape());
      box.start[d] = cuts[p];
      box.size[d] = cuts[p + 1] - cuts[p];
      Array part = part_of(joined, box);
      Array in = input ? part_of(*input, box) : Array();
      const std::vector<View> out = {make_view(part.data.data(), t.type(), box)};
      std::vector<View> views;
      if (input) views.push_back(make_view(in.data.data(), input->type, box));
      KernelContext ctx{call, views, out, random.seed, random.step, &random.key};
      run_reference(*call.op, ctx);
      put_part(joined, part, box);
    }
    EXPECT_TRUE(same_bits(joined, whole)) << node.name << " cut along " << t.shape()[d].name;
  }
}

// D1: values depend on seed, name, step and global index only.
TEST(Random, ShardsDrawTheSameBits) {
  Graph g;
  for (const DType dtype : {DType::F32, DType::BF16, DType::F64}) {
    const Shape shape{{"a", 7}, {"b", 5}, {"c", 3}};
    expect_same_in_parts(random_uniform(g, shape, -1, 2, dtype));
    expect_same_in_parts(random_normal(g, shape, 1, 2, dtype));
    expect_same_in_parts(random_truncated_normal(g, shape, 0, 1, dtype));
    expect_same_in_parts(random_bernoulli(g, shape, 0.4, dtype));
    Array ones({shape, dtype}, std::vector<double>(105, 1.0));
    const Tensor x = g.input(std::string("x_") + to_string(dtype), shape, dtype);
    expect_same_in_parts(dropout(x, 0.5), &ones);
    expect_same_in_parts(dropout(x, 0.25, {"a", "c"}), &ones);
    expect_same_in_parts(dropout(x, 0.25, {"b"}), &ones);
  }
}

// A window of rows 3..7 of a batch of 8 draws what the whole batch draws there.
TEST(Random, AWindowDrawsItsPartOfTheWhole) {
  Graph g;
  const Tensor whole = random_normal(g, {{"batch", 8}, {"d", 3}}),
               window = random_normal(g, {{"batch", 4}, {"d", 3}});
  const RandomState random{kSeed, 1, "same"};
  const Array all = run_op(call_of(g.node(whole.node())), {}, random)[0];
  const Call call = call_of(g.node(window.node()));
  Array part(window.type());
  View view = view_of(part);
  view.start = {3, 0};
  view.full = {8, 3};
  const std::vector<View> out = {view};
  KernelContext ctx{call, {}, out, random.seed, random.step, &random.key};
  run_reference(*call.op, ctx);
  EXPECT_TRUE(same_bits(part, part_of(all, {{3, 0}, {4, 3}})));
}

// The blocks that kernels draw at once are the stream of tessera/random.h, wherever a shard starts in it.
TEST(Random, BlocksAreTheStreamOfTheBaseFunctions) {
  Graph g;
  const Call call = call_of(g.node(random_uniform(g, {{"n", 1000}}).node()));
  const RandomState random{kSeed, 2, "key"};
  const RandomKey key = random_key(random.seed, random.key, random.step);
  for (std::int64_t start : {0, 1, 2, 3, 4, 250}) {
    Array part({{{"n", 301}}, DType::F32});
    const std::vector<View> out = {make_view(part.data.data(), call.out[0], {{start}, {301}})};
    KernelContext ctx{call, {}, out, random.seed, random.step, &random.key};
    run_reference(*call.op, ctx);
    for (std::int64_t i = 0; i < 301; ++i) {
      ASSERT_EQ(part.get(i), random_uniform_at(key, static_cast<std::uint64_t>(start + i)))
          << start << " + " << i;
    }
  }
}

TEST(Random, SeedNameAndStepChangeTheStream) {
  Graph g;
  const Call call = call_of(g.node(random_uniform(g, {{"a", 64}}).node()));
  const Array base = run_op(call, {}, {1, 2, "x"})[0];
  EXPECT_TRUE(same_bits(base, run_op(call, {}, {1, 2, "x"})[0]));
  EXPECT_FALSE(same_bits(base, run_op(call, {}, {2, 2, "x"})[0]));
  EXPECT_FALSE(same_bits(base, run_op(call, {}, {1, 3, "x"})[0]));
  EXPECT_FALSE(same_bits(base, run_op(call, {}, {1, 2, "y"})[0]));
}

TEST(Random, DistributionsHaveTheirMoments) {
  Graph g;
  const Shape shape{{"n", 200000}};
  EvaluateOptions options;
  options.seed = 3;
  auto moments = [&](const Tensor& t) {
    const std::vector<double> v = evaluate({t}, options)[0].values();
    double sum = 0, squares = 0, low = v[0], high = v[0];
    for (double x : v) {
      sum += x;
      squares += x * x;
      low = std::min(low, x);
      high = std::max(high, x);
    }
    const double n = static_cast<double>(v.size()), mean = sum / n;
    return std::vector<double>{mean, std::sqrt(squares / n - mean * mean), low, high};
  };
  // Bounds: five standard errors of the mean at 200,000 draws are below 0.0056 of the deviation times two.
  const auto uniform = moments(random_uniform(g, shape, 2, 5));
  EXPECT_NEAR(uniform[0], 3.5, 0.02);
  EXPECT_NEAR(uniform[1], 3 / std::sqrt(12.0), 0.02);
  EXPECT_GE(uniform[2], 2);
  EXPECT_LT(uniform[3], 5);
  const auto normal = moments(random_normal(g, shape, -1, 2));
  EXPECT_NEAR(normal[0], -1, 0.03);
  EXPECT_NEAR(normal[1], 2, 0.03);
  const auto truncated = moments(random_truncated_normal(g, shape));
  EXPECT_NEAR(truncated[0], 0, 0.02);
  EXPECT_NEAR(truncated[1], 0.8796, 0.02);  // of the normal distribution cut at two deviations
  EXPECT_GE(truncated[2], -2);
  EXPECT_LE(truncated[3], 2);
}

TEST(Random, UniformNeverReachesItsEnd) {
  Graph g;
  EvaluateOptions options;
  options.seed = 1;
  // Steps of 2^-24 at 1e6 are finer than f32: rounding alone would give the end now and then.
  const Tensor t = random_uniform(g, {{"n", 100000}}, 999999, 1000000);
  for (double v : evaluate({t}, options)[0].values()) ASSERT_LT(v, 1000000);
}

// D4: the rate in bf16 is that of f32 draws.
TEST(Random, DropoutKeepsItsRateInBf16) {
  constexpr std::int64_t kCount = 1000000;
  Graph g;
  const Tensor x = g.input("x", {{"n", kCount}}, DType::BF16), y = dropout(x, 0.1);
  EvaluateOptions options;
  options.seed = 9;
  options.feeds["x"] = Array(x.type(), std::vector<double>(kCount, 1.0));
  double kept = 0;
  for (double v : evaluate({y}, options)[0].values()) {
    ASSERT_TRUE(v == 0 || v == 1.109375) << v;  // 1 / 0.9 in bf16
    kept += v != 0;
  }
  EXPECT_NEAR(kept / kCount, 0.9, 3 * std::sqrt(0.9 * 0.1 / kCount));
}

// D3: dy/dx is the forward mask over keep; dropped NaN does not leak.
TEST(Random, DropoutGradientUsesTheForwardMask) {
  Graph g;
  const Tensor x = g.input("x", {{"a", 50}, {"b", 4}}), y = dropout(x, 0.5, {"a"});
  const Tensor dx = gradients({y}, {x})[0];
  const Tensor ddx = gradients({reduce_sum(dx * x)}, {x})[0];
  EvaluateOptions options;
  options.feeds["x"] = Array(x.type(), std::vector<double>(200, 1.0));
  const std::vector<Array> v = evaluate({y, dx, ddx}, options);
  EXPECT_TRUE(same_bits(v[0], v[1]));
  EXPECT_TRUE(same_bits(v[0], v[2]));
  int dropped = 0;
  for (std::int64_t i = 0; i < 200; ++i) {
    EXPECT_EQ(v[0].get(i), v[0].get(i - i % 4)) << "the mask must not vary over b";
    dropped += v[0].get(i) == 0;
  }
  EXPECT_GT(dropped, 40);
  EXPECT_LT(dropped, 160);
  options.feeds["x"] = Array(x.type(), std::vector<double>(200, std::nan("")));
  const Array nan = evaluate({y}, options)[0];
  for (std::int64_t i = 0; i < 200; ++i) EXPECT_EQ(std::isnan(nan.get(i)), v[0].get(i) != 0);
}

TEST(Random, DropoutOfRateZeroIsNothing) {
  Graph g;
  const Tensor x = g.input("x", {{"a", 3}});
  EXPECT_EQ(dropout(x, 0), x);
  EXPECT_THROW(dropout(x, 1), UserError);
  EXPECT_THROW(dropout(x, 0.1, {"b"}), UserError);
  EXPECT_THROW(random_bernoulli(g, {{"a", 3}}, 1.5), UserError);
  EXPECT_THROW(random_normal(g, {{"a", 3}}, 0, 1, DType::I32), UserError);
}

}  // namespace
}  // namespace tessera::testing
