// Relative positions: a learned bias per head and bucket of distances, as in T5.
#include <cmath>

#include "base/check.h"
#include "tessera/nn.h"

namespace tessera::nn {

std::int64_t relative_bucket(std::int64_t distance, const RelativeOptions& options) {
  std::int64_t buckets = options.buckets, base = 0, back = -distance;
  if (options.bidirectional) {
    buckets /= 2;
    if (distance > 0) base = buckets;
    back = std::abs(distance);
  } else {
    back = std::max<std::int64_t>(back, 0);
  }
  const std::int64_t exact = buckets / 2;
  if (back < exact) return base + back;
  // The slack keeps powers of two, whose quotient of logarithms is a whole number, from rounding down.
  const double octaves = std::log(static_cast<double>(back) / static_cast<double>(exact)) /
                         std::log(static_cast<double>(options.max_distance) / static_cast<double>(exact));
  const auto far = exact + static_cast<std::int64_t>(octaves * static_cast<double>(buckets - exact) + 1e-9);
  return base + std::min(far, buckets - 1);
}

Tensor relative_table(Graph& graph, const std::string& name, const Dim& heads, const RelativeOptions& options,
                      DType activations, Where where) {
  TESSERA_CHECK(
      options.buckets >= 4 && options.max_distance > options.buckets / 2,
      "relative positions need at least 4 buckets and a max_distance above half their number, not {} and {} "
      "({})",
      options.buckets, options.max_distance, to_string(Location(where)));
  return graph.parameter(name, {heads, {"buckets", options.buckets}}, Initializer::normal(0.1),
                         parameter_dtype(activations), where);
}

Tensor relative_bias(Arg table, const RelativeOptions& options) {
  const std::int64_t reach = options.max_distance;
  Doubles buckets;
  for (std::int64_t d = -reach; d <= reach; ++d) {
    buckets.push_back(static_cast<double>(relative_bucket(d, options)));
  }
  const Dim distance{"distance", 2 * reach + 1};
  const Tensor bucket = constant(table.tensor.graph(), buckets, {distance}, DType::I32, table.where);
  return gather(table, {bucket, table.where}, "buckets");
}

}  // namespace tessera::nn
