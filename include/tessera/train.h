// Training, evaluation and measurement of whole models from a Config. Layer train.
//
//   Trainer trainer(load_config("demo.toml"), {.report = terminal_report()});
//   TrainResult r = trainer.run();                       // resumes, trains, evaluates, saves
//   Model model = Model::open("run");                    // the newest checkpoint, on any mesh
//   Evaluation dev = evaluate(model, *open_split(model, model.config().data.dev), {});
//
// A run folder holds: config.resolved.toml, command.txt, tokenizer.model, checkpoints/, events/,
// metrics.jsonl, cache/ (unless data.cache names another folder).
//
// Threads: use each object from one thread; the stop flag may be set from anywhere, a signal handler
// included.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/config.h"
#include "tessera/data.h"
#include "tessera/error.h"
#include "tessera/metrics.h"
#include "tessera/session.h"

namespace tessera {

// --- a model ready to run
// -------------------------------------------------------------------------------------------

struct OpenOptions {
  Strings overrides = {};       // "mesh.shape=rows:2" and so on, on top of the run's config
  std::string checkpoint = {};  // a folder of checkpoints/; empty: the newest valid one
};

// A configuration with its tokenizer and a Session that holds the parameters. Programs are made as they are
// needed, one per shape, and kept. Movable.
class Model {
 public:
  // Fresh parameters, drawn from train.seed (which is also the session's). model.vocab becomes that of the
  // tokenizer. Throws UserError on an illegal mesh or layout.
  Model(Config config, Tokenizer tokenizer, SessionOptions session = {});
  // Without a tokenizer, for measurements: model.vocab stays, tokenizer() throws.
  explicit Model(Config config, SessionOptions session = {});
  // From a run folder. Throws UserError (BadData) when there is no valid checkpoint or it belongs to another
  // model.
  static Model open(const std::string& run_folder, const OpenOptions& options = {});
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  const Config& config() const;
  const Tokenizer& tokenizer() const;
  Session& session();
  std::int64_t step() const;  // of the checkpoint; 0 for fresh parameters

  // A program kept under `key`; `build` makes its graph and returns the targets when there is none yet.
  struct Built {
    int program = -1;
    const Graph* graph = nullptr;
  };
  Built program(const std::string& key, const std::function<Tensors(Graph&)>& build);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// [data] and [optimizer] as the data layer and trainer use them.
DataSource data_source(const DataConfig& data, const SplitConfig& split, ModelKind kind);
// The batches of a split, tokenised into the cache folder. Throws UserError when the split names no files.
std::unique_ptr<Dataset> open_split(const Model& model, const SplitConfig& split);
// The tokenizer that the config names, else the run folder's, else one trained there on the training files.
Tokenizer make_tokenizer(const Config& config);

// Hash of parameters and slots that does not depend on mesh and layout; equals
// CheckpointReader::state_hash().
std::string state_hash(const Store& store);

// --- training
// -------------------------------------------------------------------------------------------------------

struct Evaluation {
  Perplexity perplexity;  // nats, tokens, words, bytes
  double accuracy = 0;    // share of tokens whose most probable one is right
  std::int64_t batches = 0;
  double seconds = 0;
  double loss() const { return perplexity.nats_per_token(); }
};

// What a trainer tells while it works.
struct TrainEvent {
  enum class Kind : std::uint8_t {
    Note,       // `text` is for people: tokenizer, data, model, resume, ...
    Step,       // after every step
    Skipped,    // a step with non-finite gradients (policy skip)
    Evaluated,  // `evaluation` of the dev data
    Saved,      // `text` is the checkpoint's path
    Finished,   // after the last step; `text` says how it ended
  };
  Kind kind = Kind::Note;
  std::string text = {};
  std::int64_t step = 0, steps = 0;  // steps done, and wanted
  double loss = 0;                   // of this step, nats per token (smoothing and z-loss included)
  double gradient_norm = 0, learning_rate = 0;
  std::int64_t tokens = 0;       // real target tokens of this step
  double tokens_per_second = 0;  // since the last log line
  double seconds = 0;            // of this step
  double seconds_left = 0;
  bool log = false;              // this step is a multiple of train.log_every, the first or the last one
  const Batch* batch = nullptr;  // Step: what was read
  Evaluation evaluation = {};
};
using TrainReport = std::function<void(const TrainEvent&)>;

// One line that is rewritten when `out` (a stdio stream's file descriptor) is a terminal, log lines
// otherwise.
TrainReport terminal_report(int out = 2);

struct TrainOptions {
  std::string command_line = {};                 // recorded in the run folder
  TrainReport report = {};                       // empty: silent
  const std::atomic<bool>* stop = nullptr;       // set: save and end after the running step
  std::string trace = {};                        // Chrome trace to write; empty: none
  std::int64_t trace_from = 3, trace_steps = 2;  // counted from the first step of this start
  bool name_nonfinite = false;                   // find the op that made the first NaN or infinity
  bool write_files = true;                       // false: no checkpoints and logs (comparisons, benchmarks)
  SessionOptions session = {};                   // seed and deadline come from the config
};

struct TrainResult {
  ExitCode code = ExitCode::Done;          // Done or Stopped
  std::int64_t first_step = 0, steps = 0;  // steps done before this start, and in all
  std::int64_t skipped = 0;
  std::vector<double> losses = {};  // of the steps of this start
  double seconds = 0;
  std::int64_t tokens = 0;
  std::string checkpoint = {};  // the last one saved by this start
};

// What one step of a trainer costs (of the program of its first batch shape).
struct StepCosts {
  std::map<std::string, std::int64_t> collectives;     // by kind
  std::map<std::string, std::int64_t> bytes_per_axis;  // payload of a rank
  std::int64_t parameter_bytes = 0, slot_bytes = 0;    // stored per rank, largest parts
  std::int64_t largest_parameter_bytes = 0;            // of the largest parameter, whole
  std::int64_t arena_bytes = 0, liveness_bound = 0;    // per rank
  double flops = 0, contraction_flops = 0;             // per rank
};

class Trainer {
 public:
  // Opens or makes the run folder, tokenizer, data and session, and resumes from the newest valid checkpoint
  // when train.resume is set. Throws UserError when the run folder belongs to another model, tokenizer or
  // data: the message lists the fields that differ.
  explicit Trainer(Config config, TrainOptions options = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Trains until train.steps steps are done or the stop flag is set. Throws Error with ExitCode::Numbers on
  // non-finite gradients (policy stop: at once, without saving; skip: beyond train.nan_budget in a row).
  TrainResult run();

  // The parts of run(), for loops of one's own. step() throws as run() does.
  TrainEvent step();
  std::int64_t steps_done() const;
  std::string save();         // returns the checkpoint's path
  Evaluation evaluate_dev();  // throws UserError without dev data

  Model& model();
  Session& session();
  const Dataset& data() const;
  StepCosts costs();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// --- evaluation
// -----------------------------------------------------------------------------------------------------

struct EvaluateOptions {
  bool shuffle_sources = false;  // translation: every target beside the source of another sentence
  std::int64_t batches = 0;      // at most so many; 0: all
};
// Exact sums over every example of the data.
Evaluation evaluate(Model& model, const Dataset& data, const EvaluateOptions& options = {});

struct ScoredText {
  double log_probability = 0;  // natural logarithm, of all tokens and the end
  std::int64_t tokens = 0;     // end included
};
// One result per example, in order; the text of a language model is the source. Throws UserError (BadData)
// naming the line (from 1) when a text does not fit data.max_source_length and data.max_target_length.
std::vector<ScoredText> score(Model& model, const std::vector<TextExample>& examples);

// --- plans and measurements without training
// --------------------------------------------------------------------------

struct LoweredStep {
  Program program;
  MemoryPlan plan;
  ParameterCount parameters;
  BatchShape shape;
};
// The program of one training step (forward, backward, update) for the config's mesh, as Trainer runs it,
// with the largest batch shape; no tensors are allocated. With micro-batches: the accumulating program.
LoweredStep lower_training_step(const Config& config);

struct BenchOptions {
  std::int64_t steps = 20, warmup = 3;
  std::function<void(const std::string&)> note = {};
};
struct BenchReport {
  double step_seconds = 0;       // median
  double contraction_flops = 0;  // of a step, per rank
  // The same contractions alone by oneDNN on dense operands, interleaved with the steps, and inside the steps
  // by the program's own kernels: per rank, medians.
  double contraction_seconds = 0, inside_contraction_seconds = 0;
  double share = 0;              // contraction_seconds / step_seconds, median of the steps
  double tokens_per_second = 0;  // real target tokens
  std::int64_t arena_bytes = 0, liveness_bound = 0;  // per rank
  std::int64_t rss_growth_bytes = 0;                 // of the process from before to after the measured steps
  std::int64_t peak_resident_bytes = 0;  // of the process, the operands of the bare products included
  std::string shape;                     // of the batch
  std::vector<double> seconds = {};      // of each measured step
  // The step over its bound, median: contractions alone, and 24 bytes a parameter (gradient, parameter and
  // two slots read and written), the saved activations twice and the weights twice at the rate of plain
  // copies.
  double over_bound = 0;
  double first_loss = 0;          // nats per token of the first step, before any update
  double first_step_seconds = 0;  // from the beginning to the end of the first step: model, data, compilation
};
// Trains on the config's data (or on made-up tokens when data.train names no files) and measures whole steps:
// data, forward, backward, update.
BenchReport bench(const Config& config, const BenchOptions& options = {});
std::string to_string(const BenchReport& report);
std::string to_json(const BenchReport& report);  // an object with the names above

struct ProfileOptions {
  std::int64_t steps = 20, warmup = 3;
  std::string trace = {};  // Chrome / Perfetto trace of two steps to write; empty: none
  std::function<void(const std::string&)> note = {};
};
struct ProfileLine {
  std::string name = {};
  double seconds = 0;         // of a step, mean over the ranks
  double floor_seconds = -1;  // what this machine needs for it at least; below 0: nothing to compare with
};
struct ProfiledStep {
  std::string op = {}, name = {}, where = {};  // of the program's step
  std::string line = {};                       // where it is booked
  double seconds = 0, floor_seconds = 0;       // of a training step
};
struct ProfileReport {
  std::string shape = {};  // of the batch
  std::int64_t steps = 0;  // traced
  // Of a whole step as its caller sees it: batch, feeds, programs, what lies between them. Means of the
  // middle half of the traced steps, as all times here.
  double step_seconds = 0;
  // They add up to step_seconds. A line for each StepClass, then "waiting" (for other ranks), "host" (outside
  // the ranks' steps) and "other" (in the ranks' loops, but in no step).
  std::vector<ProfileLine> lines = {};
  std::vector<ProfiledStep> slowest = {};  // most time first
  double tracing_ratio = 1;                // time of a step with tracing over one without, median
  double flops_per_second = 0;             // of the contractions alone, a rank's
  double bytes_per_second = 0;             // read and written by copies, a rank's
};
// Where the time of whole training steps goes, beside floors measured in the same run: contractions alone by
// oneDNN, bytes of inputs and outputs at the rate of plain copies. Data as for bench().
ProfileReport profile(const Config& config, const ProfileOptions& options = {});
std::string to_string(const ProfileReport& report);

// What a pass brings. Per rank; collectives and bytes are means over the steps, whose shapes differ.
struct PassReport {
  std::string pass = {};    // that is left out; "": none is
  double step_seconds = 0;  // median
  double ratio = 1;         // step without the pass over step with it, median
  std::int64_t arena_bytes = 0;
  double collectives = 0, collective_bytes = 0;  // of a step
};
// Steps with all passes and with each of the named ones left out alone, in turns on the same batches. The
// first report is of all passes. Throws UserError on an unknown name.
std::vector<PassReport> bench_without(const Config& config, const Strings& passes,
                                      const BenchOptions& options = {});
std::string to_string(const std::vector<PassReport>& reports);
std::string to_json(const std::vector<PassReport>& reports);

}  // namespace tessera
