// The text form: everything prints and parses back; what does not parse is told with its line.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "lang/text.h"
#include "support/expect_error.h"
#include "support/samples.h"
#include "tessera/error.h"
#include "tessera/grad.h"
#include "tessera/ops.h"

namespace tessera {
namespace {

using testing::expect_error;

void expect_round_trip(const Graph& g) {
  const std::string text = to_string(g);
  Graph again;
  ASSERT_NO_THROW(parse_graph(text, all_ops(), again)) << text;
  EXPECT_EQ(to_string(again), text);
  ASSERT_EQ(again.nodes().size(), g.nodes().size());
  for (std::size_t i = 0; i < g.nodes().size(); ++i) {
    const Node &a = g.nodes()[i], &b = again.nodes()[i];
    EXPECT_EQ(a.op, b.op);
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.outputs, b.outputs);
    EXPECT_EQ(a.attrs, b.attrs) << a.name;
    EXPECT_EQ(a.where, b.where);
    EXPECT_EQ(a.region, b.region);
    EXPECT_EQ(a.recompute, b.recompute);
    EXPECT_EQ(a.key, b.key);
    ASSERT_EQ(a.inputs.size(), b.inputs.size());
    for (std::size_t k = 0; k < a.inputs.size(); ++k) EXPECT_EQ(a.inputs[k].name(), b.inputs[k].name());
  }
  EXPECT_EQ(again.recompute_ranges().size(), g.recompute_ranges().size());
  EXPECT_EQ(again.variables().size(), g.variables().size());
}

TEST(AttrText, EveryKindOfValueRoundTrips) {
  const std::vector<AttrValue> values{true,
                                      false,
                                      std::int64_t{-3},
                                      std::int64_t{9007199254740993},
                                      0.5,
                                      3.0,
                                      -0.0,
                                      1e300,
                                      5e-324,
                                      0.1,
                                      std::numeric_limits<double>::infinity(),
                                      -std::numeric_limits<double>::infinity(),
                                      std::string("a \"b\" \\ \n c"),
                                      std::string(),
                                      DType::BF16,
                                      DType::Bool,
                                      Shape{{"a", 2}, {"b", 3}},
                                      Shape(),
                                      Ints{1, -2},
                                      Ints{},
                                      Doubles{1.0, 0.25},
                                      Doubles{},
                                      Strings{"x", "y, z)"},
                                      Strings{}};
  for (const AttrValue& value : values) {
    const std::string text = to_string(value);
    TextReader reader(text, "attribute");
    const AttrValue again = reader.value();
    EXPECT_TRUE(reader.done()) << text;
    EXPECT_EQ(again.index(), value.index()) << text;
    EXPECT_EQ(to_string(again), text);
    EXPECT_EQ(again, value) << text;
  }
  EXPECT_TRUE(std::isnan(std::get<double>(TextReader(to_string(AttrValue(NAN)), "attribute").value())));
  EXPECT_EQ(to_string(AttrValue(3.0)), "3.0") << "a double never reads back as an integer";
}

TEST(GraphText, PrintsOneLineANode) {
  Graph g;
  const Tensor x = g.add(kInputOp, {}, {{"name", "x"}, {"shape", Shape{{"a", 3}}}, {"dtype", DType::F32}},
                         Location("m.cc", 4), "x")[0];
  g.add(*find_op("scale"), {x}, {{"factor", 2.0}}, Location("m.cc", 5));
  EXPECT_EQ(to_string(g),
            "tessera graph 1\n"
            "x = input() {dtype=f32, name=\"x\", shape=[a:3]} : f32[a:3] at \"m.cc:4\"\n"
            "scale = scale(x) {factor=2.0} : f32[a:3] at \"m.cc:5\"\n");
}

TEST(GraphText, TrainingGraphWithEverythingRoundTrips) {
  Graph g;
  const Dim batch{"batch", 6}, in{"in", 5}, hidden{"hidden", 7};
  const Tensor x = g.input("x", {batch, in}),
               w = g.parameter("w", {in, hidden}, Initializer::uniform(-0.1, 0.1));
  const Tensor m = g.variable(VariableKind::Slot, "w_m", {{in, hidden}, DType::F32}, {}, "w");
  Tensor loss;
  {
    const Graph::Scope scope(g, "model");
    const Tensor h = recompute(g, [&] {
      return Tensors{dropout(relu(einsum({x, w}, {batch, hidden})), 0.25)};
    })[0];
    const Tensors parts = split(h, "hidden", {3, 4});
    loss = add(reduce_mean(square(parts[0])), reduce_sum(parts[1]));
  }
  const Tensor dw = gradients({loss}, {w})[0];
  const Graph::RegionScope region(g, Region::Update);
  const Tensor m2 = add(scale(m, 0.9), dw);
  g.assign(m, m2);
  g.assign(w, sub(w, scale(m2, 0.1)));
  expect_round_trip(g);
  const std::string text = to_string(g);
  EXPECT_NE(text.find("region=backward group=1 key="), std::string::npos) << "a clone of the dropout mask\n"
                                                                          << text;
  EXPECT_NE(text.find("recompute "), std::string::npos);
}

// Graphs of random calls from the records' own samples: all attributes of all ops.
TEST(GraphText, RandomGraphsOfAllOpsRoundTrip) {
  std::mt19937 random(3);
  Graph g;
  int calls = 0;
  for (int round = 0; round < 3; ++round) {
    std::vector<const Op*> ops(all_ops().begin(), all_ops().end());
    std::shuffle(ops.begin(), ops.end(), random);
    for (const Op* op : ops) {
      const auto cases = testing::cases_of(*op);
      if (cases.empty()) continue;
      const testing::SampleCase& c = cases[random() % cases.size()];
      Tensors inputs;
      for (const Type& type : c.in) {
        // Half of the inputs are tensors that exist already, when one fits.
        Tensor found;
        for (const Node& node : g.nodes()) {
          for (std::size_t o = 0; o < node.outputs.size(); ++o) {
            if (node.outputs[o] == type && random() % 2 == 0)
              found = g.find(node.name + ":" + std::to_string(o));
          }
        }
        inputs.push_back(found.valid()
                             ? found
                             : g.input("in_" + std::to_string(calls) + "_" + std::to_string(inputs.size()),
                                       type.shape, type.dtype));
      }
      const Graph::RegionScope region(g, static_cast<Region>(random() % 3), static_cast<int>(random() % 4));
      g.add(*op, inputs, c.attrs,
            random() % 3 ? Location("file.cc", static_cast<int>(random() % 99)) : Location());
      ++calls;
    }
  }
  EXPECT_GT(calls, 250);
  expect_round_trip(g);
}

TEST(GraphText, CustomGradientsPrintAComment) {
  Graph g;
  const Tensor x = g.input("x", {{"a", 3}});
  custom_gradient(
      {x}, [&] { return Tensors{floor(x)}; }, [](const Tensors& dy) { return dy; });
  const std::string text = to_string(g);
  EXPECT_NE(text.find("# the gradient function of the next node is not part of the text\n"),
            std::string::npos)
      << text;
  Graph again;
  parse_graph(text, all_ops(), again);
  EXPECT_EQ(again.nodes().size(), g.nodes().size());
}

const std::string kHead = "tessera graph 1\nx = input() {dtype=f32, name=\"x\", shape=[a:3]}\n";

TEST(GraphText, ErrorsNameLineColumnAndRemedy) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "graph text: it is empty; it must begin with 'tessera graph 1'"},
      {"x = input()", "graph text, line 1: the text must begin with 'tessera graph 1'"},
      {"tessera graph 2\n", "graph text, line 1: the text must begin with 'tessera graph 1'"},
      {kHead + "y = rleu(x)\n", "graph text, line 3: there is no op 'rleu'; did you mean 'relu'?"},
      {kHead + "\n# note\ny = relu(z)\n",
       "graph text, line 5: the graph has no tensor 'z'; did you mean 'x'?"},
      {kHead + "y = relu(x:1)\n", "graph text, line 3: the graph has no tensor 'x:1': 'x' has 1 output"},
      {kHead + "y = relu x\n", "graph text, line 3, column 10: expected '(' but found 'x'"},
      {kHead + "y = relu(x\n", "graph text, line 3, column 11: expected ')' but found the end of the line"},
      {kHead + "y = scale(x) {factor=}\n", "graph text, line 3, column 22: expected a value but found '}'"},
      {kHead + "y = relu(x) : f32[a:4]\n",
       "graph text, line 3: 'y' is written as f32[a:4] but its inputs give f32[a:3]"},
      {kHead + "y = relu(x) : f33[a:3]\n",
       "graph text, line 3, column 18: 'f33' is no element type; use one of f32, bf16, f64, i32, bool"},
      {kHead + "y = relu(x) : f32[a:]\n",
       "graph text, line 3, column 19: shape 'a:': expected the size of 'a' at position 3; write name:size"},
      {kHead + "y = relu(x) region=sideways\n",
       "graph text, line 3: 'sideways' is no region; use forward, backward or update"},
      {kHead + "y = relu(x) at \"here\"\n", "graph text, line 3: 'here' is no place; write \"file:line\""},
      {kHead + "x = relu(x)\n", "graph text, line 3: the name 'x' occurs twice"},
      {kHead + "recompute 1 9\n", "graph text, line 3: recompute 1 9 is no range of the 1 nodes above"},
      {kHead + "y = relu(x) trailing\n",
       "graph text, line 3, column 13: expected the end of the line but found 'trailing'"},
  };
  for (const auto& [text, message] : cases) {
    Graph g;
    expect_error<UserError>([&, &t = text] { parse_graph(t, all_ops(), g); }, message);
  }
}

TEST(GraphText, MissingAttributesAreTheTextsFault) {
  Graph g;
  EXPECT_THROW(parse_graph(kHead + "y = scale(x)\n", all_ops(), g), UserError);
  Graph h;
  EXPECT_THROW(parse_graph("tessera graph 1\nw = variable() {name=\"w\"}\n", all_ops(), h), UserError);
}

// Cuts and flips of a good text must give a graph or a UserError, never anything else.
TEST(GraphText, DamagedTextNeverDoesWorseThanAnError) {
  Graph g;
  const Tensor x = g.input("x", {{"batch", 4}, {"in", 5}}),
               w = g.parameter("w", {{"in", 5}, {"out", 3}}, Initializer::normal(1));
  gradients({reduce_sum(softmax(einsum({x, w}, {{"batch", 4}, {"out", 3}}), "out"))}, {w});
  const std::string text = to_string(g);
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = text;
    const std::size_t at = random() % damaged.size();
    switch (random() % 3) {
      case 0:
        damaged.erase(at, 1 + random() % 8);
        break;
      case 1:
        damaged[at] = static_cast<char>(' ' + random() % 95);
        break;
      default:
        damaged.insert(at, 1, static_cast<char>(' ' + random() % 95));
    }
    Graph again;
    try {
      parse_graph(damaged, all_ops(), again);
    } catch (const UserError&) {
    }
  }
}

}  // namespace
}  // namespace tessera
