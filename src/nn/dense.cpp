// Dense layers, feed-forward blocks and their activations.
#include <cmath>

#include "base/check.h"
#include "tessera/nn.h"

namespace tessera::nn {

DType parameter_dtype(DType activations) {
  return activations == DType::F64 ? DType::F64 : DType::F32;
}

DType wide_dtype(DType activations) {
  return activations == DType::F64 ? DType::F64 : DType::F32;
}

Tensor dense(Arg x, const std::string& name, const Strings& reduced, const std::vector<Dim>& added,
             const DenseOptions& options) {
  Graph& graph = x.tensor.graph();
  const Graph::Scope scope(graph, name, x.where);
  const DType dtype = x.tensor.dtype();
  Shape weight, output = x.tensor.shape();
  for (const std::string& dim : reduced) {
    TESSERA_CHECK(output.has(dim), "dense '{}': the input {} has no dimension '{}' to contract ({})", name,
                  to_string(x.tensor.type()), dim, to_string(Location(x.where)));
    weight = weight.with(output.get(dim));
    output = output.without(dim);
  }
  const double fan_in = static_cast<double>(std::max<std::int64_t>(weight.elements(), 1));
  for (const Dim& dim : added) {
    weight = weight.with(dim);
    output = output.with(dim);
  }
  const Initializer init = options.weight.value_or(Initializer::normal(1 / std::sqrt(fan_in)));
  const Tensor w = graph.parameter("weight", weight, init, parameter_dtype(dtype), x.where);
  Tensor y = einsum({x, cast(w, dtype)}, output, x.where);
  if (!options.bias) return y;
  const Tensor b =
      graph.parameter("bias", Shape(added), Initializer::zeros(), parameter_dtype(dtype), x.where);
  return y + cast(b, dtype);
}

namespace {

struct Activation {
  const char* name;
  Tensor (*apply)(Arg);
};

constexpr Activation kActivations[] = {
    {"relu", [](Arg x) { return relu(x); }},         {"gelu", [](Arg x) { return gelu(x); }},
    {"gelu_erf", [](Arg x) { return gelu_erf(x); }}, {"swish", [](Arg x) { return swish(x); }},
    {"tanh", [](Arg x) { return tanh(x); }},         {"sigmoid", [](Arg x) { return sigmoid(x); }},
    {"linear", [](Arg x) { return x.tensor; }},
};

}  // namespace

const Strings& activation_names() {
  static const Strings names = [] {
    Strings list;
    for (const Activation& a : kActivations) list.emplace_back(a.name);
    return list;
  }();
  return names;
}

Tensor activate(Arg x, const std::string& kind) {
  for (const Activation& a : kActivations) {
    if (kind == a.name) return a.apply(x);
  }
  const std::string near = nearest_name(kind, activation_names());
  throw UserError(fmt::format("there is no activation '{}'{} ({}); choose one of {}", kind,
                              near.empty() ? "" : fmt::format("; did you mean '{}'?", near),
                              to_string(Location(x.where)), fmt::join(activation_names(), ", ")));
}

Tensor feed_forward(Arg x, const std::string& name, const FeedForwardOptions& options) {
  TESSERA_CHECK(!options.activations.empty(), "feed-forward '{}': name at least one activation ({})", name,
                to_string(Location(x.where)));
  Graph& graph = x.tensor.graph();
  std::optional<Graph::Scope> scope;
  if (!name.empty()) scope.emplace(graph, name, x.where);
  const DType dtype = x.tensor.dtype();
  const Dim d_model = x.tensor.dim("d_model");
  const Shape hidden = x.tensor.shape().without("d_model").with(options.d_ff);
  const auto weight = [&](const std::string& label, const Dim& in, const Dim& out) {
    const Initializer init = Initializer::normal(1 / std::sqrt(static_cast<double>(in.size)));
    return cast(graph.parameter(label, {in, out}, init, parameter_dtype(dtype), x.where), dtype);
  };
  Tensor h;
  for (std::size_t i = 0; i < options.activations.size(); ++i) {
    const std::string label = options.activations.size() == 1 ? "wi" : fmt::format("wi_{}", i);
    const Tensor factor =
        activate({einsum({x, weight(label, d_model, options.d_ff)}, hidden, x.where), x.where},
                 options.activations[i]);
    h = h.valid() ? mul(h, factor) : factor;
  }
  h = shared_dropout(h, options.dropout, options.dropout_shared);
  return einsum({h, weight("wo", options.d_ff, d_model)}, x.tensor.shape(), x.where);
}

}  // namespace tessera::nn
