// What a step costs beside its work: 10,000 component-wise ops on 64 elements, each its own step, on one
// rank. Prints nanoseconds an op (`per_op`).
#include <benchmark/benchmark.h>

#include "tessera/ops.h"
#include "tessera/session.h"

namespace tessera::benchmarks {
namespace {

constexpr int kOps = 10000;

// A chain that alternates ops of one and of two inputs; values stay of order one.
Tensor chain(Graph& graph, const Shape& shape) {
  const Tensor start = graph.input("x", shape);
  Tensor x = start;
  for (int i = 0; i < kOps / 2; ++i) x = neg(x) + start;
  return x;
}

void dispatch(benchmark::State& state, const char* mesh, const char* layout) {
  Graph graph;
  const Shape shape{{"width", 64}};
  const Tensor result = chain(graph, shape);
  SessionOptions options;
  options.lower.without = {"fuse"};
  Session session(graph, Mesh::parse(mesh), Layout::parse(layout), options);
  const int program = session.compile({result});
  const FeedMap feeds{{"x", Array({shape, DType::F32})}};
  session.run(program, feeds);
  for (auto _ : state) session.run(program, feeds);
  state.counters["per_op"] =
      benchmark::Counter(kOps, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

BENCHMARK_CAPTURE(dispatch, one_rank, "all:1", "")->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tessera::benchmarks

BENCHMARK_MAIN();
