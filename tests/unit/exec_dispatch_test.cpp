// Ten thousand steps of little work. tests/cost counts the instructions of this run.
#include <gtest/gtest.h>

#include "tessera/ops.h"
#include "tessera/session.h"

namespace tessera {
namespace {

TEST(Dispatch, TenThousandSmallSteps) {
  constexpr int kRounds = 5000;
  Graph graph;
  const Tensor start = graph.input("x", {{"width", 64}});
  Tensor x = start;
  for (int i = 0; i < kRounds; ++i) x = neg(x) + start;  // start, 0, start, ...
  SessionOptions options;
  options.lower.without = {"fuse"};
  Session session(graph, Mesh(), Layout(), options);
  const int program = session.compile({x});
  Array fed(start.type());
  for (std::int64_t i = 0; i < fed.elements(); ++i) fed.set(i, static_cast<double>(i) - 20);
  for (int run = 0; run < 2; ++run) EXPECT_EQ(session.run(program, {{"x", fed}}).gather(0).data, fed.data);
}

}  // namespace
}  // namespace tessera
