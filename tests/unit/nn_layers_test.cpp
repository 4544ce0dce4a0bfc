// Layers against the same thing written out with loops.
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/error.h"
#include "tessera/grad.h"
#include "tessera/nn.h"
#include "unit/nn_eval.h"

namespace tessera {
namespace {

using nn_testing::Evaluator;
using nn_testing::values_of;

Array filled(const Shape& shape, double phase, DType dtype = DType::F64) {
  Array array({shape, dtype});
  for (std::int64_t i = 0; i < array.elements(); ++i)
    array.set(i, std::sin(phase + 1.3 * static_cast<double>(i)));
  return array;
}

TEST(Layers, DenseContractsSeveralDimensionsAndAddsABias) {
  Graph g;
  const Dim b{"batch", 2}, h{"heads", 3}, d{"d_kv", 2}, o{"out", 4};
  const Tensor x = g.input("x", {h, b, d}, DType::F64);
  const Tensor y = nn::dense(x, "layer", {"heads", "d_kv"}, {o}, {.bias = true, .weight = {}});
  EXPECT_EQ(to_string(y.type()), "f64[batch:2;out:4]");
  Evaluator eval;
  eval.variables["layer/weight"] = filled({h, d, o}, 0.2);
  eval.variables["layer/bias"] = filled({o}, 2);
  const Array in = filled({h, b, d}, 0.5), out = eval.run({y}, {{"x", in}})[0];
  for (int i = 0; i < 2; ++i) {
    for (int k = 0; k < 4; ++k) {
      double sum = eval.variables["layer/bias"].get(k);
      for (int p = 0; p < 3; ++p) {
        for (int q = 0; q < 2; ++q) {
          sum += in.get((p * 2 + i) * 2 + q) * eval.variables["layer/weight"].get((p * 2 + q) * 4 + k);
        }
      }
      EXPECT_NEAR(out.get(i * 4 + k), sum, 1e-14);
    }
  }
}

TEST(Layers, FeedForwardMultipliesGatedFactors) {
  Graph g;
  const Tensor x = g.input("x", {{"batch", 1}, {"d_model", 2}}, DType::F64);
  nn::FeedForwardOptions options;
  options.d_ff.size = 3;
  options.activations = {"sigmoid", "linear"};
  const Tensor y = nn::feed_forward(x, "ffn", options);
  Evaluator eval;
  const Array in = filled({{"batch", 1}, {"d_model", 2}}, 1), out = eval.run({y}, {{"x", in}})[0];
  for (int o = 0; o < 2; ++o) {
    double sum = 0;
    for (int k = 0; k < 3; ++k) {
      double a = 0, b = 0;
      for (int i = 0; i < 2; ++i) {
        a += in.get(i) * eval.variables.at("ffn/wi_0").get(i * 3 + k);
        b += in.get(i) * eval.variables.at("ffn/wi_1").get(i * 3 + k);
      }
      sum += b / (1 + std::exp(-a)) * eval.variables.at("ffn/wo").get(k * 2 + o);
    }
    EXPECT_NEAR(out.get(o), sum, 1e-14);
  }
}

TEST(Layers, AnUnknownActivationNamesTheNearest) {
  Graph g;
  try {
    nn::activate(g.input("x", {}), "rleu");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("there is no activation 'rleu'; did you mean 'relu'?"),
              std::string::npos)
        << error.what();
  }
}

nn::AttentionOptions two_heads() {
  nn::AttentionOptions options;
  options.heads.size = 2;
  options.d_kv.size = 3;
  return options;
}

// Attention of one batch row written out; visible(i, j) says what query i sees.
std::vector<double> plain_attention(const Evaluator& eval, const Array& x, int length, int d_model,
                                    const std::function<bool(int, int)>& visible, double scale) {
  const auto weight = [&](const char* name) {
    return values_of(eval.variables.at(std::string("att/") + name));
  };
  const std::vector<double> q = weight("q"), k = weight("k"), v = weight("v"), o = weight("o");
  const auto project = [&](const std::vector<double>& w, int i, int h, int c) {
    double sum = 0;
    for (int m = 0; m < d_model; ++m)
      sum += x.get(i * d_model + m) * w[static_cast<std::size_t>((m * 2 + h) * 3 + c)];
    return sum;
  };
  std::vector<double> out(static_cast<std::size_t>(length * d_model), 0.0);
  for (int h = 0; h < 2; ++h) {
    for (int i = 0; i < length; ++i) {
      std::vector<double> p;
      double total = 0;
      for (int j = 0; j < length; ++j) {
        double logit = 0;
        for (int c = 0; c < 3; ++c) logit += project(q, i, h, c) * project(k, j, h, c);
        p.push_back(visible(i, j) ? std::exp(scale * logit) : 0);
        total += p.back();
      }
      for (int c = 0; c < 3; ++c) {
        double mixed = 0;
        for (int j = 0; j < length; ++j)
          mixed += p[static_cast<std::size_t>(j)] / total * project(v, j, h, c);
        for (int m = 0; m < d_model; ++m) {
          out[static_cast<std::size_t>(i * d_model + m)] +=
              mixed * o[static_cast<std::size_t>((h * 3 + c) * d_model + m)];
        }
      }
    }
  }
  return out;
}

TEST(Attention, CausalSelfAttentionEqualsLoops) {
  for (const bool fold : {false, true}) {
    Graph g;
    const Shape shape{{"batch", 1}, {"length", 4}, {"d_model", 5}};
    const Tensor x = g.input("x", shape, DType::F64);
    AttentionMask mask;
    mask.causal = true;
    mask.query_positions = range(g, {"length", 4});
    mask.memory_positions = range(g, {"memory_length", 4});
    nn::AttentionOptions options = two_heads();
    options.fold_scale = fold;
    const Tensor y = nn::self_attention(x, "att", mask, options);
    Evaluator eval;
    const Array in = filled(shape, 0.3), out = eval.run({y}, {{"x", in}})[0];
    const std::vector<double> expected = plain_attention(
        eval, in, 4, 5, [](int i, int j) { return j <= i; }, fold ? 1 : 1 / std::sqrt(3.0));
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(out.get(static_cast<std::int64_t>(i)), expected[i], 1e-13);
  }
}

TEST(Attention, FoldedScaleMakesTheSameFirstValues) {
  // The two forms differ only in where 1/sqrt(d_kv) stands: weights drawn with it give the same first output.
  std::vector<std::vector<double>> outputs;
  for (const bool fold : {false, true}) {
    Graph g;
    const Shape shape{{"length", 3}, {"d_model", 4}};
    nn::AttentionOptions options = two_heads();
    options.fold_scale = fold;
    Evaluator eval;
    const Tensor y = nn::self_attention(g.input("x", shape, DType::F64), "att", {}, options);
    outputs.push_back(values_of(eval.run({y}, {{"x", filled(shape, 1)}})[0]));
  }
  for (std::size_t i = 0; i < outputs[0].size(); ++i) EXPECT_NEAR(outputs[0][i], outputs[1][i], 1e-6);
}

TEST(Attention, AQueryThatSeesNothingGetsZerosAndFiniteGradients) {
  Graph g;
  const Shape shape{{"batch", 2}, {"length", 3}, {"d_model", 4}};
  const Tensor x = g.input("x", shape, DType::F64);
  AttentionMask mask;
  mask.memory_ids = g.input("ids", {{"batch", 2}, {"memory_length", 3}}, DType::I32);
  const Tensor y = nn::self_attention(x, "att", mask, two_heads());
  const Tensors grads = gradients({reduce_sum(square(y))}, {x, g.find("att/q"), g.find("att/v")});
  Evaluator eval;
  const auto feeds = std::map<std::string, Array>{
      {"x", filled(shape, 0)},
      {"ids", Array({{{"batch", 2}, {"memory_length", 3}}, DType::I32}, {5, 1, 0, 0, 0, 0})}};
  const Array out = eval.run({y}, feeds)[0];
  for (int i = 0; i < 12; ++i) EXPECT_EQ(out.get(12 + i), 0);
  EXPECT_NE(out.get(0), 0);
  for (const Array& grad : eval.run(grads, feeds)) {
    for (const double v : values_of(grad)) EXPECT_TRUE(std::isfinite(v));
  }
}

TEST(Attention, Bf16KeepsStatisticsAndParametersInF32) {
  Graph g;
  const Shape shape{{"length", 3}, {"d_model", 4}};
  nn::self_attention(g.input("x", shape, DType::BF16), "att", {}, two_heads());
  EXPECT_EQ(g.find("att/attention").dtype(), DType::BF16);
  EXPECT_EQ(g.find("att/attention:1").dtype(), DType::F32);
  EXPECT_EQ(g.find("att/q").dtype(), DType::F32);
}

// The mask of the weights varies over all of queries x memory but what is shared.
TEST(Attention, DropoutIsSharedAlongTheNamedDimensions) {
  Graph g;
  const Shape shape{{"batch", 2}, {"length", 3}, {"d_model", 4}};
  nn::AttentionOptions options = two_heads();
  options.dropout = 0.5;
  options.dropout_shared = {"length"};
  nn::self_attention(g.input("x", shape, DType::F32), "att", {}, options);
  const Node& node = g.node(g.find("att/attention").node());
  EXPECT_EQ(node.attrs.number("rate"), 0.5);
  EXPECT_EQ(node.attrs.texts("noise"), (Strings{"batch", "heads", "memory_length"}));
}

// No tensor of a layer, forward or backward, has both lengths.
TEST(Attention, NoTensorOfQueriesByMemoryExists) {
  Graph g;
  const Shape shape{{"batch", 2}, {"length", 3}, {"d_model", 4}};
  const Tensor x = g.input("x", shape, DType::F32);
  AttentionMask mask;
  mask.causal = true;
  mask.query_positions = range(g, {"length", 3});
  mask.memory_positions = range(g, {"memory_length", 3});
  const nn::RelativeOptions relative{8, 5, false};
  mask.distance_bias =
      nn::relative_bias(nn::relative_table(g, "bias", {"heads", 2}, relative, DType::F32), relative);
  nn::AttentionOptions options = two_heads();
  options.dropout = 0.1;
  const Tensor y = nn::self_attention(x, "att", mask, options);
  gradients({y}, {x, g.find("att/q"), g.find("att/k"), g.find("att/v"), g.find("bias")});
  for (const Node& node : g.nodes()) {
    for (const Type& type : node.outputs)
      EXPECT_FALSE(type.shape.has("length") && type.shape.has("memory_length")) << node.name;
  }
}

TEST(Positions, BucketsAreThoseOfT5) {
  // From T5's formula with its defaults; two-sided: future in the upper half.
  const nn::RelativeOptions causal{32, 128, false}, both{32, 128, true};
  const std::pair<int, int> one_sided[] = {{3, 0},    {0, 0},    {-1, 1},    {-15, 15},
                                           {-16, 16}, {-18, 16}, {-19, 17},  {-21, 18},
                                           {-35, 22}, {-64, 26}, {-113, 31}, {-1000, 31}};
  for (const auto& [distance, bucket] : one_sided)
    EXPECT_EQ(nn::relative_bucket(distance, causal), bucket) << distance;
  const std::pair<int, int> two_sided[] = {{0, 0},   {-1, 1},   {-7, 7},   {-8, 8},   {-11, 8},
                                           {-12, 9}, {-16, 10}, {-64, 14}, {-91, 15}, {-500, 15},
                                           {1, 17},  {8, 24},   {16, 26},  {200, 31}};
  for (const auto& [distance, bucket] : two_sided)
    EXPECT_EQ(nn::relative_bucket(distance, both), bucket) << distance;
}

TEST(Positions, RelativeBiasLooksUpTheBucketOfEachDistance) {
  Graph g;
  const nn::RelativeOptions options{8, 5, true};
  const Tensor table = nn::relative_table(g, "bias", {"heads", 2}, options, DType::F64);
  const Tensor bias = nn::relative_bias(table, options);
  Evaluator eval;
  const Array out = eval.run({bias})[0];
  ASSERT_EQ(bias.shape(), (Shape{{"distance", 11}, {"heads", 2}}));
  for (int d = -5; d <= 5; ++d) {
    for (int h = 0; h < 2; ++h) {
      EXPECT_EQ(out.get((d + 5) * 2 + h),
                eval.variables.at("bias").get(h * 8 + nn::relative_bucket(d, options)))
          << d;
    }
  }
}

TEST(Positions, SinusoidsAreSinesThenCosines) {
  Graph g;
  const Tensor table = nn::sinusoidal_positions(range(g, {"length", 5}), {"d_model", 6}, DType::F64);
  const Array out = Evaluator().run({table})[0];
  for (int p = 0; p < 5; ++p) {
    for (int i = 0; i < 3; ++i) {
      const double angle = p / std::pow(1e4, i / 2.0);
      EXPECT_NEAR(out.get(p * 6 + i), std::sin(angle), 1e-12);
      EXPECT_NEAR(out.get(p * 6 + 3 + i), std::cos(angle), 1e-12);
    }
  }
  EXPECT_THROW(nn::sinusoidal_positions(range(g, {"length", 5}), {"d_model", 5}, DType::F64), UserError);
}

TEST(Layers, SharedDropoutMaskIsEqualAlongTheSharedDimension) {
  Graph g;
  const Tensor x = g.input("x", {{"batch", 3}, {"length", 4}, {"d_model", 5}});
  Evaluator eval;
  Array ones({x.shape(), DType::F32});
  for (int i = 0; i < 60; ++i) ones.set(i, 1);
  const Array out = eval.run({nn::shared_dropout(x, 0.5, {"length"})}, {{"x", ones}})[0];
  int zeros = 0;
  for (int b = 0; b < 3; ++b) {
    for (int i = 0; i < 5; ++i) {
      for (int l = 1; l < 4; ++l) EXPECT_EQ(out.get((b * 4 + l) * 5 + i), out.get(b * 4 * 5 + i));
      zeros += out.get(b * 20 + i) == 0;
    }
  }
  EXPECT_GT(zeros, 0);
  EXPECT_LT(zeros, 15);
  EXPECT_EQ(nn::shared_dropout(x, 0), x);
  EXPECT_THROW(nn::shared_dropout(x, 1), UserError);
}

TEST(Layers, MessagesNameTheCallersLineNotTheLibrarys) {
  Graph g;
  const Tensor x = g.input("x", {{"batch", 2}, {"d_model", 4}});
  const int line = __LINE__ + 1;
  nn::dense(x, "layer", {"d_model"}, {{"out", 3}});
  for (const Node& node : g.nodes()) {
    if (node.name.rfind("layer/", 0) != 0) continue;
    EXPECT_EQ(to_string(node.where), "nn_layers_test.cpp:" + std::to_string(line)) << node.name;
  }
}

TEST(Layers, ALayerCalledTwiceUnderOneNameIsAnError) {
  Graph g;
  const Tensor x = g.input("x", {{"d_model", 4}});
  nn::rms_norm(x, "norm", "d_model");
  EXPECT_THROW(nn::rms_norm(x, "norm", "d_model"), UserError);
}

TEST(Layers, GlobsMatchWholeNames) {
  EXPECT_TRUE(nn::glob_match("*", ""));
  EXPECT_TRUE(nn::glob_match("decoder/layer_*", "decoder/layer_001"));
  EXPECT_TRUE(nn::glob_match("*norm*scale", "a/final_norm/scale"));
  EXPECT_TRUE(nn::glob_match("layer_00?", "layer_007"));
  EXPECT_FALSE(nn::glob_match("layer", "layer_1"));
  EXPECT_FALSE(nn::glob_match("*x", "xy"));
  EXPECT_FALSE(nn::glob_match("?", ""));
}

}  // namespace
}  // namespace tessera
