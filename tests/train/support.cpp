#include "train/support.h"

#include <unistd.h>

#include <atomic>
#include <random>

namespace tessera::testing {
namespace {

const std::vector<std::pair<std::string, std::string>>& words() {
  static const std::vector<std::pair<std::string, std::string>> pairs{
      {"house", "maison"}, {"dog", "chien"},    {"cat", "chat"},   {"red", "rouge"},  {"blue", "bleu"},
      {"small", "petit"},  {"big", "grand"},    {"eats", "mange"}, {"sees", "voit"},  {"the", "le"},
      {"and", "et"},       {"bread", "pain"},   {"water", "eau"},  {"tree", "arbre"}, {"river", "fleuve"},
      {"walks", "marche"}, {"night", "nuit"},   {"day", "jour"},   {"old", "vieux"},  {"new", "neuf"},
      {"table", "meuble"}, {"window", "vitre"}, {"street", "rue"}, {"city", "ville"}};
  return pairs;
}

struct Pair {
  std::string source, target;
};

Pair sentence(std::mt19937& random) {
  const std::size_t length = 2 + random() % 8;
  Pair pair;
  for (std::size_t i = 0; i < length; ++i) {
    const auto& [source, target] = words()[random() % words().size()];
    pair.source += (i == 0 ? "" : " ") + source;
    pair.target = target + (i == 0 ? "" : " ") + pair.target;
  }
  return pair;
}

void write(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

Corpus make_corpus(const TempFolder& folder) {
  Corpus c{folder / "train.en",
           folder / "train.fr",
           folder / "dev.en",
           folder / "dev.fr",
           folder / "text",
           folder / "spm.model",
           {},
           {}};
  std::mt19937 random(7);
  std::string sources, targets, text;
  for (int i = 0; i < 900; ++i) {
    const Pair pair = sentence(random);
    sources += pair.source + "\n";
    targets += pair.target + "\n";
    text += pair.source + "\n";
  }
  write(c.train_source, sources);
  write(c.train_target, targets);
  write(c.text, text);
  sources = targets = "";
  for (int i = 0; i < 53; ++i) {
    const Pair pair = sentence(random);
    sources += pair.source + "\n";
    targets += pair.target + "\n";
    c.dev_sources.push_back(pair.source);
    c.dev_targets.push_back(pair.target);
  }
  write(c.dev_source, sources);
  write(c.dev_target, targets);
  Tokenizer::train({c.train_source, c.train_target}, {.vocabulary = 320}, c.tokenizer);
  return c;
}

}  // namespace

TempFolder::TempFolder() {
  static std::atomic<int> count{0};
  path_ = (std::filesystem::temp_directory_path() /
           ("tessera_train_" + std::to_string(getpid()) + "_" + std::to_string(count++)))
              .string();
  std::filesystem::create_directories(path_);
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

const Corpus& corpus() {
  static const TempFolder folder;
  static const Corpus made = make_corpus(folder);
  return made;
}

Config small_config(const std::string& run_folder, const Strings& overrides) {
  const Corpus& c = corpus();
  const std::string text = R"toml(
[model]
kind = "encoder_decoder"
encoder_layers = 1
layers = 2
d_model = 24
heads = 3
d_kv = 8
d_ff = 40
vocab = 320
max_length = 48
dtype = "f64"
[optimizer]
kind = "adam"
schedule = "0.01 * warmup_linear(0.1)"
[data]
vocab_size = 320
batch_tokens = 240
buckets = 3
max_source_length = 40
max_target_length = 40
[train]
steps = 12
seed = 5
log_every = 5
eval_every = 0
checkpoint_every = 0
[decode]
max_length = 30
)toml";
  Strings all{"train.output=" + run_folder,
              "data.tokenizer=" + c.tokenizer,
              "data.train.files=" + c.train_source,
              "data.train.target_files=" + c.train_target,
              "data.dev.files=" + c.dev_source,
              "data.dev.target_files=" + c.dev_target,
              "data.cache=" + std::filesystem::path(c.text).parent_path().string() + "/cache"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return parse_config(text, "small.toml", all);
}

Config small_lm_config(const std::string& run_folder, const Strings& overrides) {
  const Corpus& c = corpus();
  Strings all{"model.kind=lm",
              "data.format=text",
              "data.batch_sentences=6",
              "data.max_target_length=24",
              "data.train.files=" + c.text,
              "data.train.target_files=[]",
              "data.dev.files=" + c.text,
              "data.dev.target_files=[]"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return small_config(run_folder, all);
}

std::vector<double> train(const Config& config, TrainOptions options) {
  Trainer trainer(config, std::move(options));
  return trainer.run().losses;
}

}  // namespace tessera::testing
