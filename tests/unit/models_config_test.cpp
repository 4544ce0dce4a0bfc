// Configuration files: what is read, what is refused and with which words.
#include <gtest/gtest.h>
#include <unistd.h>

#include <clocale>
#include <filesystem>
#include <fstream>

#include "tessera/config.h"
#include "tessera/error.h"

namespace tessera {
namespace {

std::string config_message_of(const std::string& text, const Strings& overrides = {}) {
  try {
    parse_config(text, "run.toml", overrides);
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::Usage);
    return error.what();
  }
  return "(accepted)";
}

TEST(Config, ReadsEverySection) {
  const Config c = parse_config(R"toml(
[model]
kind = "lm"
layers = 3
activation = ["swish", "linear"]
norm = "layer"
dtype = "bf16"
positions = "relative"
recompute = ["decoder/*"]
[optimizer]
kind = "adafactor"
schedule = "0.5 * truncated_rsqrt(100)"
clip_norm = 1
nan = "skip"
slot_dtype = "bf16"
[optimizer.adafactor]
decay = "adam"
min_factored_size = 32
[[optimizer.groups]]
pattern = "*norm*"
weight_decay = 0
[[optimizer.groups]]
pattern = "embedding/*"
frozen = true
[data]
format = "text"
batch_sentences = 4
train.files = ["a.txt", "b.txt.zst"]
[train]
steps = 20
deadline_seconds = 1.5
resume = false
[mesh]
shape = "rows:2;cols:2"
layout = "batch:rows"
[decode]
method = "beam"
top_p = 1
)toml",
                                "run.toml");
  EXPECT_EQ(c.model.kind, ModelKind::LanguageModel);
  EXPECT_EQ(c.model.layers, 3);
  EXPECT_EQ(c.model.activation, (Strings{"swish", "linear"}));
  EXPECT_EQ(c.model.norm, nn::NormKind::Layer);
  EXPECT_EQ(c.model.dtype, DType::BF16);
  EXPECT_EQ(c.model.positions, Positions::Relative);
  EXPECT_EQ(c.optimizer.config.kind, OptimizerKind::Adafactor);
  EXPECT_DOUBLE_EQ(c.optimizer.schedule.at(0, 1), 0.05);
  EXPECT_EQ(c.optimizer.config.clip_norm, 1);
  EXPECT_EQ(c.optimizer.config.nan, NanPolicy::Skip);
  EXPECT_EQ(c.optimizer.config.slot_dtype, DType::BF16);
  EXPECT_EQ(c.optimizer.config.adafactor.decay, AdafactorOptions::Decay::Adam);
  ASSERT_EQ(c.optimizer.config.groups.size(), 2u);
  EXPECT_EQ(c.optimizer.config.groups[0].weight_decay, 0.0);
  EXPECT_EQ(c.optimizer.config.groups[1].frozen, true);
  EXPECT_EQ(c.data.train.files, (Strings{"a.txt", "b.txt.zst"}));
  EXPECT_EQ(c.train.steps, 20);
  EXPECT_EQ(c.train.deadline_seconds, 1.5);
  EXPECT_FALSE(c.train.resume);
  EXPECT_EQ(c.mesh.shape, "rows:2;cols:2");
  EXPECT_EQ(c.decode.method, "beam");
  EXPECT_EQ(parse_config(to_toml(c), "again.toml"), c);
}

TEST(Config, ResolvedTextParsesBackForEveryPreset) {
  for (const Preset& p : presets()) {
    const Config c = parse_config("model.preset = \"" + p.name + "\"", "run.toml");
    EXPECT_EQ(c.model, p.model);
    EXPECT_EQ(to_string(c.optimizer.config.kind), p.optimizer);
    EXPECT_EQ(parse_config(to_toml(c), "again.toml"), c) << p.name;
  }
  Config odd;
  odd.train.output = "a \"quoted\"\n\\path\x01 \u00e9";
  EXPECT_EQ(parse_config(to_toml(odd), "again.toml"), odd);
}

TEST(Config, OverridesTakeTomlOrBareText) {
  const Config c =
      parse_config("model.preset = \"tiny\"", "run.toml",
                   {"model.dtype=bf16", "train.steps=7", "optimizer.schedule=0.1 * cosine",
                    "data.train.files=a.en,b.en", "data.train.target_files=[\"a.fr\", \"b.fr\"]",
                    "train.output=runs/x=1", "data.max_source_length=20", "data.max_target_length=20"});
  EXPECT_EQ(c.model.dtype, DType::BF16);
  EXPECT_EQ(c.model.d_model, 64);
  EXPECT_EQ(c.train.steps, 7);
  EXPECT_EQ(to_string(c.optimizer.schedule), "0.1 * cosine(0)");
  EXPECT_EQ(c.data.train.files, (Strings{"a.en", "b.en"}));
  EXPECT_EQ(c.data.train.target_files, (Strings{"a.fr", "b.fr"}));
  EXPECT_EQ(c.train.output, "runs/x=1");
  Config changed = c;
  EXPECT_THROW(set_config(changed, "model.layers=0"), UserError);
  EXPECT_EQ(changed, c);
  set_config(changed, "model.layers=1");
  EXPECT_EQ(changed.model.layers, 1);
}

TEST(Config, AKeyWinsOverThePresetOfItsFileWhereverItStands) {
  const Config c = parse_config("[model]\nlayers = 1\npreset = \"demo\"", "run.toml");
  EXPECT_EQ(c.model.layers, 1);
  EXPECT_EQ(c.model.encoder_layers, 3);
  EXPECT_EQ(c.preset, "demo");
}

class Includes : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("tessera_config_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_ / "base");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = (folder_ / name).string();
    std::ofstream(path) << text;
    return path;
  }
  std::string message(const std::string& path) {
    try {
      load_config(path);
    } catch (const UserError& error) {
      std::string text = error.what();
      const std::string prefix = folder_.string() + "/";
      for (std::size_t at; (at = text.find(prefix)) != std::string::npos;) text.erase(at, prefix.size());
      return text;
    }
    return "(accepted)";
  }
  std::filesystem::path folder_;
};

TEST_F(Includes, AreReadFirstFromTheIncludingFolder) {
  write("base/common.toml", "[model]\nlayers = 2\nheads = 2\n");
  write("base/more.toml", "include = [\"common.toml\"]\n[model]\nheads = 3\n");
  const Config c =
      load_config(write("run.toml", "include = \"base/more.toml\"\n[model]\nd_ff = 9\nlayers = 5\n"));
  EXPECT_EQ(c.model.layers, 5);
  EXPECT_EQ(c.model.heads, 3);
  EXPECT_EQ(c.model.d_ff, 9);
}

TEST_F(Includes, FaultsNameTheFileTheyStandIn) {
  write("base/common.toml", "[model]\n\nlayers = 0\n");
  EXPECT_EQ(message(write("run.toml", "include = [\"base/common.toml\"]")),
            "base/common.toml:3: model.layers = 0 is out of range; it must be from 1 to 10000");
  EXPECT_EQ(message(write("gone.toml", "\ninclude = [\"base/gone.toml\"]")),
            "gone.toml:2: include 'base/gone.toml': there is no file base/gone.toml");
  const std::string loop = write("loop.toml", "include = [\"loop.toml\"]");
  EXPECT_EQ(message(loop),
            "loop.toml: the file includes itself (through loop.toml); remove one of the includes");
  EXPECT_EQ(message((folder_ / "none.toml").string()),
            "cannot read configuration 'none.toml': No such file or directory");
  write("large.toml", "# " + std::string(1 << 20, 'x'));
  EXPECT_EQ(message((folder_ / "large.toml").string()),
            "configuration 'large.toml' is larger than 1 MiB; it is not what it should be");
}

struct Bad {
  const char* text;
  const char* message;  // the whole message
};

TEST(Config, BadFilesAreRefusedWithTheseWords) {
  const Bad cases[] = {
      {"[model]\nlayer = 3", "run.toml:2: model.layer is no key of [model]; did you mean 'layers'?"},
      {"[modle]\nlayers = 3", "run.toml:1: there is no section [modle]; did you mean 'model'?"},
      {"[train]\nxyzzyplugh = 3",
       "run.toml:2: train.xyzzyplugh is no key of [train]; known are output, steps, seed, micro_batches, "
       "log_every, "
       "eval_every, checkpoint_every, keep, eval_batches, nan_budget, deadline_seconds, resume"},
      {"[model]\nlayers = 0", "run.toml:2: model.layers = 0 is out of range; it must be from 1 to 10000"},
      {"[model]\n\n\nlayers = \"six\"", "run.toml:4: model.layers must be a whole number, not 'six'"},
      {"[model]\nlayers = 6.0", "run.toml:2: model.layers must be a whole number, not 6.0"},
      {"[model]\ndropout = 1",
       "run.toml:2: model.dropout = 1 is out of range; it must be at least 0 and below 1"},
      {"[model]\nlayers = 3\nlayers = 4",
       "run.toml:3:10: not TOML: Error while parsing key-value pair: cannot redefine existing integer "
       "'layers'"},
      {"[model]\nkind = \"encoder-decoder\"",
       "run.toml:2: model.kind must be one of lm, encoder_decoder, not 'encoder-decoder'; did you mean "
       "'encoder_decoder'?"},
      {"[model]\npreset = \"dmeo\"",
       "run.toml:2: model.preset: there is no preset 'dmeo'; did you mean 'demo'?; the presets are tiny, "
       "tiny_lm, demo, "
       "peers_lm, lm_0.143b, lm_0.218b, lm_0.369b, lm_0.671b, lm_1.275b, lm_2.483b, lm_4.899b, mt_0.155b, "
       "mt_0.244b, "
       "mt_0.420b, mt_0.772b, mt_1.477b, mt_2.886b"},
      {"[model]\nactivation = [\"rlu\"]",
       "run.toml: model: there is no activation 'rlu'; choose among relu, gelu, gelu_erf, swish, tanh, "
       "sigmoid, linear"},
      {"[model]\nd_model = 7\npositions = \"sinusoidal\"",
       "run.toml: model: sinusoidal positions need an even d_model, not 7; change d_model or positions"},
      {"[optimizer]\nschedule = \"0.1 * cosin\"",
       "run.toml:2: optimizer.schedule: schedule '0.1 * cosin': there is no factor 'cosin'; did you mean "
       "'cosine'?; the "
       "factors are numbers and constant, linear_warmup, linear_decay, truncated_rsqrt, noam, "
       "slanted_triangular, "
       "cosine, inverse_sqrt, warmup_linear, exponential, adafactor, offset"},
      {"[optimizer]\ngroups = 3", "run.toml:2: optimizer.groups must be tables [[optimizer.groups]], not 3"},
      {"[[optimizer.groups]]\nrate = 2.0",
       "run.toml:1: a group of [[optimizer.groups]] needs a pattern of names"},
      {"[[optimizer.groups]]\npattern = \"*\"\nfrozzen = true",
       "run.toml:3: optimizer.groups.frozzen is no key of [[optimizer.groups]]; did you mean 'frozen'?"},
      {"[data]\ntrain.files = [\"a.en\"]",
       "run.toml: data.train.files has 1 entries but data.train.target_files has 0; parallel files come in "
       "pairs"},
      {"[data]\nformat = \"tsv\"\ndev.target_files = [\"a\"]",
       "run.toml: data.dev.target_files is given but data.format = \"tsv\" has one file for both sides; use "
       "files, or "
       "format = \"parallel\""},
      {"[model]\nkind = \"lm\"\n[data]\nformat = \"tsv\"\ntrain.files = [\"a\"]",
       "run.toml: model.kind = \"lm\" needs text but data.format = \"tsv\" holds pairs; use text or jsonl, "
       "or model.kind "
       "= \"encoder_decoder\""},
      {"[data]\nformat = \"text\"\ntrain.files = [\"a\"]",
       "run.toml: model.kind = \"encoder_decoder\" needs pairs but data.format = \"text\"; use parallel, tsv "
       "or jsonl, or "
       "model.kind = \"lm\""},
      {"[data]\nformat = \"tsv\"\ntrain.files = [\"a\"]\nmax_target_length = 500",
       "run.toml: data.max_target_length = 500 is more than the 256 learned positions of model.max_length; "
       "make them fit"},
      {"[data]\nformat = \"tsv\"\ntrain.files = [\"a\"]\nvocab_size = 40000",
       "run.toml: data.vocab_size = 40000 does not fit into model.vocab = 32000; make them equal"},
      {"[data]\nformat = \"tsv\"\ntrain.files = [\"a\"]\nbatch_tokens = 100",
       "run.toml: data.batch_tokens = 100 does not hold one sequence of 128 tokens; raise it or lower the "
       "lengths"},
      {"[data]\nbatch_sentences = 4\n[train]\nmicro_batches = 8",
       "run.toml: train.micro_batches = 8 is more than the 4 rows of data.batch_sentences; use fewer"},
      {"model = 3", "run.toml:1: model must be a section, not 3"},
      {"[decode]\nmethod = true", "run.toml:2: decode.method must be one of greedy, sample, beam, not true"},
  };
  for (const Bad& bad : cases) EXPECT_EQ(config_message_of(bad.text), bad.message) << bad.text;
}

TEST(Config, MoreBadValuesAreRefusedAtTheirLine) {
  const char* const lines[] = {"model.d_model = -1",
                               "model.heads = 0",
                               "model.d_kv = 99999999999",
                               "model.vocab = 1",
                               "model.max_length = 0",
                               "model.relative_buckets = 3",
                               "model.label_smoothing = 1.0",
                               "model.z_loss = -0.1",
                               "model.dtype = \"i32\"",
                               "model.dtype = \"fp16\"",
                               "model.norm = \"batch\"",
                               "model.pre_norm = 1",
                               "model.activation = 3",
                               "model.recompute = [1]",
                               "optimizer.kind = \"adamw\"",
                               "optimizer.beta1 = 1.0",
                               "optimizer.beta2 = nan",
                               "optimizer.epsilon = inf",
                               "optimizer.clip_norm = -1",
                               "optimizer.nan = \"ignore\"",
                               "optimizer.schedule = 0.1",
                               "optimizer.adafactor.decay = \"exp\"",
                               "optimizer.adafactor.epsilon3 = 0",
                               "data.format = \"csv\"",
                               "data.buckets = 0",
                               "data.vocab_size = 100",
                               "data.train = \"a\"",
                               "data.train.file = \"a\"",
                               "data.pack = \"no\"",
                               "train.steps = -1",
                               "train.micro_batches = 0",
                               "train.log_every = 0",
                               "train.deadline_seconds = 0",
                               "train.seed = -1",
                               "train.output = 3",
                               "decode.beam = 0",
                               "decode.temperature = 0",
                               "decode.top_p = 0.0",
                               "decode.top_p = 1.5",
                               "mesh.shape = [2]",
                               "model.preset = 3",
                               "include = 3",
                               "include = [3]",
                               "train.steps = 99999999999999999999"};
  for (const char* line : lines) {
    const std::string message = config_message_of("\n" + std::string(line));
    EXPECT_EQ(message.rfind("run.toml:2:", 0), 0u) << line << " gave: " << message;
  }
}

TEST(Config, BadOverridesAndMeshesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"train.step=3", "--set train.step=3: train.step is no key of [train]; did you mean 'steps'?"},
      {"train.steps", "--set train.steps: expected section.key=value, for example train.steps=100"},
      {"steps=3",
       "--set steps=3: there is no section [steps]; known are model, optimizer, data, train, mesh, decode"},
      {"train..steps=3", "--set train..steps=3: 'train..steps' is no key; expected section.key=value"},
      {"Train.steps=3", "--set Train.steps=3: 'Train.steps' is no key; expected section.key=value"},
      {"train.steps=many", "--set train.steps=many: train.steps must be a whole number, not 'many'"},
      {"include=\"a.toml\"",
       "--set include=\"a.toml\": include must be a list of file names at the top of a file, not 'a.toml'"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(config_message_of("", {text}), message);
  EXPECT_EQ(config_message_of("", {"mesh.shape=rows:0"}),
            "run.toml: mesh.shape = \"rows:0\": axis 'rows' has size 0; it must be at least 1");
  EXPECT_EQ(config_message_of("", {"mesh.shape=rows"}).rfind("run.toml: mesh.shape = \"rows\": ", 0), 0u);
}

TEST(Config, NumbersDoNotFollowTheLocale) {
  const char* old = std::setlocale(LC_ALL, "de_DE.UTF-8");
  const Config c = parse_config("model.dropout = 0.25", "run.toml");
  EXPECT_EQ(c.model.dropout, 0.25);
  EXPECT_NE(to_toml(c).find("dropout = 0.25\n"), std::string::npos);
  if (old) std::setlocale(LC_ALL, "C");
}

TEST(Config, EveryKeyIsDescribed) {
  const std::string text = describe_config();
  EXPECT_NE(text.find("[optimizer.adafactor]\n"), std::string::npos);
  EXPECT_NE(text.find("  steps                        updates in all (whole number from 0 to 1099511627776; "
                      "default 1000)\n"),
            std::string::npos);
}

TEST(Config, FilesOfTheProjectAreValid) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(TESSERA_SOURCE_DIR) + "/configs")) {
    if (entry.path().extension() != ".toml") continue;
    EXPECT_NO_THROW(load_config(entry.path().string())) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 3);
}

}  // namespace
}  // namespace tessera
