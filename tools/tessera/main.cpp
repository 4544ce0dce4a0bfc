// The command: reads the command line, runs one sub-command, and turns errors into one message and an exit
// code.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <new>

#include "command.h"
#include "tessera/error.h"
#include "tessera/graph.h"

namespace tessera::command {
namespace {

// CLI11's own checks print the largest double as the upper end.
CLI::Validator at_least(std::int64_t least) {
  auto check = [least](const std::string& text) {
    std::int64_t value = 0;
    bool good = CLI::detail::lexical_cast(text, value) && value >= least;
    return good ? std::string() : fmt::format("'{}' is no whole number of {} or more", text, least);
  };
  return {check, "", ""};
}

// CLI11 says "A subcommand is required" when a command is misspelt.
void check_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  if (std::find(names.begin(), names.end(), argv[1]) != names.end()) return;
  std::string nearest = nearest_name(argv[1], names);
  throw UserError(fmt::format(
      "there is no command '{}'; {}", argv[1],
      nearest.empty() ? "`tessera --help` lists them" : fmt::format("did you mean '{}'?", nearest)));
}

void add_overrides(CLI::App& app, Common& common) {
  app.add_option("--mesh", common.mesh, "the mesh, such as rows:2;cols:2 (quote it)");
  app.add_option("--layout", common.layout,
                 "the layout, such as batch:rows;heads:cols;d_ff:cols, or dp, mp, dp_mp, fsdp, none");
  app.add_option("--memory", common.memory,
                 "what variables and arenas may take, such as 900MiB; values are computed again to keep it");
  app.add_option("--dtype", common.dtype, "type of activations: f32, bf16 or f64");
  app.add_option("--seed", common.seed, "seed of initial values, dropout, data order and sampling")
      ->check(at_least(0));
  app.add_option("--set", common.set,
                 "override a key of the configuration: section.key=value; repeat at will")
      ->allow_extra_args(false);
}

void add_config(CLI::App& app, Common& common) {
  app.add_option("config", common.source, "a configuration file (configs/*.toml), or a run folder");
  app.add_option("--preset", common.preset, "a named model instead of a file; `tessera presets` lists them");
  add_overrides(app, common);
}

void add_run(CLI::App& app, Common& common, std::string& checkpoint) {
  app.add_option("run", common.source, "a run folder that `tessera train` made")->required();
  app.add_option("--checkpoint", checkpoint, "a folder of its checkpoints/ (default: the newest valid one)");
  add_overrides(app, common);
}

void add_decode(CLI::App& app, Decode& options) {
  add_run(app, options.common, options.checkpoint);
  app.add_option("--input", options.input, "file to read (default: standard input)");
  app.add_option("--output", options.output, "file to write (default: standard output)");
}

void add_method(CLI::App& app, Decode& options) {
  app.add_option("--method", options.method, "greedy, sample or beam (default: the configuration's)");
  app.add_option("--beam", options.beam, "beam size; implies --method beam when above 1");
  app.add_option("--length-penalty", options.length_penalty,
                 "beam: score = log p / ((5 + length) / 6)^PENALTY");
  app.add_option("--temperature", options.temperature, "sample: divides the logits");
  app.add_option("--top-k", options.top_k, "sample: only the k most probable tokens");
  app.add_option("--top-p", options.top_p,
                 "sample: only the most probable tokens that hold this probability together");
  app.add_option("--max-length", options.max_length, "tokens of an output, at most");
  app.add_flag("--scores", options.scores, "print SCORE<TAB>TEXT");
}

struct Commands {
  Train train;
  Eval eval;
  Decode translate, generate, score;
  Explain explain;
  TokenizerCommand tokenizer;
  Bench bench;
  Profile profile;
  Compare compare;
  bool presets_json = false;
  int result = 0;
};

void add_training(CLI::App& app, Commands& c) {
  CLI::App* train = app.add_subcommand(
      "train", "Train a model; resumes when the run folder holds a checkpoint. Ctrl-C saves and stops.");
  add_config(*train, c.train.common);
  train->add_option("--output", c.train.output,
                    "the run folder (default: train.output of the configuration)");
  train->add_option("--steps", c.train.steps, "steps in all (default: train.steps)")->check(at_least(0));
  train->add_flag("--fresh", c.train.fresh, "do not resume: start anew");
  train->add_option("--trace", c.train.trace,
                    "write a Chrome trace of two steps to this file (open it in ui.perfetto.dev)");
  train->add_flag("--name-nonfinite", c.train.name_nonfinite,
                  "when a step is not finite, find the first op that is not");
  train->footer(
      "Example:\n  tessera train configs/tiny.toml --mesh 'rows:2' --layout 'batch:rows' --output runs/tiny");
  train->callback([&c] { c.result = command::train(c.train); });
}

void add_measuring(CLI::App& app, Commands& c) {
  CLI::App* bench = app.add_subcommand(
      "bench", "Measure whole training steps against the rate of their bare contractions.");
  add_config(*bench, c.bench.common);
  bench->add_option("--steps", c.bench.steps, "measured steps")->capture_default_str()->check(at_least(1));
  bench
      ->add_option("--without", c.bench.without,
                   "what a pass brings: steps with and without it, in turns; repeat, or all for each in turn")
      ->allow_extra_args(false);
  bench->add_flag("--json", c.bench.json, "print JSON");
  bench->callback([&c] { c.result = command::bench(c.bench); });

  CLI::App* profile = app.add_subcommand(
      "profile", "Explain the time of a training step: a table beside the machine's floors, and a timeline.");
  add_config(*profile, c.profile.common);
  profile->add_option("--steps", c.profile.steps, "measured steps")
      ->capture_default_str()
      ->check(at_least(1));
  profile
      ->add_option("--trace", c.profile.trace,
                   "where the timeline of two steps goes (open it in ui.perfetto.dev)")
      ->capture_default_str();
  profile->footer("Example:\n  tessera profile --preset demo --mesh 'rows:2' --layout 'batch:rows'");
  profile->callback([&c] { c.result = command::profile(c.profile); });

  CLI::App* compare = app.add_subcommand(
      "compare", "Run the same training steps under several layouts and compare losses, traffic and memory.");
  add_config(*compare, c.compare.common);
  compare
      ->add_option("--row", c.compare.rows,
                   "MESH|LAYOUT[|section.key=value...]; repeat; the first is the reference")
      ->allow_extra_args(false);
  compare->add_option("--steps", c.compare.steps, "training steps a row")
      ->capture_default_str()
      ->check(at_least(1));
  compare->add_flag("--json", c.compare.json, "print JSON, check nothing");
  compare->footer(
      "Example:\n  tessera compare configs/tiny.toml --row '|' --row 'rows:2|batch:rows' --row "
      "'rows:2;cols:2|batch:rows;heads:cols'");
  compare->callback([&c] { c.result = command::compare(c.compare); });
}

void add_use(CLI::App& app, Commands& c) {
  CLI::App* eval = app.add_subcommand("eval", "Loss, perplexity and BLEU of a trained model on its data.");
  add_run(*eval, c.eval.common, c.eval.checkpoint);
  eval->add_option("--split", c.eval.split, "train, dev or test")->capture_default_str();
  eval->add_option("--batches", c.eval.batches, "at most so many batches for the loss; 0: all");
  eval->add_flag("--shuffle", c.eval.shuffle, "also with every target beside the source of another sentence");
  eval->add_flag("--bleu", c.eval.bleu, "translate the split and print BLEU with its signature");
  eval->add_flag("--baselines", c.eval.baselines,
                 "BLEU of copying the source, and of the nearest training sentence");
  eval->add_option("--sentences", c.eval.sentences, "BLEU: at most so many sentences, evenly spaced; 0: all");
  eval->add_option("--show", c.eval.show, "print so many translations");
  eval->add_option("--out", c.eval.out, "write the translations to this file");
  eval->callback([&c] { c.result = command::eval(c.eval); });

  CLI::App* translate =
      app.add_subcommand("translate", "Translate lines of standard input to standard output, in order.");
  add_decode(*translate, c.translate);
  add_method(*translate, c.translate);
  translate->footer("Example:\n  echo 'The file was not found.' | tessera translate runs/demo --beam 4");
  translate->callback([&c] { c.result = command::translate(c.translate); });

  CLI::App* generate =
      app.add_subcommand("generate", "Continue lines of standard input with a language model.");
  add_decode(*generate, c.generate);
  add_method(*generate, c.generate);
  generate->callback([&c] { c.result = command::generate(c.generate); });

  CLI::App* score = app.add_subcommand(
      "score", "Print LOG_PROBABILITY<TAB>TOKENS for each line (source<TAB>target, or text).");
  add_decode(*score, c.score);
  score->callback([&c] { c.result = command::score(c.score); });
}

void add_inspection(CLI::App& app, Commands& c) {
  CLI::App* explain = app.add_subcommand(
      "explain", "Show what a layout costs: every collective with its reason, bytes, memory. Runs nothing.");
  add_config(*explain, c.explain.common);
  explain->add_flag("--json", c.explain.json, "print JSON");
  explain->add_flag("--program", c.explain.program, "print the whole program first, one line a step");
  explain->footer("Example:\n  tessera explain --preset lm_4.899b");
  explain->callback([&c] { c.result = command::explain(c.explain); });

  CLI::App* presets = app.add_subcommand("presets", "List the named models with exact parameter counts.");
  presets->add_flag("--json", c.presets_json, "print JSON");
  presets->callback([&c] { c.result = command::presets(c.presets_json); });

  CLI::App* tokenizer =
      app.add_subcommand("tokenizer", "Train a SentencePiece model, or apply one to lines.");
  tokenizer->require_subcommand(1);
  for (const char* action : {"train", "encode", "decode", "info"}) {
    bool training = std::string(action) == "train";
    CLI::App* sub = tokenizer->add_subcommand(
        action, training ? "train a model on text files" : std::string(action) + " with a model");
    sub->add_option("model", c.tokenizer.model, "the model file")->required();
    sub->add_option("files", c.tokenizer.files,
                    training ? "text files" : "file to read (default: standard input)");
    if (training) {
      sub->add_option("--vocab", c.tokenizer.vocabulary, "number of pieces")->capture_default_str();
      sub->add_option("--kind", c.tokenizer.kind, "unigram or bpe")->capture_default_str();
    }
    sub->callback([&c, action] {
      c.tokenizer.action = action;
      c.result = command::tokenizer(c.tokenizer);
    });
  }
}

// What CLI11 throws inside callbacks is ours: let it through to run().
int parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& e) {
    int code = app.exit(e);
    return code == 0 ? 0 : static_cast<int>(ExitCode::Usage);
  }
}

int run(int argc, char** argv) {
  CLI::App app{
      "Tessera: named-dimension tensor programs on a mesh of processors.\n"
      "Trains and uses Transformers under any layout; `tessera COMMAND --help` explains each command.",
      "tessera"};
  app.require_subcommand(1);
  app.set_version_flag("--version", "tessera 0.1.0");
  Commands commands;
  for (int i = 0; i < argc; ++i)
    commands.train.command_line += fmt::format("{}{}", i == 0 ? "" : " ", argv[i]);
  add_training(app, commands);
  add_measuring(app, commands);
  add_use(app, commands);
  add_inspection(app, commands);
  app.footer(
      "First steps:\n  tessera train configs/tiny.toml --output runs/tiny\n  tessera explain "
      "configs/tiny.toml --mesh 'rows:2' --layout 'batch:rows'\n"
      "Keys of a configuration:\n" +
      describe_config());
  check_command(app, argc, argv);
  int code = parse(app, argc, argv);
  return code != 0 ? code : commands.result;
}

}  // namespace
}  // namespace tessera::command

int main(int argc, char** argv) {
  try {
    return tessera::command::run(argc, argv);
  } catch (const tessera::Error& e) {
    fmt::print(stderr, "tessera: {}\n", e.what());
    return static_cast<int>(e.code());
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "tessera: out of memory\n");
    return static_cast<int>(tessera::ExitCode::Memory);
  } catch (const std::exception& e) {
    fmt::print(stderr, "tessera: internal error: {}; please report it\n", e.what());
    return static_cast<int>(tessera::ExitCode::Internal);
  }
}
