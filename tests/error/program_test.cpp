// Programs that make no sense: every builder refuses them on the spot, in words that name the op, the tensors
// or dimensions that clash, the caller's line and a way out. A refused call leaves the graph as it was.
#include <functional>

#include "error/refused.h"
#include "tessera/grad.h"

namespace tessera::testing {
namespace {

const Dim kBatch{"batch", 4}, kIn{"in", 6}, kOut{"out", 3};

struct Inputs {
  explicit Inputs(Graph& g)
      : x(g.input("x", {kBatch, kIn})),
        ids(g.input("ids", {kBatch}, DType::I32)),
        flags(g.input("flags", {kBatch}, DType::Bool)),
        w(g.parameter("w", {kIn, kOut}, Initializer::normal(1))) {}
  Tensor x, ids, flags, w;
};

struct ProgramCase {
  std::function<void(Graph&, const Inputs&)> build;
  std::string message;
};

class Program : public ::testing::Test {
 protected:
  void refuses(const std::vector<ProgramCase>& cases) {
    for (const ProgramCase& c : cases) {
      Graph g;
      Inputs t(g);
      std::size_t nodes = g.nodes().size();
      expect_refused(c.message, ExitCode::Usage, [&] { c.build(g, t); });
      EXPECT_EQ(g.nodes().size(), nodes) << c.message;
    }
  }
};

TEST_F(Program, DimensionsThatDisagree) {
  refuses({
      {[](Graph&, const Inputs& t) {
         einsum({t.x, t.w}, {kBatch, {"out", 5}});
       },
       "einsum: dimension 'out' has size 5 in the output but 3 in the inputs (program_test.cpp:LINE); fix "
       "one of them"},
      {[](Graph&, const Inputs& t) {
         einsum({t.x, t.w, t.ids});
       },
       "einsum: 'x' is f32 but 'ids' is i32 (program_test.cpp:LINE); cast one of them"},
      {[](Graph&, const Inputs& t) { reduce_sum(t.x, {"inn"}); },
       "reduce_sum: input 0 has no dimension 'inn', only [batch:4;in:6] (at reduce_sum, "
       "program_test.cpp:LINE); name one of its dimensions"},
      {[](Graph&, const Inputs& t) {
         reduce_max(t.x, {"in", "in"});
       },
       "reduce_max: dimension 'in' is listed twice (reduce_max, program_test.cpp:LINE)"},
      {[](Graph&, const Inputs& t) { softmax(t.x, "vocab"); },
       "softmax: input 0 has no dimension 'vocab', only [batch:4;in:6] (at softmax, program_test.cpp:LINE); "
       "name one of its dimensions"},
      {[](Graph&, const Inputs& t) {
         broadcast(t.x, {kBatch, {"in", 7}});
       },
       "broadcast: dimension 'in' has size 6 in the input but 7 in the target (at broadcast, "
       "program_test.cpp:LINE); rename one or fix the size"},
      {[](Graph&, const Inputs& t) {
         broadcast(t.x, {kBatch, kOut});
       },
       "broadcast: the target [batch:4;out:3] lacks dimension 'in' of the input [batch:4;in:6] (at "
       "broadcast, program_test.cpp:LINE); add it"},
      {[](Graph&, const Inputs& t) { transpose(t.x, {"in"}); },
       "transpose: the order names 1 of the 2 dimensions of [batch:4;in:6] (at transpose, "
       "program_test.cpp:LINE); name all of them"},
      {[](Graph&, const Inputs& t) {
         rename(t.x, {{"in", "batch"}});
       },
       "rename: both 'batch' and 'in' of [batch:4;in:6] would be called 'batch' (at rename, "
       "program_test.cpp:LINE); rename the other one as well"},
      {[](Graph&, const Inputs& t) {
         rename(t.x, {{"in", "a"}, {"in", "b"}});
       },
       "rename: dimension 'in' is renamed twice (at rename, program_test.cpp:LINE); give one new name"},
      {[](Graph&, const Inputs& t) { cross_entropy(t.x, t.ids, "out"); },
       "cross_entropy: input 0 has no dimension 'out', only [batch:4;in:6] (at cross_entropy, "
       "program_test.cpp:LINE); name one of its dimensions"},
      {[](Graph& g, const Inputs&) {
         g.input("y", {kBatch, {"batch", 5}});
       },
       "shape: dimension 'batch' occurs twice (sizes 4 and 5); rename one of them"},
      {[](Graph& g, const Inputs&) {
         g.input("y", {{"2nd", 5}});
       },
       "shape: '2nd' is not a dimension name; use letters, digits and '_', not beginning with a digit"},
      {[](Graph& g, const Inputs&) {
         constant(g, {1, 2, 3}, {kBatch});
       },
       "constant: 3 values for the 4 elements of [batch:4] (at constant, program_test.cpp:LINE); give one "
       "for each"},
  });
}

TEST_F(Program, EinsumSizes) {
  Graph g;
  Tensor a = g.input("a", {kBatch, {"in", 5}}), w = g.parameter("w", {kIn, kOut}, Initializer::normal(1));
  expect_refused(
      "einsum: dimension 'in' has size 5 in 'a' but 6 in 'w' (program_test.cpp:LINE); rename one or fix the "
      "size",
      ExitCode::Usage, [&] {
        einsum({a, w}, {kBatch, kOut});
      });
  expect_refused(
      "add: dimension 'in' has size 5 in [batch:4;in:5] but 6 in [in:6;out:3]; rename one or fix the size "
      "(add, program_test.cpp:LINE)",
      ExitCode::Usage, [&] { add(a, w); });
}

TEST_F(Program, ShapesThatDoNotFit) {
  refuses({
      {[](Graph&, const Inputs& t) {
         reshape(t.x, {{"n", 25}});
       },
       "reshape: [batch:4;in:6] has 24 elements but [n:25] has 25 (at reshape, program_test.cpp:LINE); make "
       "the products equal"},
      {[](Graph&, const Inputs& t) {
         merge(t.x, {"in", "batch"}, "n");
       },
       "merge: 'batch' does not follow 'in' in [batch:4;in:6] (program_test.cpp:LINE); transpose first"},
      {[](Graph&, const Inputs& t) {
         split_dim(t.x, "in", {{"a", 2}, {"b", 2}});
       },
       "split_dim: dimension 'in' has size 6 but [a:2;b:2] has 4 elements (program_test.cpp:LINE); make them "
       "equal"},
      {[](Graph&, const Inputs& t) { slice(t.x, "in", 4, 3); },
       "slice: [4, 7) is not inside dimension 'in' of size 6 (at slice, program_test.cpp:LINE); choose a "
       "range inside it"},
      {[](Graph&, const Inputs& t) { pad(t.x, "in", -1, 0); },
       "pad: -1 elements before and 0 after dimension 'in' (at pad, program_test.cpp:LINE); both must be at "
       "least 0, use slice to shrink"},
      {[](Graph&, const Inputs& t) {
         concat({t.x, t.w}, "in");
       },
       "concat: [batch:4;in:6] and [in:6;out:3] differ in more than 'in' (at concat, program_test.cpp:LINE); "
       "make the other dimensions equal"},
      {[](Graph&, const Inputs& t) {
         concat({t.x, t.ids}, "batch");
       },
       "concat: mixed types f32 and i32 (at concat, program_test.cpp:LINE); cast one"},
      {[](Graph&, const Inputs& t) {
         split(t.x, "in", {4, 4});
       },
       "split: the sizes add up to 8 but dimension 'in' has size 6 (at split, program_test.cpp:LINE); make "
       "them equal"},
      {[](Graph&, const Inputs& t) {
         stack({t.x, t.w}, "s");
       },
       "stack: [batch:4;in:6] and [in:6;out:3] differ (at stack, program_test.cpp:LINE); make them equal"},
      {[](Graph&, const Inputs& t) {
         stack({t.x, t.x}, "in");
       },
       "stack: the inputs [batch:4;in:6] have a dimension 'in' already (at stack, program_test.cpp:LINE); "
       "choose another name"},
      {[](Graph&, const Inputs& t) { gather(t.w, t.x, "in"); },
       "gather: the index tensor must be i32 but is f32 (at gather, program_test.cpp:LINE); cast it"},
      {[](Graph&, const Inputs& t) { gather(t.x, t.ids, "batch"); },
       "gather: both table and indices [batch:4] have the dimension 'batch' (at gather, "
       "program_test.cpp:LINE); rename that of the indices"},
      {[](Graph&, const Inputs& t) { one_hot(t.ids, kBatch); },
       "one_hot: the indices [batch:4] have a dimension 'batch' already (at one_hot, program_test.cpp:LINE); "
       "rename it"},
      {[](Graph&, const Inputs& t) {
         top_k(t.x, "in", {"k", 7});
       },
       "top_k: cannot take 7 of the 6 elements of 'in' (at top_k, program_test.cpp:LINE); choose 1 to 6"},
      {[](Graph&, const Inputs& t) { dynamic_slice(t.x, t.ids, "in", 2); },
       "dynamic_slice: the start must be a scalar but is [batch:4] (at dynamic_slice, "
       "program_test.cpp:LINE); slice it first"},
  });
}

TEST_F(Program, TypesThatDoNotMix) {
  refuses({
      {[](Graph&, const Inputs& t) {
         einsum({t.x, t.ids});
       },
       "einsum: 'x' is f32 but 'ids' is i32 (program_test.cpp:LINE); cast one of them"},
      {[](Graph&, const Inputs& t) { add(t.x, t.ids); },
       "add: input 0 is f32 but input 1 is i32; cast one of them (add, program_test.cpp:LINE)"},
      {[](Graph&, const Inputs& t) { exp(t.ids); },
       "exp: input 0 must be f32, bf16 or f64 but is i32; cast it (exp, program_test.cpp:LINE)"},
      {[](Graph&, const Inputs& t) { reduce_sum(t.flags); },
       "reduce_sum: the input is bool; use reduce_any or reduce_all, or cast it (reduce_sum, "
       "program_test.cpp:LINE)"},
      {[](Graph&, const Inputs& t) { select(t.ids, t.x, t.x); },
       "select: input 0 must be bool but is i32; cast it (select, program_test.cpp:LINE)"},
      {[](Graph&, const Inputs& t) { scale(t.ids, 0.5); },
       "scale: factor 0.5 does not fit an i32 tensor; cast the tensor first (scale, program_test.cpp:LINE)"},
      {[](Graph&, const Inputs& t) { cross_entropy(t.x, t.x, "in"); },
       "cross_entropy: targets must be i32 but is f32 (at cross_entropy, program_test.cpp:LINE); cast it"},
      {[](Graph&, const Inputs& t) { dropout(t.x, 1.5); },
       "dropout: the rate 1.5 is not in [0, 1) (at dropout, program_test.cpp:LINE)"},
      {[](Graph&, const Inputs& t) { cumsum(t.flags, "batch"); },
       "cumsum: bool cannot be summed (at cumsum, program_test.cpp:LINE); cast it to i32"},
  });
}

TEST_F(Program, NamesVariablesAndGradients) {
  refuses({
      {[](Graph& g, const Inputs&) { g.parameter("w", {kIn}, {}); },
       "variable: the name 'w' is taken already (program_test.cpp:LINE); choose another or open a scope"},
      {[](Graph& g, const Inputs&) { g.input("x", {kIn}); },
       "input: the name 'x' is taken already (program_test.cpp:LINE); choose another or open a scope"},
      {[](Graph& g, const Inputs&) { g.input("a b", {kIn}); },
       "'a b' is not a name for a node; use letters, digits and any of _ . - + with '/' between parts"},
      {[](Graph& g, const Inputs& t) { g.assign(t.x, t.x); },
       "assign: 'x' is not a variable of this graph (program_test.cpp:LINE); pass the tensor that "
       "Graph::variable returned"},
      {[](Graph& g, const Inputs& t) { g.assign(t.w, t.x); },
       "assign: variable 'w' is f32[in:6;out:3] but the value 'x' is f32[batch:4;in:6] "
       "(program_test.cpp:LINE); convert it first"},
      {[](Graph& g, const Inputs&) { g.find("lables"); }, "the graph has no tensor 'lables'"},
      {[](Graph&, const Inputs&) { relu(Tensor()); },
       "relu: the tensor is empty (program_test.cpp:LINE); it was never made or its gradient does not exist"},
      {[](Graph&, const Inputs& t) { gradients({t.ids}, {t.w}); },
       "gradients: 'ids' is i32 (ids, program_test.cpp:LINE); only floating tensors have gradients"},
      {[](Graph&, const Inputs& t) { gradients({}, {t.w}); },
       "gradients: there is no tensor to differentiate; pass at least one"},
      {[](Graph&, const Inputs& t) { gradients({t.x}, {t.w}, {t.w}); },
       "gradients: the seed of 'x' is f32[in:6;out:3] but the tensor is f32[batch:4;in:6]; they must be "
       "equal"},
  });
}

TEST_F(Program, AVariableIsAssignedOnce) {
  Graph g;
  Tensor w = g.parameter("w", {kIn}, {});
  g.assign(w, scale(w, 0.5));
  expect_refused(
      "assign: variable 'w' is assigned twice (program_test.cpp:LINE and program_test.cpp:LINE); combine the "
      "two values into one assignment",
      ExitCode::Usage, [&] { g.assign(w, scale(w, 2)); });
}

TEST_F(Program, TwoGraphsDoNotMix) {
  Graph g, h;
  Tensor x = g.input("x", {kIn}), y = h.input("y", {kIn});
  expect_refused(
      "add: input 1 ('y') belongs to another graph (add, program_test.cpp:LINE); build both in one",
      ExitCode::Usage, [&] { add(x, y); });
  expect_refused("gradients: 'x' and 'y' belong to two graphs; build both in one", ExitCode::Usage,
                 [&] { gradients({x}, {y}); });
}

TEST_F(Program, TextOfAGraph) {
  const std::string head = "tessera graph 1\nx = input() {dtype=f32, name=\"x\", shape=[in:6]}\n";
  const std::pair<std::string, std::string> cases[] = {
      {"", "graph text: it is empty; it must begin with 'tessera graph 1'"},
      {head + "y = rleu(x)\n", "graph text, line 3: there is no op 'rleu'; did you mean 'relu'?"},
      {head + "y = relu(z)\n", "graph text, line 3: the graph has no tensor 'z'; did you mean 'x'?"},
      {head + "y = relu x\n", "graph text, line 3, column 10: expected '(' but found 'x'"},
      {head + "y = relu(x) : f32[in:7]\n",
       "graph text, line 3: 'y' is written as f32[in:7] but its inputs give f32[in:6]"},
      {head + "y = reduce_sum(x) {dims=[\"out\"]}\n",
       "graph text, line 3, column 26: shape '\"out\"': expected a dimension name at position 1; write "
       "name:size"},
      {head + "x = relu(x)\n", "graph text, line 3: the name 'x' occurs twice"},
      {head + "recompute 1 9\n", "graph text, line 3: recompute 1 9 is no range of the 1 nodes above"},
  };
  for (const auto& [text, message] : cases) {
    Graph g;
    expect_refused(message, ExitCode::Usage, [&, &t = text] { parse_graph(t, all_ops(), g); });
  }
}

}  // namespace
}  // namespace tessera::testing
