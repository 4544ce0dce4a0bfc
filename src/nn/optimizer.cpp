// The update of all parameters: gradients over the weight, global norm, clipping, the optimizer's formula,
// assignments.
#include "nn/optimizer.h"

#include <algorithm>

#include "base/check.h"
#include "tessera/nn.h"

namespace tessera {

GroupSettings settings_of(const OptimizerConfig& config, std::string_view parameter) {
  GroupSettings settings{config.weight_decay, 1, false, config.adafactor.parameter_scale};
  for (const ParameterGroup& group : config.groups) {
    if (!nn::glob_match(group.pattern, parameter)) continue;
    settings.weight_decay = group.weight_decay.value_or(settings.weight_decay);
    settings.rate = group.rate.value_or(settings.rate);
    settings.frozen = group.frozen.value_or(settings.frozen);
    settings.parameter_scale = group.parameter_scale.value_or(settings.parameter_scale);
  }
  return settings;
}

Tensors trainable_parameters(Graph& graph, const OptimizerConfig& config) {
  Tensors trainable;
  Strings names;
  for (const Variable& variable : graph.variables()) {
    if (variable.kind != VariableKind::Parameter) continue;
    names.push_back(variable.name);
    if (!settings_of(config, variable.name).frozen) trainable.emplace_back(&graph, variable.node, 0);
  }
  for (const ParameterGroup& group : config.groups) {
    const bool used = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return nn::glob_match(group.pattern, name);
    });
    const std::string near = nearest_name(group.pattern, names);
    TESSERA_CHECK(used,
                  "optimizer group '{}' matches none of the {} parameters{}; correct the pattern ('*' "
                  "matches any text)",
                  group.pattern, names.size(),
                  near.empty() ? "" : fmt::format("; the nearest is '{}'", near));
  }
  return trainable;
}

std::vector<SlotSpec> slots_of(const OptimizerConfig& config, const Shape& shape) {
  switch (config.kind) {
    case OptimizerKind::Sgd:
      return {};
    case OptimizerKind::Momentum:
      return {{"momentum", shape}};
    case OptimizerKind::Adam:
      return {{"adam_m", shape}, {"adam_v", shape}};
    case OptimizerKind::Adafactor:
      break;
  }
  std::vector<SlotSpec> slots;
  const auto [largest, second] = factored_dims(config.adafactor, shape);
  if (largest >= 0) {
    slots.push_back({"adafactor_r", shape.without(shape[static_cast<std::size_t>(largest)].name)});
    slots.push_back({"adafactor_c", shape.without(shape[static_cast<std::size_t>(second)].name)});
  } else {
    slots.push_back({"adafactor_v", shape});
  }
  if (config.adafactor.beta1 > 0) slots.push_back({"adafactor_m", shape});
  return slots;
}

namespace {

UpdateResult update_plain(const UpdateCase& item, const OptimizerConfig& config, StepScalars& scalars) {
  const Tensor& g = item.gradient;
  if (config.kind == OptimizerKind::Sgd) return {mul(g, item.rate), {}};
  if (config.kind == OptimizerKind::Momentum) {
    const Tensor v = add(scale(item.slots.at("momentum"), config.momentum), g);
    return {mul(v, item.rate), {{"momentum", v}}};
  }
  const Tensor m = add(scale(item.slots.at("adam_m"), config.beta1), scale(g, 1 - config.beta1));
  const Tensor v = add(scale(item.slots.at("adam_v"), config.beta2), scale(square(g), 1 - config.beta2));
  Tensor rate = item.rate, second = v;
  if (config.bias_correction) {
    rate = mul(rate, scalars.bias_correction(config.beta1, g.dtype()));
    second = mul(v, scalars.bias_correction(config.beta2, g.dtype()));
  }
  return {div(mul(m, rate), offset(sqrt(second), config.epsilon)), {{"adam_m", m}, {"adam_v", v}}};
}

// One parameter on its way through the update.
struct Job {
  Tensor parameter, gradient;
  std::string name;
  DType wide = DType::F32;
  std::map<std::string, Tensor> slots;  // the variables
};

class UpdateBuilder {
 public:
  UpdateBuilder(Graph& graph, const OptimizerConfig& config, const UpdateInputs& inputs, Where where)
      : graph_(graph), config_(config), scalars_(graph, config, inputs), where_(where) {}

  Updates build(const Tensors& parameters, const Tensors& gradients) {
    collect(parameters, gradients);
    const Graph::RegionScope region(graph_, Region::Update);
    scale_gradients();
    measure();
    for (Job& job : jobs_) update(job);
    return std::move(updates_);
  }

 private:
  void collect(const Tensors& parameters, const Tensors& gradients) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Tensor& p = parameters[i];
      if (!gradients[i].valid()) {
        updates_.without_gradient.push_back(p.name());
        continue;
      }
      TESSERA_CHECK(
          same_dims(p.shape(), gradients[i].shape()),
          "update: the gradient of '{}' is {} but the parameter is {} ({}); pass both lists in one order",
          p.name(), to_string(gradients[i].type()), to_string(p.type()), to_string(Location(where_)));
      Job job{p, gradients[i], p.name(), nn::wide_dtype(p.dtype()), {}};
      for (const SlotSpec& slot : slots_of(config_, p.shape())) {
        const DType dtype = slot.shape.is_scalar() ? job.wide : config_.slot_dtype.value_or(job.wide);
        job.slots[slot.name] = graph_.variable(VariableKind::Slot, job.name + "/" + slot.name,
                                               {slot.shape, dtype}, Initializer::zeros(), job.name, where_);
      }
      jobs_.push_back(std::move(job));
    }
    TESSERA_CHECK(!jobs_.empty(), "update: none of the {} parameters has a gradient ({})", parameters.size(),
                  to_string(Location(where_)));
  }

  void scale_gradients() {
    const Graph::Scope scope(graph_, "update", where_);
    for (Job& job : jobs_) {
      job.gradient = cast(job.gradient, job.wide);
      // Weighting, norm and update work on the gradient where the parameter's slots are stored: one
      // reduce-scatter serves them all.
      job.gradient = graph_.add(*find_op("identity"), {job.gradient}, {{"storage_of", job.name}}, where_)[0];
      const Tensor factor = scalars_.inverse_weight(job.wide);
      if (factor.valid()) job.gradient = mul(job.gradient, factor);
    }
  }

  void measure() {
    const Graph::Scope scope(graph_, "update", where_);
    const bool any_f64 =
        std::any_of(jobs_.begin(), jobs_.end(), [](const Job& job) { return job.wide == DType::F64; });
    const DType wide = any_f64 ? DType::F64 : DType::F32;
    Tensor squares;
    for (const Job& job : jobs_) {
      const Tensor sum = cast(reduce_sum(square(job.gradient)), wide);
      squares = squares.valid() ? add(squares, sum) : sum;
    }
    updates_.gradient_norm = sqrt(squares);
    updates_.finite = is_finite(squares);
    if (config_.clip_norm <= 0) return;
    const Tensor limit = constant(graph_, config_.clip_norm, {}, wide, where_);
    const Tensor factor = div(limit, maximum(updates_.gradient_norm, limit));
    for (Job& job : jobs_) job.gradient = mul(job.gradient, cast(factor, job.wide));
  }

  void update(Job& job) {
    const GroupSettings settings = settings_of(config_, job.name);
    const Graph::Scope scope(graph_, "update/" + job.name, where_);
    UpdateCase item{cast(job.parameter, job.wide), job.gradient, scalars_.rate(job.wide), settings, {}};
    if (settings.rate != 1) item.rate = scale(item.rate, settings.rate);
    for (const auto& [name, slot] : job.slots) item.slots[name] = cast(slot, job.wide);
    UpdateResult result = config_.kind == OptimizerKind::Adafactor ? update_adafactor(item, config_, scalars_)
                                                                   : update_plain(item, config_, scalars_);
    Tensor value = item.parameter;
    if (settings.weight_decay != 0) value = sub(value, mul(value, scale(item.rate, settings.weight_decay)));
    assign(job.parameter, sub(value, result.delta));
    for (const auto& [name, fresh] : result.slots) assign(job.slots.at(name), fresh);
  }

  void assign(const Tensor& variable, const Tensor& wide_value) {
    Tensor value = cast(wide_value, variable.dtype());
    if (value.shape() != variable.shape()) {
      Strings order;
      for (const Dim& dim : variable.shape()) order.push_back(dim.name);
      value = transpose(value, order);
    }
    if (config_.nan == NanPolicy::Skip) value = select(updates_.finite, value, variable);
    updates_.assignments.push_back(graph_.assign({variable, where_}, {value, where_}));
  }

  Graph& graph_;
  const OptimizerConfig& config_;
  StepScalars scalars_;
  Where where_;
  std::vector<Job> jobs_;
  Updates updates_;
};

}  // namespace

Updates build_updates(Graph& graph, const Tensors& parameters, const Tensors& gradients,
                      const OptimizerConfig& config, const UpdateInputs& inputs, Where where) {
  TESSERA_CHECK(parameters.size() == gradients.size(), "update: {} parameters but {} gradients ({})",
                parameters.size(), gradients.size(), to_string(Location(where)));
  TESSERA_CHECK(
      graph.scope_path().empty(),
      "update: called inside scope '{}' ({}); slots are named after their parameter, so call it outside",
      graph.scope_path(), to_string(Location(where)));
  TESSERA_CHECK(inputs.learning_rate.valid() && inputs.step.valid(),
                "update: give a learning rate and a step ({})", to_string(Location(where)));
  return UpdateBuilder(graph, config, inputs, where).build(parameters, gradients);
}

}  // namespace tessera
