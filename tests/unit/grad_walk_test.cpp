// gradients(): which paths count, how contributions add up, names and places of the nodes it makes.
#include <gtest/gtest.h>

#include "support/evaluate.h"
#include "support/expect_error.h"
#include "tessera/error.h"
#include "tessera/grad.h"

namespace tessera {
namespace {

using testing::evaluate;
using testing::expect_error;
using Values = std::vector<double>;

const Shape kA{{"a", 3}};

class Gradients : public ::testing::Test {
 protected:
  Tensor input(const std::string& name, const Shape& shape, const Values& values, DType dtype = DType::F64) {
    options_.feeds[name] = Array({shape, dtype}, values);
    return g_.input(name, shape, dtype);
  }
  Values value(const Tensor& t) { return evaluate({t}, options_)[0].values(); }

  Graph g_;
  testing::EvaluateOptions options_;
};

TEST_F(Gradients, OfAProductWithItselfAddsBothPaths) {
  const Tensor x = input("x", kA, {1, 2, 3});
  EXPECT_EQ(value(gradients({mul(x, x)}, {x})[0]), (Values{2, 4, 6}));
}

TEST_F(Gradients, SeveralLossesAndRepeatedOnesAddUp) {
  const Tensor x = input("x", kA, {1, 2, 3});
  const Tensor y = scale(x, 2), z = square(x);
  EXPECT_EQ(value(gradients({y, z}, {x})[0]), (Values{4, 6, 8}));
  EXPECT_EQ(value(gradients({y, y, z}, {x})[0]), (Values{6, 8, 10}));
}

TEST_F(Gradients, SeedsWeighTheOutputs) {
  const Tensor x = input("x", kA, {1, 2, 3}), s = input("s", kA, {10, 0, -1});
  const Tensor y = square(x), z = scale(x, 3);
  EXPECT_EQ(value(gradients({y}, {x}, {s})[0]), (Values{20, 0, -6}));
  EXPECT_EQ(value(gradients({y, z}, {x}, {s, Tensor()})[0]), (Values{23, 3, -3}))
      << "an empty seed means ones";
}

TEST_F(Gradients, ReachIntermediateTensorsAndContinueBehindThem) {
  const Tensor x = input("x", kA, {1, 2, 3});
  const Tensor h = scale(x, 2), y = square(h);
  const Tensors d = gradients({y}, {h, x, y});
  EXPECT_EQ(value(d[0]), (Values{4, 8, 12}));
  EXPECT_EQ(value(d[1]), (Values{8, 16, 24}));
  EXPECT_EQ(value(d[2]), (Values{1, 1, 1})) << "a loss is its own input";
  const Tensors both = gradients({h, y}, {h});
  EXPECT_EQ(value(both[0]), (Values{5, 9, 13})) << "direct and through y";
}

TEST_F(Gradients, AreInvalidWithoutAPath) {
  const Tensor x = input("x", kA, {1, 2, 3}), other = input("other", kA, {1, 2, 3});
  const Tensor ids = input("ids", kA, {0, 1, 2}, DType::I32);
  const Tensor y = add(square(x), cast(ids, DType::F64));
  const Tensors d = gradients({y}, {x, other, ids});
  EXPECT_TRUE(d[0].valid());
  EXPECT_FALSE(d[1].valid());
  EXPECT_FALSE(d[2].valid()) << "integers have no gradient";
  EXPECT_FALSE(gradients({stop_gradient(square(x))}, {x})[0].valid());
  EXPECT_FALSE(gradients({floor(x)}, {x})[0].valid());
  const Tensor half = add(square(x), stop_gradient(square(x)));
  EXPECT_EQ(value(gradients({half}, {x})[0]), (Values{2, 4, 6}));
  const Tensor late = square(other);
  EXPECT_FALSE(gradients({y}, {late})[0].valid()) << "made after the loss";
}

TEST_F(Gradients, UnusedOutputsNeedNoGradient) {
  const Tensor x = input("x", {{"a", 5}}, {1, 2, 3, 4, 5});
  const Tensors parts = split(x, "a", {2, 3});
  EXPECT_EQ(value(gradients({square(parts[1])}, {x})[0]), (Values{0, 0, 6, 8, 10}));
}

TEST_F(Gradients, ComeInTheShapeOfTheTensorWhateverTheOrder) {
  const Tensor x = input("x", {{"a", 2}, {"b", 3}}, {1, 2, 3, 4, 5, 6});
  const Tensor w = input("w", {{"b", 3}, {"a", 2}, {"c", 2}}, Values(12, 1));
  const Tensor d = gradients({einsum({x, w}, {{"c", 2}, {"a", 2}})}, {x})[0];
  EXPECT_EQ(d.shape(), x.shape());
  EXPECT_EQ(value(d), Values(6, 2));
}

TEST_F(Gradients, OfGradientsWork) {
  const Tensor x = input("x", kA, {1, 2, 3});
  const Tensor y = mul(square(x), x);  // x^3
  const Tensor first = gradients({y}, {x})[0], second = gradients({first}, {x})[0],
               third = gradients({second}, {x})[0];
  EXPECT_EQ(value(first), (Values{3, 12, 27}));
  EXPECT_EQ(value(second), (Values{6, 12, 18}));
  EXPECT_EQ(value(third), (Values{6, 6, 6}));
}

TEST_F(Gradients, NodesAreNamedAndPlacedAfterTheirSource) {
  const Tensor x = input("x", kA, {1, 2, 3});
  Tensor y;
  std::source_location where;
  {
    const Graph::Scope scope(g_, "layer_0");
    where = std::source_location::current();
    y = square({x, where});
  }
  const Graph::Scope scope(g_, "train");
  const Tensor dx = gradients({y}, {x})[0];
  const Node& node = g_.node(dx.node());
  EXPECT_EQ(node.name.rfind("layer_0/square/grad/", 0), 0u) << node.name;
  EXPECT_EQ(node.where, Location(where));
  EXPECT_EQ(node.region, Region::Backward);
  EXPECT_EQ(g_.node(y.node()).region, Region::Forward);
}

// A fused op without a gradient of its own follows its expansion; one tensor may be several of its inputs.
const Op kFused{
    .name = "fused_product",
    .doc = "a * a * b through its expansion",
    .infer = [](const Call& call) { return std::vector<Type>{call.in[0]}; },
    .kernel =
        [](KernelContext& c) {
          for (std::int64_t i = 0; i < c.out[0].elements(); ++i) {
            store(c.out[0], i, load(c.in[0], i) * load(c.in[0], i) * load(c.in[1], i));
          }
        },
    .expand = [](ExpandContext& c) { return Tensors{mul(square(c.inputs[0]), c.inputs[1])}; },
};

TEST_F(Gradients, FollowTheExpansionOfFusedOps) {
  const Tensor x = input("x", kA, {1, 2, 3}), w = input("w", kA, {5, 6, 7});
  const Tensor y = g_.add(kFused, {x, w}, {}, {})[0];
  const Tensors d = gradients({y}, {x, w});
  EXPECT_EQ(value(d[0]), (Values{10, 24, 42}));
  EXPECT_EQ(value(d[1]), (Values{1, 4, 9}));
  const Tensor cube = g_.add(kFused, {x, x}, {}, {})[0];
  EXPECT_EQ(value(gradients({cube}, {x})[0]), (Values{3, 12, 27}));
}

TEST_F(Gradients, SumInAnOrderThatTheGraphFixes) {
  // Three terms whose sum depends on the order: the last user of x comes first.
  const Tensor x = input("x", Shape(), {1});
  const Tensor a = scale(x, 1e17), b = scale(x, -1e17), c = scale(x, 1);
  EXPECT_EQ(value(gradients({add(add(a, b), c)}, {x})[0]), (Values{(1 - 1e17) + 1e17}));
}

TEST_F(Gradients, RejectWhatHasNone) {
  const Tensor x = input("x", kA, {1, 2, 3}), ids = input("ids", kA, {0, 1, 2}, DType::I32);
  Graph other;
  const Tensor foreign = other.input("foreign", kA, DType::F64);
  expect_error<UserError>([&] { gradients({}, {x}); },
                          "gradients: there is no tensor to differentiate; pass at least one");
  EXPECT_THROW(gradients({ids}, {x}), UserError);
  expect_error<UserError>([&] { gradients({x}, {foreign}); },
                          "gradients: 'x' and 'foreign' belong to two graphs; build both in one");
  expect_error<UserError>([&] { gradients({x}, {Tensor()}); },
                          "gradients: an empty Tensor was passed; it comes from no builder");
  expect_error<UserError>(
      [&] {
        gradients({x}, {x}, {x, x});
      },
      "gradients: 2 seeds for 1 tensors; pass one for each or none");
  expect_error<UserError>(
      [&] { gradients({x}, {x}, {ids}); },
      "gradients: the seed of 'x' is i32[a:3] but the tensor is f64[a:3]; they must be equal");
}

// ------------------------------------------------------------------------------------------ custom gradients

using CustomGradient = Gradients;

TEST_F(CustomGradient, ReplacesTheGradientOfTheBody) {
  const Tensor x = input("x", kA, {1.2, 2.7, -0.5});
  const Tensor y = custom_gradient(
      {x}, [&] { return Tensors{floor(x)}; }, [](const Tensors& dy) { return Tensors{scale(dy[0], 10)}; })[0];
  EXPECT_EQ(value(y), (Values{1, 2, -1}));
  EXPECT_EQ(value(gradients({square(y)}, {x})[0]), (Values{20, 40, -20}));
}

TEST_F(CustomGradient, SeesAllOutputsAtOnceWithZerosForUnusedOnes) {
  const Tensor x = input("x", kA, {1, 2, 3}), w = input("w", kA, {4, 5, 6});
  int calls = 0;
  const Tensors y = custom_gradient(
      {x, w},
      [&] {
        return Tensors{square(x), mul(x, w), mul(x, w)};
      },
      [&](const Tensors& dy) {
        ++calls;
        EXPECT_EQ(dy.size(), 3u);
        return Tensors{add(dy[0], add(dy[1], dy[2])), Tensor()};
      });
  const Tensors d = gradients({scale(y[0], 2), scale(y[2], 5)}, {x, w});
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(value(d[0]), (Values{7, 7, 7}));
  EXPECT_FALSE(d[1].valid());
}

TEST_F(CustomGradient, InnerPathsDoNotLeakButOtherPathsCount) {
  const Tensor x = input("x", kA, {1, 2, 3});
  const Tensor h = square(x);
  const Tensor y = custom_gradient(
      {x}, [&] { return Tensors{scale(h, 100)}; }, [](const Tensors& dy) { return Tensors{dy[0]}; })[0];
  EXPECT_EQ(value(gradients({add(y, h)}, {x})[0]), (Values{3, 5, 7}));
}

TEST_F(CustomGradient, WrongFunctionsAreTold) {
  const Tensor x = input("x", kA, {1, 2, 3});
  const Tensor y = custom_gradient(
      {x}, [&] { return Tensors{square(x)}; }, [](const Tensors&) { return Tensors{}; })[0];
  const Tensor z = custom_gradient(
      {x}, [&] { return Tensors{square(x)}; },
      [](const Tensors& dy) { return Tensors{reduce_sum(dy[0])}; })[0];
  EXPECT_THROW(gradients({y}, {x}), UserError);
  EXPECT_THROW(gradients({z}, {x}), UserError);
}

// ------------------------------------------------------------------------------------------ recomputation

using Recompute = Gradients;

int count_clones(const Graph& g) {
  int count = 0;
  for (const Node& node : g.nodes()) count += node.recompute != 0;
  return count;
}

TEST_F(Recompute, GivesTheSameGradientFromClones) {
  const Tensor x = input("x", kA, {0.5, -1, 2}), w = input("w", kA, {1, 2, 3});
  const auto block = [&] { return Tensors{mul(tanh(mul(x, w)), sigmoid(x))}; };
  const Tensor plain = block()[0], again = recompute(g_, block)[0];
  const Tensors a = gradients({plain}, {x, w});
  EXPECT_EQ(count_clones(g_), 0);
  const Tensors b = gradients({again}, {x, w});
  EXPECT_EQ(count_clones(g_), 4);
  EXPECT_EQ(value(a[0]), value(b[0]));
  EXPECT_EQ(value(a[1]), value(b[1]));
}

// No value made inside the block is read behind it but the block's outputs: else it would have to be kept.
TEST_F(Recompute, BackwardReadsNothingOfTheBlock) {
  const Tensor x = input("x", kA, {0.5, -1, 2});
  const int first = static_cast<int>(g_.nodes().size());
  const Tensor y = recompute(g_, [&] { return Tensors{tanh(exp(tanh(x)))}; })[0];
  const int last = static_cast<int>(g_.nodes().size());
  const Tensor loss = square(y);
  const int behind = static_cast<int>(g_.nodes().size());
  gradients({loss}, {x});
  for (int id = behind; id < static_cast<int>(g_.nodes().size()); ++id) {
    for (const Tensor& t : g_.node(id).inputs) {
      const bool inner = t.node() >= first && t.node() < last && t != y;
      EXPECT_FALSE(inner) << g_.node(id).name << " reads " << t.name();
    }
  }
}

TEST_F(Recompute, ClonesComeAfterTheArrivingGradientAndKeepKeysPlacesAndGroups) {
  const Tensor x = input("x", kA, {0.5, -1, 2});
  const auto block = [&](const Tensor& in) {
    return recompute(g_, [&] { return Tensors{dropout(tanh(in), 0.5)}; })[0];
  };
  const Tensor one = block(x), two = block(one);
  const Tensor dx = gradients({square(two)}, {x})[0];
  std::map<int, std::vector<int>> groups;
  for (int id = 0; id < static_cast<int>(g_.nodes().size()); ++id) {
    const Node& node = g_.node(id);
    if (node.recompute == 0) continue;
    groups[node.recompute].push_back(id);
    EXPECT_EQ(node.region, Region::Backward);
    const std::string source = node.name.substr(0, node.name.rfind("/recompute"));
    EXPECT_EQ(node.key, g_.node(g_.find(source).node()).key);
    EXPECT_EQ(node.where, g_.node(g_.find(source).node()).where);
  }
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_LT(groups[1].back(), groups[2].front());
  bool backward_between = false;  // the gradient that arrives at block one is made before its clones
  for (int id = groups[1].back(); id < groups[2].front(); ++id)
    backward_between |= g_.node(id).recompute == 0;
  EXPECT_TRUE(backward_between);
  EXPECT_TRUE(dx.valid());
}

TEST_F(Recompute, DropoutRepeatsItsMask) {
  const Dim wide{"a", 200};
  const Tensor x = input("x", {wide}, Values(200, 1));
  const Tensor y = recompute(g_, [&] { return Tensors{dropout(x, 0.25)}; })[0];
  EXPECT_EQ(value(gradients({y}, {x})[0]), value(y));
}

TEST_F(Recompute, NestsAndCoversWhatTheBlockReads) {
  const Tensor x = input("x", kA, {0.5, -1, 2});
  const auto inner = [&](const Tensor& t) { return tanh(mul(t, sigmoid(t))); };
  const Tensor plain = exp(inner(square(x)));
  const Tensor nested = recompute(g_, [&] {
    const Tensor t = square(x);
    const Tensor u = recompute(g_, [&] { return Tensors{inner(t)}; })[0];
    return Tensors{exp(u)};
  })[0];
  EXPECT_EQ(value(gradients({plain}, {x})[0]), value(gradients({nested}, {x})[0]));
}

TEST_F(Recompute, SecondDerivativesAndCustomGradientsSurvive) {
  const Tensor x = input("x", kA, {1, 2, 3});
  const auto body = [&] {
    return custom_gradient(
        {x}, [&] { return Tensors{square(x)}; },
        [&](const Tensors& dy) { return Tensors{mul(dy[0], mul(x, x))}; });  // as if x^3 / 3
  };
  const Tensor y = recompute(g_, [&] { return Tensors{scale(body()[0], 2)}; })[0];
  const Tensor first = gradients({y}, {x})[0];
  EXPECT_EQ(value(first), (Values{2, 8, 18}));
  EXPECT_EQ(value(gradients({first}, {x})[0]), (Values{4, 8, 12}));
}

TEST_F(Recompute, BlocksWithoutGradientAreNotCloned) {
  const Tensor x = input("x", kA, {1, 2, 3});
  const Tensor y = recompute(g_, [&] { return Tensors{square(x)}; })[0];
  gradients({square(x)}, {x});
  EXPECT_EQ(count_clones(g_), 0);
  EXPECT_TRUE(y.valid());
}

}  // namespace
}  // namespace tessera
