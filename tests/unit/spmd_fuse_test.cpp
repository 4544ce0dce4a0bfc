// The fusion pass: fewer steps, the same bits.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/array.h"
#include "tessera/ops.h"
#include "tessera/session.h"

namespace tessera {
namespace {

Array values(const Shape& shape, DType dtype, double scale) {
  Array array({shape, dtype});
  for (std::int64_t i = 0; i < array.elements(); ++i)
    array.set(i, scale * static_cast<double>((i * 37 + 11) % 101 - 50));
  return array;
}

int count(const Program& program, Step::Kind kind) {
  return static_cast<int>(std::count_if(program.steps.begin(), program.steps.end(),
                                        [&](const Step& s) { return s.kind == kind; }));
}

struct FusedRun {
  std::vector<Array> fetched;
  Program program;
};

FusedRun run(const Graph& graph, const std::vector<Tensor>& targets, const FeedMap& feeds, const char* mesh,
             const char* layout, bool fused) {
  SessionOptions options;
  if (!fused) options.lower.without.insert("fuse");
  Session session(graph, Mesh::parse(mesh), Layout::parse(layout), options);
  const int id = session.compile(targets);
  const Results results = session.run(id, feeds);
  FusedRun outcome{{}, session.program(id)};
  std::size_t fetch = 0;
  for (const Tensor& target : targets) {
    if (graph.node(target.node()).op != &kAssignOp) outcome.fetched.push_back(results.gather(fetch++));
  }
  for (const std::string& name : session.store().names())
    outcome.fetched.push_back(session.store().read(name));
  return outcome;
}

// Both programs on three meshes: equal bits. Returns the fused program of one rank.
Program expect_same_bits(const Graph& graph, const std::vector<Tensor>& targets, const FeedMap& feeds) {
  Program first;
  for (const auto& [mesh, layout] :
       {std::pair{"", ""}, {"x:3", "batch:x"}, {"x:2;y:2", "batch:x;hidden:y"}}) {
    FusedRun a = run(graph, targets, feeds, mesh, layout, true),
             b = run(graph, targets, feeds, mesh, layout, false);
    EXPECT_LT(a.program.steps.size(), b.program.steps.size()) << mesh;
    for (std::size_t i = 0; i < a.fetched.size(); ++i)
      EXPECT_EQ(a.fetched[i].data, b.fetched[i].data) << mesh << " value " << i;
    if (*mesh == 0) first = a.program;
  }
  return first;
}

TEST(Fuse, ChainsKeepTheirBitsInEveryType) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F64}) {
    Graph g;
    const Dim batch{"batch", 5}, hidden{"hidden", 7};
    const Tensor x = g.input("x", {batch, hidden}, dtype), b = g.input("b", {hidden}, dtype);
    const Tensor y = tanh(x * 0.3 + b), z = exp(y) / (y + 3.0);
    const Tensor chosen = select(greater(z, y), z * y, cast(cast(y, DType::I32), dtype));
    const FeedMap feeds = {{"x", values({batch, hidden}, dtype, 0.07)}, {"b", values({hidden}, dtype, 0.01)}};
    const Program program = expect_same_bits(g, {chosen, z}, feeds);
    EXPECT_EQ(count(program, Step::Kind::Run), 0);
    EXPECT_EQ(count(program, Step::Kind::Fused), 1);
  }
}

TEST(Fuse, AdamIsOneLoopWithThreeOutputs) {
  Graph g;
  const Dim batch{"batch", 6}, hidden{"hidden", 10};
  const Shape shape{batch, hidden};
  const Tensor p = g.parameter("p", shape, Initializer::normal(1));
  const Tensor m = g.variable(VariableKind::Slot, "m", {shape, DType::F32}, Initializer::zeros(), "p");
  const Tensor v = g.variable(VariableKind::Slot, "v", {shape, DType::F32}, Initializer::zeros(), "p");
  const Tensor grad = g.input("grad", shape), rate = g.input("rate", {});
  const Tensor m2 = m * 0.9 + grad * 0.1, v2 = v * 0.999 + square(grad) * 0.001;
  const Tensor p2 = p - rate * m2 / (sqrt(v2) + 1e-8);
  const std::vector<Tensor> targets = {g.assign(m, m2), g.assign(v, v2), g.assign(p, p2)};
  const FeedMap feeds = {{"grad", values(shape, DType::F32, 0.02)}, {"rate", values({}, DType::F32, -0.01)}};
  const Program program = expect_same_bits(g, targets, feeds);
  ASSERT_EQ(count(program, Step::Kind::Fused), 1);
  const auto fused = std::find_if(program.steps.begin(), program.steps.end(),
                                  [](const Step& s) { return s.kind == Step::Kind::Fused; });
  EXPECT_EQ(fused->out.size(), 3u);
  EXPECT_EQ(fused->in.size(), 5u);
  EXPECT_EQ(count(program, Step::Kind::Run), 0);
}

TEST(Fuse, ValuesThatOthersNeedAreWritten) {
  Graph g;
  const Dim batch{"batch", 4}, hidden{"hidden", 6}, out{"out", 3};
  const Tensor x = g.input("x", {batch, hidden}), w = g.input("w", {hidden, out});
  const Tensor a = relu(x * 2.0), b = a + 1.0;  // `a` is an operand of a contraction, too
  const Tensor y = einsum({a, w}, {batch, out}), z = b * x;
  const FeedMap feeds = {{"x", values({batch, hidden}, DType::F32, 0.1)},
                         {"w", values({hidden, out}, DType::F32, 0.1)}};
  expect_same_bits(g, {y, z}, feeds);
}

TEST(Fuse, StepsBehindAContractionWaitForIt) {
  Graph g;
  const Dim batch{"batch", 4}, hidden{"hidden", 6}, in{"in", 5};
  const Tensor x = g.input("x", {batch, in}), w = g.input("w", {in, hidden}),
               r = g.input("r", {batch, hidden});
  const Tensor before = r * 3.0, y = einsum({x, w}, {batch, hidden});
  const Tensor sum = before + y, after = sum * sum;
  const FeedMap feeds = {{"x", values({batch, in}, DType::F32, 0.1)},
                         {"w", values({in, hidden}, DType::F32, 0.1)},
                         {"r", values({batch, hidden}, DType::F32, 0.1)}};
  const Program program = expect_same_bits(g, {after}, feeds);
  EXPECT_EQ(count(program, Step::Kind::Fused), 1);  // `before` is drawn down behind the contraction
}

// A renamed value is the same memory with its dimensions the other way round: not the same element.
TEST(Fuse, SwappedNamesAreNotTheSameElement) {
  Graph g;
  const Dim batch{"batch", 4}, hidden{"hidden", 4};
  const Tensor x = g.input("x", {batch, hidden});
  const Tensor a = x + 1.0, swapped = rename(a, {{"batch", "hidden"}, {"hidden", "batch"}});
  const Tensor sum = a - transpose(swapped, {"batch", "hidden"}), more = sum * 2.0;
  const FeedMap feeds = {{"x", values({batch, hidden}, DType::F32, 0.1)}};
  FusedRun fused = run(g, {more}, feeds, "", "", true), plain = run(g, {more}, feeds, "", "", false);
  EXPECT_EQ(fused.fetched[0].data, plain.fetched[0].data);
  EXPECT_NEAR(fused.fetched[0].get(1), 2 * (feeds.at("x").get(1) - feeds.at("x").get(4)), 1e-5);
}

// The sum may not be written over `a`: it is read a second time through the renamed view, the other way
// round.
TEST(Fuse, ResultsAreNotWrittenOverAValueThatIsReadThroughAView) {
  Graph g;
  const Dim batch{"batch", 300}, hidden{"hidden", 300};
  const Tensor x = g.input("x", {batch, hidden});
  const Tensor a = relu(x + 1.0), sum = a - rename(a, {{"batch", "hidden"}, {"hidden", "batch"}});
  const FeedMap feeds = {{"x", values({batch, hidden}, DType::F32, 0.01)}};
  for (bool fused : {true, false}) {
    const Array got = run(g, {sum}, feeds, "", "", fused).fetched[0];
    const auto at = [&](std::int64_t i, std::int64_t j) {
      return std::max(0.0f, static_cast<float>(feeds.at("x").get(i * 300 + j)) + 1.0f);
    };
    for (std::int64_t i = 0; i < 300; i += 7) {
      for (std::int64_t j = 0; j < 300; ++j)
        ASSERT_EQ(got.get(i * 300 + j), at(i, j) - at(j, i)) << i << " " << j;
    }
  }
}

// Adafactor's statistics: squares are never written, both means come out of one loop, on every mesh.
TEST(Fuse, SumsJoinTheLoopThatMakesWhatTheyAddUp) {
  Graph g;
  const Dim batch{"batch", 230}, hidden{"hidden", 200};
  const Tensor x = g.input("x", {batch, hidden});
  const Tensor squares = square(x) + 1e-3;
  const Tensor rows = reduce_mean(squares, {"hidden"}), columns = reduce_sum(squares, {"batch"});
  const FeedMap feeds = {{"x", values({batch, hidden}, DType::F32, 0.1)}};
  for (const auto& [mesh, layout] :
       {std::pair{"", ""}, {"x:3", "batch:x"}, {"x:2", "hidden:x"}, {"x:2;y:2", "batch:x;hidden:y"}}) {
    const FusedRun fused = run(g, {rows, columns}, feeds, mesh, layout, true),
                   plain = run(g, {rows, columns}, feeds, mesh, layout, false);
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_EQ(testing::difference(fused.fetched[i], plain.fetched[i], 1e-6, 0), "") << mesh;
    ASSERT_EQ(count(fused.program, Step::Kind::Fused), 1) << mesh;
    const auto loop = std::find_if(fused.program.steps.begin(), fused.program.steps.end(),
                                   [](const Step& s) { return s.kind == Step::Kind::Fused; });
    EXPECT_EQ(loop->out.size(), 2u) << mesh;
    EXPECT_EQ(loop->sums, (std::vector<double>{200, 1})) << mesh;
  }
}

// What is computed from a sum waits for it, also when it reads the loop's values again.
TEST(Fuse, ReadersOfASumWaitForIt) {
  Graph g;
  const Dim batch{"batch", 64}, hidden{"hidden", 150};
  const Tensor x = g.input("x", {batch, hidden});
  const Tensor e = exp(x), share = e / reduce_sum(e, {"hidden"}), more = share * e + x;
  const FeedMap feeds = {{"x", values({batch, hidden}, DType::F32, 0.05)}};
  for (const auto& [mesh, layout] : {std::pair{"", ""}, {"x:3", "batch:x"}, {"x:2", "hidden:x"}}) {
    const FusedRun fused = run(g, {more}, feeds, mesh, layout, true),
                   plain = run(g, {more}, feeds, mesh, layout, false);
    EXPECT_EQ(testing::difference(fused.fetched[0], plain.fetched[0], 1e-6, 0), "") << mesh;
    EXPECT_EQ(count(fused.program, Step::Kind::Fused), 2) << mesh;
  }
}

// A rank with an empty part of what is added up has zeros.
TEST(Fuse, SumsOfEmptyParts) {
  Graph g;
  const Dim batch{"batch", 2}, hidden{"hidden", 200};
  const Tensor x = g.input("x", {batch, hidden});
  const Tensor y = square(x) * 3.0, sum = reduce_sum(y);
  const FeedMap feeds = {{"x", values({batch, hidden}, DType::F32, 0.05)}};
  const Array got = run(g, {sum}, feeds, "x:3", "batch:x", true).fetched[0],
              want = run(g, {sum}, feeds, "", "", false).fetched[0];
  EXPECT_EQ(testing::difference(got, want, 1e-6, 0), "");
}

// An update and the sum of its gradient's squares are one loop, unless ranks share the update's work: rows
// that each of them holds.
TEST(Fuse, UpdatesAndSumsShareALoop) {
  Graph g;
  const Dim batch{"batch", 60}, hidden{"hidden", 110};
  const Shape shape{batch, hidden};
  const Tensor p = g.parameter("p", shape, Initializer::normal(1)), grad = g.input("grad", shape);
  const Tensor scaled = grad * 0.5, norm = reduce_sum(square(scaled)), p2 = p - scaled * 0.1;
  const std::vector<Tensor> targets = {norm, g.assign(p, p2)};
  const FeedMap feeds = {{"grad", values(shape, DType::F32, 0.02)}};
  struct Case {
    const char *mesh, *layout;
    int loops;
  };
  for (const auto& [mesh, layout, loops] :
       {Case{"", "", 1}, {"x:2", "", 2}, {"x:2", "hidden:x", 1}, {"x:2", "batch:x", 1}}) {
    const FusedRun fused = run(g, targets, feeds, mesh, layout, true),
                   plain = run(g, targets, feeds, mesh, layout, false);
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_EQ(testing::difference(fused.fetched[i], plain.fetched[i], 1e-6, 0), "") << layout << " " << i;
    EXPECT_EQ(count(fused.program, Step::Kind::Fused), loops) << mesh << " " << layout;
    EXPECT_EQ(count(fused.program, Step::Kind::Run), 0) << mesh << " " << layout;
  }
}

TEST(Fuse, RegionsStayApart) {
  Graph g;
  const Dim batch{"batch", 4}, hidden{"hidden", 6};
  const Tensor x = g.input("x", {batch, hidden});
  const Tensor a = x + 1.0;
  Tensor b;
  {
    const Graph::RegionScope scope(g, Region::Backward);
    b = a * 2.0;
  }
  const FusedRun outcome = run(g, {b}, {{"x", values({batch, hidden}, DType::F32, 0.1)}}, "", "", true);
  EXPECT_EQ(count(outcome.program, Step::Kind::Fused), 0);
}

}  // namespace
}  // namespace tessera
