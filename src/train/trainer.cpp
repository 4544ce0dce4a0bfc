// The training loop: batches, steps, evaluations, checkpoints, logs.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <set>

#include "base/check.h"
#include "train/model_impl.h"
#include "train/run_log.h"
#include "train/run_state.h"
#include "train/step_programs.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

[[noreturn]] void fail_numbers(const std::string& text) {
  throw Error(text, ExitCode::Numbers);
}

}  // namespace

struct Trainer::Impl {
  Impl(Config c, TrainOptions o);

  void resume();
  void open_files();
  TrainEvent step();
  void judge(const StepOutcome& outcome, const Batch& batch, double rate);
  void measure(TrainEvent& event);
  void trace();
  void end_trace();
  std::string save();
  Evaluation evaluate_dev();
  TrainResult run();
  void step_in_run(TrainResult& result);
  bool due(std::int64_t every) const { return every > 0 && state.step % every == 0; }
  bool stopped() const { return options.stop != nullptr && options.stop->load(); }
  void emit(TrainEvent event) const;
  void note(const std::string& text) const { emit({.kind = TrainEvent::Kind::Note, .text = text}); }

  TrainOptions options;
  std::optional<RunFolder> folder;
  Model model;
  std::unique_ptr<Dataset> data, dev;
  std::optional<StepPrograms> programs;
  std::optional<CheckpointDir> checkpoints;
  std::optional<RunLog> log;
  RunState state;
  std::int64_t first_step = 0;
  std::string saved;  // path of the newest checkpoint of this start
  std::int64_t saved_step = -1;
  bool tracing = false;
  // Since the last log line.
  Clock::time_point mark = Clock::now();
  std::int64_t marked_tokens = 0;
  double rate_per_second = 0, step_seconds = 0;
};

Trainer::Impl::Impl(Config c, TrainOptions o)
    : options(std::move(o)), model(c, make_tokenizer(c), options.session) {
  const Config& config = model.config();
  folder.emplace(config.train.output);
  data = open_split(model, config.data.train);
  TESSERA_CHECK(!data->shapes().empty(), "the training data hold no usable example (too long: {}, empty: {})",
                data->stats().too_long, data->stats().empty);
  if (!config.data.dev.files.empty()) dev = open_split(model, config.data.dev);
  const bool named = options.name_nonfinite && config.optimizer.config.nan == NanPolicy::Stop;
  programs.emplace(model, *data, named);
  state.data = data->fingerprint();
  state.tokenizer = model.tokenizer().hash();
  state.config = flat_config(config);
  const DataStats& stats = data->stats();
  note(fmt::format(
      "data: {} training examples, {} target tokens ({} too long, {} empty); {} batch shapes, {:.0f} steps "
      "an epoch",
      stats.examples, stats.target_tokens, stats.too_long, stats.empty, data->shapes().size(),
      data->steps_per_epoch()));
  if (options.write_files) {
    make_folders(folder->path());
    checkpoints.emplace(folder->checkpoints(),
                        CheckpointOptions{.keep_last = static_cast<int>(config.train.keep)});
  }
  resume();
  if (options.write_files) open_files();
}

void Trainer::Impl::resume() {
  // All variables come to life with the first program.
  programs->program(data->batch(0).shape);
  model.session().reset_stats();
  if (!options.write_files) return;
  const Config& config = model.config();
  const bool old = !list_checkpoints(folder->checkpoints()).empty();
  if (!config.train.resume) {
    TESSERA_CHECK(
        !old, "train.resume = false, but '{}' holds checkpoints; choose another train.output or remove them",
        folder->checkpoints());
    return;
  }
  const NewestCheckpoint newest = newest_valid(folder->checkpoints());
  if (newest.path.empty()) {
    if (old)
      throw UserError(fmt::format("none of the checkpoints in '{}' is whole; remove them to start anew",
                                  folder->checkpoints()),
                      ExitCode::BadData);
    return;
  }
  const CheckpointReader reader(newest.path);
  const RunState there = parse_run_state(reader.state(), newest.path);
  refuse_differences(run_differences(there, config, model.tokenizer(), state.data), newest.path,
                     "Use the settings of the run, or another train.output for a new one");
  load_variables(reader, model.session().store(), true);
  const std::map<std::string, std::string> now = std::move(state.config);
  state = there;
  state.config = now;
  first_step = saved_step = state.step;
  saved = newest.path;
  note(fmt::format("resumed at step {} from {}", state.step, newest.path));
}

void Trainer::Impl::open_files() {
  folder->write_tokenizer(model.tokenizer());
  folder->write_config(model.config());
  folder->add_command(options.command_line);
  log.emplace(*folder);
  log->config(model.config());
}

void Trainer::Impl::emit(TrainEvent event) const {
  if (!options.report) return;
  event.steps = model.config().train.steps;
  if (event.kind != TrainEvent::Kind::Step) event.step = state.step;
  options.report(event);
}

TrainEvent Trainer::Impl::step() {
  const Config& config = model.config();
  trace();
  const Clock::time_point begin = Clock::now();
  const Batch batch = data->batch(state.step);
  const double rate =
      config.optimizer.schedule.at(static_cast<double>(state.step), static_cast<double>(config.train.steps));
  const StepOutcome outcome = programs->run(batch, rate, state.step);
  judge(outcome, batch, rate);
  ++state.step;
  state.tokens += batch.tokens;
  TrainEvent event{.kind = TrainEvent::Kind::Step,
                   .step = state.step,
                   .loss = outcome.loss_sum / std::max(1.0, outcome.weight),
                   .gradient_norm = outcome.gradient_norm,
                   .learning_rate = rate,
                   .tokens = batch.tokens,
                   .seconds = seconds_since(begin),
                   .batch = &batch};
  state.seconds += event.seconds;
  measure(event);
  if (event.log && log) {
    log->step(event, static_cast<double>(state.step) / std::max(1.0, data->steps_per_epoch()));
  }
  emit(event);
  event.batch = nullptr;
  return event;
}

// Decides what a step that is not finite means.
void Trainer::Impl::judge(const StepOutcome& outcome, const Batch& batch, double rate) {
  const Config& config = model.config();
  const bool skips = config.optimizer.config.nan == NanPolicy::Skip;
  if (outcome.finite && (skips || std::isfinite(outcome.loss_sum))) {
    state.skipped_in_a_row = 0;
    return;
  }
  std::string what = fmt::format("step {}: the gradients are not finite (loss {}, norm {})", state.step + 1,
                                 outcome.loss_sum / std::max(1.0, outcome.weight), outcome.gradient_norm);
  if (options.name_nonfinite) {
    const std::string op = programs->first_nonfinite(batch, rate, state.step);
    if (!op.empty()) what += fmt::format("; the first NaN or infinity comes from {}", op);
  }
  if (!skips) {
    fail_numbers(fmt::format("{}; stopped without saving; {}", what,
                             saved.empty() ? std::string("there is no checkpoint yet")
                                           : fmt::format("the newest checkpoint is {}", saved)));
  }
  ++state.skipped;
  ++state.skipped_in_a_row;
  emit({.kind = TrainEvent::Kind::Skipped, .text = what + "; parameters stay as they are"});
  if (state.skipped_in_a_row > config.train.nan_budget) {
    fail_numbers(fmt::format("{}; {} steps in a row were skipped and train.nan_budget is {}", what,
                             state.skipped_in_a_row, config.train.nan_budget));
  }
}

// Speed and time left; whether this step goes into the log.
void Trainer::Impl::measure(TrainEvent& event) {
  const Config& config = model.config();
  marked_tokens += event.tokens;
  event.log = due(config.train.log_every) || state.step == first_step + 1 || state.step >= config.train.steps;
  const double elapsed = seconds_since(mark);
  if (elapsed > 0) rate_per_second = static_cast<double>(marked_tokens) / elapsed;
  // The first step compiles programs: it says little about those that follow.
  step_seconds = step_seconds == 0 || state.step <= first_step + 2
                     ? event.seconds
                     : 0.95 * step_seconds + 0.05 * event.seconds;
  event.tokens_per_second = rate_per_second;
  event.seconds_left =
      step_seconds * static_cast<double>(std::max<std::int64_t>(0, config.train.steps - state.step));
  if (!event.log) return;
  mark = Clock::now();
  marked_tokens = 0;
}

// Starts and ends the trace of the wanted steps.
void Trainer::Impl::trace() {
  const std::int64_t at = state.step - first_step;
  if (!options.trace.empty() && !tracing && at == options.trace_from) {
    model.session().start_trace();
    tracing = true;
  } else if (at == options.trace_from + options.trace_steps) {
    end_trace();
  }
}

void Trainer::Impl::end_trace() {
  if (!tracing) return;
  tracing = false;
  model.session().stop_trace();
  model.session().write_trace(options.trace);
}

std::string Trainer::Impl::save() {
  TESSERA_CHECK(checkpoints.has_value(), "save: this trainer writes no files (TrainOptions::write_files)");
  if (saved_step == state.step) return saved;
  saved = save_variables(*checkpoints, model.session(), model.session().store(), state);
  saved_step = state.step;
  emit({.kind = TrainEvent::Kind::Saved, .text = saved});
  return saved;
}

Evaluation Trainer::Impl::evaluate_dev() {
  TESSERA_CHECK(dev != nullptr, "there are no dev data; set data.dev.files");
  TrainEvent event{.kind = TrainEvent::Kind::Evaluated, .step = state.step};
  event.evaluation = evaluate(model, *dev, {.batches = model.config().train.eval_batches});
  if (log) log->evaluation(event);
  emit(event);
  mark = Clock::now();
  marked_tokens = 0;
  return event.evaluation;
}

void Trainer::Impl::step_in_run(TrainResult& result) {
  const TrainConfig& train = model.config().train;
  const TrainEvent event = step();
  result.losses.push_back(event.loss);
  result.tokens += event.tokens;
  result.seconds += event.seconds;
  if (dev != nullptr && (due(train.eval_every) || state.step >= train.steps)) evaluate_dev();
  if (checkpoints && due(train.checkpoint_every)) save();
}

TrainResult Trainer::Impl::run() {
  TrainResult result{.first_step = state.step};
  mark = Clock::now();
  while (state.step < model.config().train.steps && !stopped()) step_in_run(result);
  end_trace();
  if (checkpoints) save();
  const bool done = state.step >= model.config().train.steps;
  result.code = done ? ExitCode::Done : ExitCode::Stopped;
  result.steps = state.step;
  result.skipped = state.skipped;
  result.checkpoint = saved;
  emit({.kind = TrainEvent::Kind::Finished,
        .text =
            done ? fmt::format("done: {} steps", state.step)
                 : fmt::format("stopped on request at step {}; run the same command to go on", state.step)});
  return result;
}

Trainer::Trainer(Config config, TrainOptions options)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(options))) {}
Trainer::~Trainer() = default;

TrainResult Trainer::run() {
  return impl_->run();
}
TrainEvent Trainer::step() {
  return impl_->step();
}
std::int64_t Trainer::steps_done() const {
  return impl_->state.step;
}
std::string Trainer::save() {
  return impl_->save();
}
Evaluation Trainer::evaluate_dev() {
  return impl_->evaluate_dev();
}
Model& Trainer::model() {
  return impl_->model;
}
Session& Trainer::session() {
  return impl_->model.session();
}
const Dataset& Trainer::data() const {
  return *impl_->data;
}

StepCosts Trainer::costs() {
  Session& session = impl_->model.session();
  StepCosts costs;
  std::set<std::string> stored;
  for (const int id : impl_->programs->programs(0)) {
    const ProgramStats part = stats(session.program(id));
    for (const auto& [kind, count] : part.count) costs.collectives[kind] += count;
    for (const auto& [axis, bytes] : part.bytes_per_axis) costs.bytes_per_axis[axis] += bytes;
    costs.flops += part.flops;
    costs.contraction_flops += part.contraction_flops;
    costs.arena_bytes = std::max(costs.arena_bytes, session.plan(id).arena_bytes);
    costs.liveness_bound = std::max(costs.liveness_bound, session.plan(id).liveness_bound);
    for (const ProgramValue& value : session.program(id).values) {
      if (value.kind != ProgramValue::Kind::Variable || !stored.insert(value.variable).second) continue;
      const std::int64_t bytes = largest_elements(session.mesh(), value.type.shape, value.placement) *
                                 static_cast<std::int64_t>(size_of(value.type.dtype));
      const VariableKind kind = session.store().kind(value.variable);
      if (kind == VariableKind::Slot) costs.slot_bytes += bytes;
      if (kind != VariableKind::Parameter) continue;
      costs.parameter_bytes += bytes;
      costs.largest_parameter_bytes = std::max(costs.largest_parameter_bytes, value.type.bytes());
    }
  }
  return costs;
}

}  // namespace tessera
