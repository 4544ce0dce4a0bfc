// The Store of a Session: shards, shared buffers, reading and writing by box, accumulators with pending sums.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "session_models.h"
#include "tessera/error.h"

namespace tessera {
namespace {

using testing::Mlp;

TEST(Store, RanksWithTheSameBoxShareOneBuffer) {
  Mlp model;
  const std::int64_t w1 = 7 * 9 * 8, b1 = 9 * 8, w2 = 9 * 5 * 8, all = 2 * (w1 + b1 + w2);
  Session replicated(model.graph, Mesh::parse("a:4"), Layout::parse("batch:a"));
  replicated.compile(model.step());
  EXPECT_EQ(replicated.store().bytes(), all);
  EXPECT_EQ(replicated.store().bytes_of_rank(3), all);
  Session split(model.graph, Mesh::parse("a:2"), Layout::parse("batch:a;params.*:a"));
  split.compile(model.step());
  EXPECT_EQ(split.store().bytes(), all);
  EXPECT_EQ(split.store().bytes_of_rank(0) + split.store().bytes_of_rank(1), all);
  EXPECT_LE(split.store().bytes_of_rank(1), all / 2 + w1);
  int shards = 0;
  replicated.store().shards("w1", [&](const Box&, const void*) { ++shards; });
  EXPECT_EQ(shards, 1);
  split.store().shards("w1", [&](const Box&, const void*) { ++shards; });
  EXPECT_EQ(shards, 3);
}

TEST(Store, WritesAndReadsBoxesAcrossShards) {
  Mlp model;
  Session session(model.graph, Mesh::parse("a:2;b:2"), Layout::parse("hidden:a;pixels:b"));
  session.compile(model.step());
  Store& store = session.store();
  Array value(store.type("w1"));
  for (std::int64_t i = 0; i < value.elements(); ++i) value.set(i, static_cast<double>(i));
  store.write("w1", value);
  EXPECT_EQ(store.read("w1").data, value.data);
  const Box box{{2, 3}, {3, 4}};
  std::vector<double> part(12);
  store.read("w1", box, part.data());
  EXPECT_EQ(part[0], 2 * 9 + 3);
  EXPECT_EQ(part[11], 4 * 9 + 6);
  for (double& x : part) x = -x;
  store.write("w1", box, part.data());
  const Array after = store.read("w1");
  for (std::int64_t r = 0; r < 7; ++r) {
    for (std::int64_t c = 0; c < 9; ++c) {
      const bool inside = r >= 2 && r < 5 && c >= 3 && c < 7;
      ASSERT_EQ(after.get(r * 9 + c), (inside ? -1 : 1) * static_cast<double>(r * 9 + c));
    }
  }
}

// Also through a view, by ranks that share the buffer, and where the new value is fetched beside it.
TEST(Store, AFetchedVariableIsTheOneBeforeTheRun) {
  for (const char* layout : {"", "rows:a", "rows:a;params.*:b", "cols:a+b"}) {
    Graph graph;
    const Tensor w = graph.parameter("w", {{"rows", 5}, {"cols", 3}}, Initializer::constant(1), DType::F64);
    const Tensor seen = rename(w, {{"rows", "seen"}}), next = w + 1.0, assigned = graph.assign(w, next);
    Session session(graph, Mesh::parse("a:2;b:2"), Layout::parse(layout));
    const int program = session.compile({w, assigned, next, seen, reduce_sum(w)});
    for (int run = 0; run < 3; ++run) {
      const Results results = session.run(program);
      EXPECT_EQ(results.gather(0).values(), std::vector<double>(15, 1 + run)) << layout;
      EXPECT_EQ(results.gather(1).values(), std::vector<double>(15, 2 + run)) << layout;
      EXPECT_EQ(results.gather(2).values(), std::vector<double>(15, 1 + run)) << layout;
      EXPECT_EQ(results.scalar(3), 15 * (1 + run)) << layout;
    }
  }
}

TEST(Store, MistakesAreExplained) {
  Mlp model;
  Session session(model.graph, Mesh(), Layout());
  session.compile(model.step());
  auto message = [](auto call) -> std::string {
    try {
      call();
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message([&] { session.store().read("w3"); }),
            "the store has no variable 'w3'; did you mean 'w1'?");
  EXPECT_EQ(message([&] {
              session.store().write("b1", Array({{{"hidden", 8}}, DType::F64}));
            }),
            "variable 'b1' is f64[hidden:9], but the value is f64[hidden:8]");
  double x = 0;
  EXPECT_EQ(message([&] {
              session.store().read("b1", Box{{9}, {1}}, &x);
            }),
            "variable 'b1': the box [9:10] does not lie in f64[hidden:9]");
  Graph other;
  const Tensor b1 = other.parameter("b1", {{"hidden", 4}}, Initializer::zeros(), DType::F64);
  EXPECT_EQ(message([&] { session.compile(other, {reduce_sum(b1)}); }),
            "variable 'b1' is f64[hidden:9] in the session's store, but this graph declares f64[hidden:4]");
}

// Micro-batches: sums accumulate where they are pending, are reduced at apply, and start again from zero.
TEST(Store, AccumulatorsKeepPendingSums) {
  Graph graph;
  const Dim batch{"batch", 6}, n{"n", 5};
  const Tensor x = graph.input("x", {batch, n}, DType::F64);
  const Tensor w = graph.parameter("w", {n}, Initializer::zeros(), DType::F64);
  const Tensor gradient = reduce_sum(x, {"batch"});
  const Tensor sum = graph.variable(VariableKind::Accumulator, "w/sum", w.type(), Initializer::zeros(), "w");
  const Tensor accumulate = graph.assign(sum, sum + gradient);
  Graph apply_graph;
  const Tensor w2 = apply_graph.parameter("w", {n}, Initializer::zeros(), DType::F64);
  const Tensor sum2 =
      apply_graph.variable(VariableKind::Accumulator, "w/sum", w2.type(), Initializer::zeros(), "w");
  const Tensor set_w = apply_graph.assign(w2, w2 + sum2);
  const Tensor clear = apply_graph.assign(sum2, zeros_like(sum2));
  for (const char* layout : {"", "batch:a", "batch:a;params.n:a"}) {
    SCOPED_TRACE(layout);
    Session session(graph, Mesh::parse("a:4"), Layout::parse(layout));
    const int add = session.compile({accumulate});
    const int apply = session.compile(apply_graph, {set_w, clear});
    Array feed(x.type());
    for (std::int64_t i = 0; i < feed.elements(); ++i) feed.set(i, static_cast<double>(i));
    double expected = 0;
    for (int round = 1; round <= 2; ++round) {
      for (int micro = 0; micro < 3; ++micro) session.run(add, {{"x", feed}});
      EXPECT_EQ(session.store().read("w/sum").get(2), 3 * (2 + 7 + 12 + 17 + 22 + 27));
      session.run(apply);
      expected += 3 * (2 + 7 + 12 + 17 + 22 + 27);
      EXPECT_EQ(session.store().read("w").get(2), expected);
      EXPECT_EQ(session.store().read("w/sum").get(2), 0);
    }
  }
}

}  // namespace
}  // namespace tessera
