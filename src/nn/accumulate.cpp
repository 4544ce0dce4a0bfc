// Micro-batches: gradients are summed over several runs of one program and applied by another.
#include "base/check.h"
#include "tessera/nn.h"
#include "tessera/optimizer.h"

namespace tessera {
namespace {

constexpr const char* kSuffix = "/accumulator";
constexpr const char* kSums = "accumulated/";

}  // namespace

Tensors build_accumulation(Graph& graph, const Tensors& parameters, const Tensors& gradients,
                           const std::vector<std::pair<std::string, Tensor>>& sums, Where where) {
  TESSERA_CHECK(parameters.size() == gradients.size(), "accumulate: {} parameters but {} gradients ({})",
                parameters.size(), gradients.size(), to_string(Location(where)));
  // Part of the backward pass, not of the update: pending sums stay pending from one micro-batch to the next.
  const Graph::RegionScope region(graph, Region::Backward);
  Tensors assignments;
  const auto accumulate = [&](const std::string& name, const std::string& parameter, const Tensor& value) {
    const DType wide = nn::wide_dtype(value.dtype());
    const Tensor sum = graph.variable(VariableKind::Accumulator, name, {value.shape(), wide},
                                      Initializer::zeros(), parameter, where);
    assignments.push_back(graph.assign({sum, where}, {add({sum, where}, cast({value, where}, wide)), where}));
  };
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!gradients[i].valid()) continue;
    const std::string name = parameters[i].name();
    accumulate(name + kSuffix, name, gradients[i]);
  }
  for (const auto& [name, value] : sums) accumulate(kSums + name, "", value);
  return assignments;
}

ApplyOutputs build_apply(const Graph& accumulate, Graph& apply, const OptimizerConfig& config,
                         const std::string& weight_name, Where where) {
  Tensors parameters, gradients, accumulators;
  ApplyOutputs outputs;
  UpdateInputs inputs;
  DType widest = DType::F32;
  for (const Variable& variable : accumulate.variables()) {
    if (variable.kind != VariableKind::Accumulator) continue;
    const Type& type = accumulate.node(variable.node).outputs[0];
    const Tensor sum =
        apply.variable(variable.kind, variable.name, type, variable.init, variable.slot_of, where);
    accumulators.push_back(sum);
    if (variable.slot_of.empty()) {
      const std::string name = variable.name.substr(std::string_view(kSums).size());
      outputs.sums.emplace_back(name, sum);
      if (name == weight_name) inputs.weight = sum;
      continue;
    }
    const Variable* parameter = accumulate.find_variable(variable.slot_of);
    const Type& full = accumulate.node(parameter->node).outputs[0];
    parameters.push_back(apply.variable(parameter->kind, parameter->name, full, parameter->init, "", where));
    gradients.push_back(sum);
    if (full.dtype == DType::F64) widest = DType::F64;
  }
  TESSERA_CHECK(inputs.weight.valid(),
                "apply: no sum '{}' was accumulated ({}); pass it to build_accumulation", weight_name,
                to_string(Location(where)));
  inputs.learning_rate = apply.input("learning_rate", {}, widest, where);
  inputs.step = apply.input("step", {}, DType::I32, where);
  outputs.updates = build_updates(apply, parameters, gradients, config, inputs, where);
  const Graph::RegionScope region(apply, Region::Update);
  for (const Tensor& sum : accumulators) {
    outputs.updates.assignments.push_back(apply.assign({sum, where}, {zeros_like({sum, where}), where}));
  }
  return outputs;
}

}  // namespace tessera
