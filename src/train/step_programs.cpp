// Compiles and runs the programs of training steps.
#include "train/step_programs.h"

#include <cstring>

#include "base/check.h"

namespace tessera {
namespace {

// Writes a scalar feed; false when `name` is none.
bool fill_scalar(const std::string& name, double learning_rate, std::int64_t step, DType wide, void* out) {
  if (name == "learning_rate") {
    const auto narrow = static_cast<float>(learning_rate);
    if (wide == DType::F64) std::memcpy(out, &learning_rate, sizeof learning_rate);
    if (wide == DType::F32) std::memcpy(out, &narrow, sizeof narrow);
    return true;
  }
  if (name != "step") return false;
  const auto count = static_cast<std::int32_t>(step);
  std::memcpy(out, &count, sizeof count);
  return true;
}

}  // namespace

StepPrograms::StepPrograms(Model& model, const Dataset& data, bool keep_parameters)
    : model_(model), data_(data), config_(model.config()) {
  if (keep_parameters) config_.optimizer.config.nan = NanPolicy::Skip;
}

const StepPrograms::Plan& StepPrograms::plan(std::size_t shape) {
  const auto known = plans_.find(shape);
  if (known != plans_.end()) return known->second;
  const BatchShape& sizes = data_.shapes().at(shape);
  const ModelShape model_sizes = model_shape(config_, sizes);
  Plan plan;
  const auto key = [&](const ModelShape& s) {
    return fmt::format("train/{}/{}/{}", s.batch, s.source_length, s.target_length);
  };
  if (config_.train.micro_batches == 1) {
    const Model::Built built = model_.program(key(model_sizes), [&](Graph& graph) {
      return build_training_step(graph, config_, model_sizes, false);
    });
    plan.parts.push_back({built.program, {0, sizes.sentences}});
    return plans_.emplace(shape, std::move(plan)).first->second;
  }
  const std::int64_t parts = batch_parts(model_.session().mesh(), model_.session().layout());
  const Graph* accumulate = nullptr;
  for (const Interval& rows : micro_batches(sizes.sentences, config_.train.micro_batches, parts)) {
    ModelShape part = model_sizes;
    part.batch = rows.size();
    const Model::Built built = model_.program(
        key(part), [&](Graph& graph) { return build_training_step(graph, config_, part, true); });
    plan.parts.push_back({built.program, rows});
    accumulate = built.graph;
  }
  plan.apply =
      model_
          .program("train/apply", [&](Graph& graph) { return build_apply_step(*accumulate, graph, config_); })
          .program;
  return plans_.emplace(shape, std::move(plan)).first->second;
}

int StepPrograms::program(std::size_t shape) {
  const Plan& known = plan(shape);
  const Part* largest = &known.parts.front();
  for (const Part& part : known.parts) {
    if (part.rows.size() > largest->rows.size()) largest = &part;
  }
  return largest->program;
}

std::vector<int> StepPrograms::programs(std::size_t shape) {
  const Plan& known = plan(shape);
  std::vector<int> ids;
  for (const Part& part : known.parts) ids.push_back(part.program);
  if (known.apply >= 0) ids.push_back(known.apply);
  return ids;
}

FillFunction StepPrograms::feeds(const Batch& batch, std::int64_t first_row, double learning_rate,
                                 std::int64_t step) const {
  const DType wide = nn::wide_dtype(config_.model.dtype);
  return [&batch, first_row, learning_rate, step, wide](const std::string& name, const Box& box, void* out) {
    if (fill_scalar(name, learning_rate, step, wide, out)) return;
    Box moved = box;
    moved.start[0] += first_row;
    batch.fill(name, moved, out);
  };
}

RunOptions StepPrograms::options(const Batch& batch, const Interval& rows, std::int64_t step) {
  RunOptions options{.step = step, .windows = {}};
  const std::int64_t full = batch.inputs.at("target").type.shape[0].size;
  if (rows.size() != full) options.windows["batch"] = {rows.begin, full};
  return options;
}

StepOutcome StepPrograms::outcome(const Results& results) {
  return {results.scalar(kLossSum), results.scalar(kWeight), results.scalar(kGradientNorm),
          results.scalar(kFinite) != 0};
}

StepOutcome StepPrograms::run(const Batch& batch, double learning_rate, std::int64_t step) {
  const Plan& known = plan(batch.shape);
  Session& session = model_.session();
  Results results;
  for (const Part& part : known.parts) {
    results = session.run(part.program, feeds(batch, part.rows.begin, learning_rate, step),
                          options(batch, part.rows, step));
  }
  if (known.apply >= 0) {
    results = session.run(known.apply, feeds(batch, 0, learning_rate, step),
                          RunOptions{.step = step, .windows = {}});
  }
  return outcome(results);
}

std::string StepPrograms::first_nonfinite(const Batch& batch, double learning_rate, std::int64_t step) {
  for (const Part& part : plan(batch.shape).parts) {
    const std::string found = model_.session().first_nonfinite(
        part.program, feeds(batch, part.rows.begin, learning_rate, step), options(batch, part.rows, step));
    if (!found.empty()) return found;
  }
  return "";
}

}  // namespace tessera
