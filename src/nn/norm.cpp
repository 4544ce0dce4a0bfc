// Norms with their parameters, dropout, and blocks that are recomputed.
#include <algorithm>

#include "base/check.h"
#include "nn/dropout.h"

namespace tessera::nn {

Tensor norm(Arg x, const std::string& name, const std::string& dim, NormKind kind, double epsilon) {
  Graph& graph = x.tensor.graph();
  const Graph::Scope scope(graph, name, x.where);
  const DType dtype = x.tensor.dtype();
  const Shape shape{x.tensor.dim(dim)};
  const Tensor scale =
      cast(graph.parameter("scale", shape, Initializer::ones(), parameter_dtype(dtype), x.where), dtype);
  if (kind == NormKind::Rms) return tessera::rms_norm(x, scale, dim, epsilon);
  const Tensor bias =
      cast(graph.parameter("bias", shape, Initializer::zeros(), parameter_dtype(dtype), x.where), dtype);
  return tessera::layer_norm(x, scale, bias, dim, epsilon);
}

Tensor rms_norm(Arg x, const std::string& name, const std::string& dim, double epsilon) {
  return norm(x, name, dim, NormKind::Rms, epsilon);
}

Tensor layer_norm(Arg x, const std::string& name, const std::string& dim, double epsilon) {
  return norm(x, name, dim, NormKind::Layer, epsilon);
}

Strings dropout_noise(const Shape& shape, const Strings& shared, Where where) {
  Strings noise;
  for (const Dim& dim : shape) {
    if (std::find(shared.begin(), shared.end(), dim.name) == shared.end()) noise.push_back(dim.name);
  }
  TESSERA_CHECK(!noise.empty(), "dropout: every dimension of [{}] shares the mask ({}); leave one out",
                to_string(shape), to_string(Location(where)));
  return noise;
}

Tensor shared_dropout(Arg x, double rate, const Strings& shared) {
  TESSERA_CHECK(rate >= 0 && rate < 1, "dropout: the rate {} is not in [0, 1) ({})", rate,
                to_string(Location(x.where)));
  return rate == 0 ? x.tensor : dropout(x, rate, dropout_noise(x.tensor.shape(), shared, x.where));
}

Tensor block(Graph& graph, bool on, const std::function<Tensor()>& body) {
  const int first = static_cast<int>(graph.nodes().size());
  const Tensor result = body();
  if (on) graph.add_recompute_range({first, static_cast<int>(graph.nodes().size())});
  return result;
}

bool glob_match(std::string_view glob, std::string_view text) {
  std::size_t g = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      mark = t;
    } else if (g < glob.size() && (glob[g] == '?' || glob[g] == text[t])) {
      ++g;
      ++t;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

}  // namespace tessera::nn
