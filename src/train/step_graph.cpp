// Builds the graphs of a training step from the configuration.
#include "train/step_graph.h"

#include "tessera/grad.h"

namespace tessera {
namespace {

constexpr const char* kWeightSum = "weight";
constexpr const char* kLossTotal = "loss";

Tensors fetches_first(const Tensor& loss, const Tensor& weight, const Updates& updates) {
  Tensors targets{loss, weight, updates.gradient_norm, updates.finite};
  targets.insert(targets.end(), updates.assignments.begin(), updates.assignments.end());
  return targets;
}

}  // namespace

ModelShape model_shape(const Config& config, const BatchShape& shape) {
  const bool lm = config.model.kind == ModelKind::LanguageModel;
  return {.batch = shape.sentences,
          .source_length = shape.source_length,
          .target_length = shape.target_length,
          .packed = lm && config.data.pack};
}

Tensors build_training_step(Graph& graph, const Config& config, ModelShape shape, bool accumulate) {
  if (config.model.kind == ModelKind::LanguageModel) shape.source_length = 0;
  const TransformerOutputs model = build_transformer_loss(graph, config.model, shape, ModelMode::Train);
  const Tensors parameters = trainable_parameters(graph, config.optimizer.config);
  const Tensors grads = gradients({model.loss.sum}, parameters);
  if (accumulate) {
    return build_accumulation(graph, parameters, grads,
                              {{kLossTotal, model.loss.sum}, {kWeightSum, model.loss.weight}});
  }
  const DType wide = nn::wide_dtype(config.model.dtype);
  const UpdateInputs inputs{graph.input("learning_rate", {}, wide), graph.input("step", {}, DType::I32),
                            model.loss.weight};
  return fetches_first(model.loss.sum, model.loss.weight,
                       build_updates(graph, parameters, grads, config.optimizer.config, inputs));
}

Tensors build_apply_step(const Graph& accumulate, Graph& apply, const Config& config) {
  const ApplyOutputs outputs = build_apply(accumulate, apply, config.optimizer.config, kWeightSum);
  Tensor loss, weight;
  for (const auto& [name, value] : outputs.sums) (name == kLossTotal ? loss : weight) = value;
  return fetches_first(loss, weight, outputs.updates);
}

std::vector<Interval> micro_batches(std::int64_t batch, std::int64_t count, std::int64_t parts) {
  std::vector<Interval> result;
  for (std::int64_t i = 0; i < count; ++i) {
    const Interval part{cut_at(batch, parts, count, i), cut_at(batch, parts, count, i + 1)};
    if (part.size() > 0) result.push_back(part);
  }
  return result;
}

std::int64_t batch_parts(const Mesh& mesh, const Layout& layout) {
  std::int64_t parts = 1;
  const Rule* rule = layout.find("batch");
  if (rule == nullptr) return parts;
  for (const std::string& name : rule->axes) {
    const int axis = mesh.find(name);
    if (axis >= 0) parts *= mesh.axis_size(axis);
  }
  return parts;
}

}  // namespace tessera
