// Named dimensions: broadcasting by name, contractions without positions, gradients, and gradients of
// gradients.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tessera/tessera.h"

using namespace tessera;

namespace {

void print(const char* what, const Tensor& tensor, const Array& value) {
  std::printf("%-34s %-24s", what, to_string(tensor.type()).c_str());
  for (std::int64_t i = 0; i < value.elements(); ++i) std::printf(" %6.2f", value.get(i));
  std::printf("\n");
}

}  // namespace

int main() {
  Graph g;
  Dim row{"row", 2}, column{"column", 3};
  Tensor table = g.input("table", {row, column});
  Tensor weight = g.input("weight", {column});

  // Operands meet by name, wherever the dimension stands.
  Tensor weighted = table * weight;
  // The output's dimensions decide: `column` is not among them, so it is summed.
  Tensor per_row = einsum({table, weight}, {row});
  Tensor share = softmax(table, "column");
  // Dimensions have no order: the transposed table is the same tensor.
  Tensor zero = reduce_max(abs(transpose(table, {"column", "row"}) - table));

  // y = sum over rows of (table . weight)^3; its gradients are ordinary tensors.
  Tensor y = reduce_sum(per_row * per_row * per_row);
  Tensor slope = gradients({y}, {weight})[0];
  Tensor curvature = gradients({reduce_sum(slope)}, {weight})[0];  // row sums of the Hessian

  std::vector<std::pair<const char*, Tensor>> shown{
      {"table * weight", weighted},      {"einsum({table, weight}, {row})", per_row},
      {"softmax(table, column)", share}, {"transposed minus itself, largest", zero},
      {"d y / d weight", slope},         {"d sum(slope) / d weight", curvature}};
  Tensors targets;
  for (const auto& [what, tensor] : shown) targets.push_back(tensor);

  // The same graph on four processors, each of which holds one or two columns of one row.
  Session session(g, Mesh::parse("rows:2;cols:2"), Layout::parse("row:rows;column:cols"));
  Results results = session.run(session.compile(targets), {{"table", Array(table.type(), {1, 2, 3, 4, 5, 6})},
                                                           {"weight", Array(weight.type(), {1, 0, -1})}});
  for (std::size_t i = 0; i < shown.size(); ++i) print(shown[i].first, shown[i].second, results.gather(i));

  // By hand: per_row = (-2, -2); slope_c = sum_r 3 per_row^2 t_rc = 12 (t_1c + t_2c);
  // d sum(slope) / d weight_c = sum_r 6 per_row t_rc (sum over columns of t_r) = -12 (6 t_1c + 15 t_2c).
  const double table_values[2][3] = {{1, 2, 3}, {4, 5, 6}};
  double worst = 0;
  for (std::int64_t c = 0; c < 3; ++c) {
    double one = table_values[0][c], two = table_values[1][c];
    worst = std::max(worst, std::abs(results.gather(4).get(c) - 12 * (one + two)));
    worst = std::max(worst, std::abs(results.gather(5).get(c) + 12 * (6 * one + 15 * two)));
  }
  worst = std::max(worst, std::abs(results.scalar(3)));
  std::printf("largest difference from the values worked out by hand: %g\n", worst);
  return worst < 1e-3 ? 0 : 1;
}
