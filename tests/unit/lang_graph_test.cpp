// Names, scopes, provenance, variables and the messages about wrong graphs.
#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "tessera/error.h"
#include "tessera/graph.h"
#include "tessera/ops.h"

namespace tessera {
namespace {

using testing::expect_error;

const Shape kShape{{"batch", 3}, {"hidden", 5}};

std::source_location here(std::source_location where = std::source_location::current()) {
  return where;
}

// What a layer of a library looks like: a scope with its caller's line, builders in another file.
Tensor library_layer(const Tensor& x, std::source_location caller) {
  const Graph::Scope scope(x.graph(), "dense", caller);
  return x.graph().add(*find_op("relu"), {x}, {}, Location("library.cpp", 7))[0];
}

TEST(Graph, MakesNamesUniqueWithinTheirScopes) {
  Graph g;
  const Tensor x = g.input("x", kShape);
  const Tensor a = relu(x), b = relu(x);
  {
    const Graph::Scope outer(g, "layer_0");
    EXPECT_EQ(relu(x).name(), "layer_0/relu");
    const Graph::Scope inner(g, "ffn");
    EXPECT_EQ(relu(x).name(), "layer_0/ffn/relu");
    EXPECT_EQ(relu(x).name(), "layer_0/ffn/relu_1");
    EXPECT_EQ(g.parameter("w", kShape, Initializer::zeros()).name(), "layer_0/ffn/w");
  }
  EXPECT_EQ(a.name(), "relu");
  EXPECT_EQ(b.name(), "relu_1");
  EXPECT_EQ(relu(x).name(), "relu_2");
  EXPECT_EQ(g.scope_path(), "");
  EXPECT_EQ(g.find("layer_0/ffn/relu_1").name(), "layer_0/ffn/relu_1");
}

TEST(Graph, UniqueNamesAvoidNamesThatTheUserGave) {
  Graph g;
  const Tensor x = g.input("relu", kShape);
  g.input("relu_1", kShape);
  EXPECT_EQ(relu(x).name(), "relu_2");
}

TEST(Graph, FindsFurtherOutputsAndSuggestsNames) {
  Graph g;
  const Tensor x = g.input("tokens", {{"length", 6}});
  const Tensors parts = split(x, "length", {2, 4});
  EXPECT_EQ(parts[1].name(), "split:1");
  EXPECT_EQ(g.find("split:1"), parts[1]);
  expect_error<UserError>([&] { g.find("split:2"); },
                          "the graph has no tensor 'split:2': 'split' has 2 outputs");
  expect_error<UserError>([&] { g.find("split:x"); },
                          "the graph has no tensor 'split:x': 'split' has 2 outputs");
  expect_error<UserError>([&] { g.find("toknes"); },
                          "the graph has no tensor 'toknes'; did you mean 'tokens'?");
  expect_error<UserError>([&] { g.find("zebra"); }, "the graph has no tensor 'zebra'");
}

TEST(Graph, NodesOfLibraryLayersCarryTheUsersLine) {
  Graph g;
  const Tensor x = g.input("x", kShape);
  const auto call = here();
  const Tensor y = library_layer(x, call);
  EXPECT_EQ(g.node(y.node()).where, Location(call));

  const Graph::Scope mine(g, "model");
  const auto inner_call = here();
  const Tensor z = library_layer(x, inner_call);
  EXPECT_EQ(g.node(z.node()).where, Location(inner_call))
      << "the call inside the scope is nearer than the scope";
  const auto before = here();
  const Tensor own = relu(x);
  EXPECT_EQ(g.node(own.node()).where.line, static_cast<int>(before.line()) + 1)
      << "own builders in own scopes";
  EXPECT_EQ(g.node(own.node()).where.file, "lang_graph_test.cpp");
}

TEST(Graph, OriginScopesSetPathAndPlace) {
  Graph g;
  const Tensor x = g.input("x", kShape);
  const Graph::Scope scope(g, "train");
  {
    const Graph::OriginScope origin(g, "layer_0/relu/grad", Location("model.cc", 88));
    const Tensor y = library_layer(x, here());
    EXPECT_EQ(y.name(), "layer_0/relu/grad/dense/relu");
    EXPECT_EQ(to_string(g.node(y.node()).where), "model.cc:88");
  }
  EXPECT_EQ(relu(x).name(), "train/relu");
}

TEST(Graph, MessagesNameOpTensorAndPlace) {
  Graph g, other;
  const Tensor x = g.input("x", kShape);
  const Op& op = *find_op("relu");
  expect_error<UserError>(
      [&] { g.add(op, {Tensor()}, {}, Location("model.cc", 5)); },
      "relu: input 0 is an empty Tensor (relu, model.cc:5); it comes from no builder or is a gradient "
      "without a path");
  expect_error<UserError>(
      [&] { other.add(op, {x}, {}, Location("model.cc", 6)); },
      "relu: input 0 ('x') belongs to another graph (relu, model.cc:6); build both in one");
  const auto at = here();
  expect_error<UserError>([&] { g.input("x", kShape, DType::F32, at); },
                          "input: the name 'x' is taken already (" + to_string(Location(at)) +
                              "); choose another or open a scope");
  expect_error<UserError>(
      [&] { g.input("a b", kShape); },
      "'a b' is not a name for a node; use letters, digits and any of _ . - + with '/' between parts");
  EXPECT_EQ(g.nodes().size(), 1u) << "failed calls leave no node behind";
}

TEST(Graph, ChecksDeepInsideAnOpStillTellThePlace) {
  Graph g;
  const Tensor x = g.input("x", kShape);
  const Graph::Scope scope(g, "layer_3");
  try {
    reduce_sum(x, {"hiden"});
    FAIL();
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("hiden"), std::string::npos) << text;
    EXPECT_NE(text.find("layer_3/reduce_sum, lang_graph_test.cpp:"), std::string::npos) << text;
  }
}

TEST(Variables, AreFoundByFullNameWithTheirInitialisers) {
  Graph g;
  const Graph::Scope scope(g, "mlp");
  const Tensor w = g.parameter("w", kShape, Initializer::truncated_normal(0.05));
  g.variable(VariableKind::Slot, "w_m", {kShape, DType::F32}, Initializer::zeros(), "mlp/w");
  ASSERT_EQ(g.variables().size(), 2u);
  const Variable* found = g.find_variable("mlp/w");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->node, w.node());
  EXPECT_EQ(found->init.kind, Initializer::Kind::TruncatedNormal);
  EXPECT_EQ(found->init.a, 0.05);
  EXPECT_EQ(g.find_variable("mlp/w_m")->slot_of, "mlp/w");
  EXPECT_FALSE(g.find_variable("w"));
  EXPECT_THROW(g.parameter("w", kShape, Initializer::zeros()), UserError);
}

TEST(Variables, AssignmentsAreChecked) {
  Graph g;
  const Tensor w = g.parameter("w", kShape, Initializer::zeros());
  const Tensor x = g.input("x", kShape), half = g.input("half", kShape, DType::BF16);
  const auto at = here();
  expect_error<UserError>(
      [&] {
        g.assign({x, at}, w);
      },
      "assign: 'x' is not a variable of this graph (" + to_string(Location(at)) +
          "); pass the tensor that Graph::variable returned");
  EXPECT_THROW(g.assign(w, half), UserError);
  const Tensor done = g.assign(w, x);
  EXPECT_EQ(done.name(), "w/assign");
  EXPECT_THROW(g.assign(w, x), UserError) << "two assignments";
  EXPECT_THROW(relu(done), UserError) << "an assignment has no value";
  EXPECT_THROW(neg(Tensor()), UserError);
}

TEST(Names, NearestIsNearOrNothing) {
  const std::vector<std::string> names{"batch", "d_model", "d_ff", "model"};
  EXPECT_EQ(nearest_name("modle", names), "model");
  EXPECT_EQ(nearest_name("d_fff", names), "d_ff");
  EXPECT_EQ(nearest_name("bach", names), "batch");
  EXPECT_EQ(nearest_name("zzzz", names), "");
  EXPECT_EQ(nearest_name("", names), "");
}

}  // namespace
}  // namespace tessera
