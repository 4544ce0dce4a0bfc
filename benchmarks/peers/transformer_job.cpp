// Transformers of a configuration file in the measuring house.
#include <fmt/format.h>

#include <memory>

#include "peer_job.h"

namespace tessera::peers {
namespace {

Config config_of(const Job& job) {
  const std::string layout = job.mode == "data"    ? "batch:x"
                             : job.mode == "model" ? "heads:x;d_ff:x;vocab:x"
                                                   : "";
  Strings changes = job.set;
  changes.push_back(fmt::format("model.dtype=\"{}\"", job.dtype));
  changes.push_back(fmt::format("mesh.shape=\"{}\"", job.mesh()));
  changes.push_back(fmt::format("mesh.layout=\"{}\"", layout));
  return load_config(job.config, changes);
}

std::shared_ptr<Trainer> trainer_of(const Job& job) {
  TrainOptions options;
  options.write_files = false;
  return std::make_shared<Trainer>(config_of(job), options);
}

// What torch_peer.py computes, which knows the most kinds of models: say so before first losses differ. The
// scripts of the other systems skip what they lack (peer.need_plain).
void check_comparable(const Config& config) {
  const TransformerConfig& m = config.model;
  const bool relative = m.positions == Positions::Relative;
  const bool model = m.pre_norm && m.norm == nn::NormKind::Rms && m.z_loss == 0 && m.shared_embedding &&
                     !m.fold_attention_scale && !m.dropout_shared_over_length &&
                     !(relative && (m.kind != ModelKind::LanguageModel || !m.relative_shared));
  const OptimizerConfig& o = config.optimizer.config;
  const bool adam =
      o.kind == OptimizerKind::Adam && o.bias_correction && o.weight_decay == 0 && o.groups.empty();
  const bool whole =
      config.train.micro_batches == 1 && (m.kind != ModelKind::LanguageModel || !config.data.pack);
  if (model && adam && whole) return;
  throw UserError(
      "the scripts of the other systems compute pre-norm Transformers with RMS norm, shared embeddings, in "
      "language models also one shared table of relative positions, Adam with bias correction, and neither "
      "z-loss, masks of dropout shared over the length, weight decay, micro-batches nor packed rows; change "
      "the configuration or the scripts");
}

nlohmann::json sizes_of(const TransformerConfig& m) {
  return {{"d_model", m.d_model},
          {"heads", m.heads},
          {"d_kv", m.d_kv},
          {"d_ff", m.d_ff},
          {"vocab", m.vocab},
          {"max_length", m.max_length},
          {"positions", to_string(m.positions)},
          {"relative_buckets", m.relative_buckets},
          {"relative_max_distance", m.relative_max_distance},
          {"activation", m.activation},
          {"dropout", m.dropout},
          {"norm_epsilon", m.norm_epsilon},
          {"label_smoothing", m.label_smoothing},
          {"scale_embedding", m.scale_embedding}};
}

// Sources and targets of batches 0, 1, ... side by side (rows are not packed: segments and positions say
// nothing); returns the mean number of real target tokens.
double write_batches(const Job& job, const Dataset& data) {
  std::vector<Batch> batches;
  for (std::int64_t i = 0; i < job.batches; ++i) batches.push_back(data.batch(i));
  std::vector<SafetensorsTensor> tensors;
  for (const auto& [name, array] : batches.front().inputs) {
    if (name != "source" && name != "target") continue;
    std::vector<std::int64_t> shape{job.batches};
    for (const Dim& dim : array.type.shape) shape.push_back(dim.size);
    tensors.push_back({name, array.type.dtype, shape});
  }
  SafetensorsWriter file(job.file("batches.safetensors"), tensors);
  double tokens = 0;
  for (std::int64_t i = 0; i < job.batches; ++i) {
    const Batch& batch = batches[static_cast<std::size_t>(i)];
    tokens += static_cast<double>(batch.tokens);
    for (const SafetensorsTensor& tensor : tensors) {
      Box box{std::vector<std::int64_t>(tensor.shape.size(), 0), tensor.shape};
      box.start[0] = i;
      box.size[0] = 1;
      file.write(tensor.name, box, batch.inputs.at(tensor.name).data.data());
    }
  }
  file.close();
  return tokens / static_cast<double>(job.batches);
}

}  // namespace

StepFunction open_transformer(const Job& job) {
  return [trainer = trainer_of(job)] { return trainer->step().loss; };
}

void export_transformer(const Job& job) {
  const std::shared_ptr<Trainer> trainer = trainer_of(job);
  const Config& config = trainer->model().config();
  check_comparable(config);
  const OptimizerConfig& o = config.optimizer.config;
  std::vector<double> rates;
  for (std::int64_t step = 0; step < config.train.steps; ++step)
    rates.push_back(
        config.optimizer.schedule.at(static_cast<double>(step), static_cast<double>(config.train.steps)));
  write_weights(job, trainer->session().store());
  const double tokens = write_batches(job, trainer->data());
  write_meta(job, {{"sizes", sizes_of(config.model)},
                   {"optimizer",
                    {{"kind", "adam"},
                     {"beta1", o.beta1},
                     {"beta2", o.beta2},
                     {"epsilon", o.epsilon},
                     {"clip_norm", o.clip_norm}}},
                   {"rates", rates},
                   {"batches", job.batches},
                   {"tokens", tokens}});
}

Program transformer_program(const Job& job) {
  return lower_training_step(config_of(job)).program;
}

}  // namespace tessera::peers
