// Trains one weight on two processors, through the installed headers and libraries alone.
#include <tessera/tessera.h>

#include <cmath>
#include <cstdio>

int main() {
  using namespace tessera;
  Graph g;
  Tensor x = g.input("x", {{"batch", 5}});
  Tensor w = g.parameter("w", {}, Initializer::zeros());
  Tensor loss = reduce_mean(square(x * w - 3.0 * x));
  Tensor update = g.assign(w, w - 0.05 * gradients({loss}, {w})[0]);
  Session session(g, Mesh::parse("rows:2"), Layout::parse("batch:rows"));
  int step = session.compile({loss, update});
  for (int i = 0; i < 40; ++i) session.run(step, {{"x", Array(x.type(), {1, -2, 3, -1, 2})}});
  double learned = session.store().read("w").get(0);
  std::printf("w = %.6f, %zu checkpoints in /nowhere\n", learned, list_checkpoints("/nowhere").size());
  return std::abs(learned - 3) < 1e-4 ? 0 : 1;
}
