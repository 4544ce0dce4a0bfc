// An op outside the library: one record. Lowering, gradients, fusion and memory planning follow from it; a
// dimension may be split. `hinge` is the squared hinge loss per element, max(0, 1 - t x)^2, where t is +1 or
// -1.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tessera/tessera.h"

using namespace tessera;

namespace {

extern const Op kHinge;

Tensor hinge(Arg score, Arg sign) {
  return score.tensor.graph().add(kHinge, {score.tensor, sign.tensor}, {}, score.where)[0];
}

std::vector<Type> infer(const Call& call) {
  if (!same_dims(call.in[0].shape, call.in[1].shape) || call.in[0].dtype != call.in[1].dtype) {
    throw UserError("hinge: " + to_string(call.in[0]) + " and " + to_string(call.in[1]) +
                    " must have the same dimensions and type (" + call.name + ")");
  }
  return {call.in[0]};
}

// d/dx max(0, 1 - t x)^2 = -2 t max(0, 1 - t x), from ordinary ops: second derivatives come for free.
void grad(GradContext& g) {
  g.set(0, g.dy() * (-2.0 * (g.in(1) * relu(1.0 - g.in(0) * g.in(1)))));
}

// Component-wise, so the kernel is scalar code: it is fused with its neighbours and runs vectorised.
// Registers 0 and 1 are the inputs; instruction i writes register 2 + i.
ScalarCode code(const Call& call) {
  DType type = call.in[0].dtype;
  std::vector<Instruction> steps{
      {.op = Scalar::Const, .value = 1, .type = type},   {.op = Scalar::Const, .value = 0, .type = type},
      {.op = Scalar::Mul, .a = 0, .b = 1, .type = type}, {.op = Scalar::Sub, .a = 2, .b = 4, .type = type},
      {.op = Scalar::Max, .a = 5, .b = 3, .type = type}, {.op = Scalar::Mul, .a = 6, .b = 6, .type = type}};
  return {.inputs = 2, .code = steps, .results = {7}};
}

const Op kHinge{.name = "hinge", .doc = "max(0, 1 - t x)^2.", .infer = infer, .grad = grad, .scalar = code};

}  // namespace

int main() {
  Graph g;
  Dim batch{"batch", 5}, features{"features", 3};  // five examples over three processors: 1, 2 and 2 of them
  Tensor x = g.input("x", {batch, features}), sign = g.input("sign", {batch});
  Tensor w = g.input("w", {features});
  Tensor loss = reduce_sum(hinge(einsum({x, w}, {batch}), sign));
  Tensor slope = gradients({loss}, {w})[0];

  std::vector<double> xs, signs{1, -1, 1, -1, 1}, ws{0.5, -0.25, 0.125};
  for (int i = 0; i < 15; ++i) xs.push_back(std::sin(i + 1.0));
  Array xa = Array(x.type(), xs), sa = Array(sign.type(), signs), wa = Array(w.type(), ws);
  Session session(g, Mesh::parse("rows:3"), Layout::parse("batch:rows"));
  Results results = session.run(session.compile({loss, slope}), {{"x", xa}, {"sign", sa}, {"w", wa}});

  double expected = 0, slopes[3] = {};
  for (std::size_t b = 0; b < 5; ++b) {
    double score = 0;
    for (std::size_t f = 0; f < 3; ++f) score += xs[b * 3 + f] * ws[f];
    double gap = std::max(0.0, 1 - signs[b] * score);
    expected += gap * gap;
    for (std::size_t f = 0; f < 3; ++f) slopes[f] -= 2 * signs[b] * gap * xs[b * 3 + f];
  }
  double worst = std::abs(results.scalar(0) - expected);
  for (int f = 0; f < 3; ++f) worst = std::max(worst, std::abs(results.gather(1).get(f) - slopes[f]));
  std::printf("loss %.6f, largest difference from the one by hand %g\n", results.scalar(0), worst);
  return worst < 1e-5 ? 0 : 1;
}
