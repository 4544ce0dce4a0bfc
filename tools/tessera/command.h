// The sub-commands of `tessera`, as plain options and functions; cli.cpp fills the options from the command
// line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/config.h"

namespace tessera::command {

// What most sub-commands share: where the model comes from and what is changed about it.
struct Common {
  std::string source;                       // a configuration file, or a run folder
  std::string preset;                       // instead of a file
  std::string mesh, layout, memory, dtype;  // override the configuration when given
  std::int64_t seed = -1;
  std::vector<std::string> set;  // "section.key=value"

  std::vector<std::string> overrides() const;
  Config config() const;  // of a file or a preset, with the overrides
};

struct Train {
  Common common;
  std::string output, trace, command_line;
  std::int64_t steps = -1;
  bool fresh = false;  // do not resume
  bool name_nonfinite = false;
};

struct Eval {
  Common common;
  std::string split = "test", checkpoint;
  std::int64_t batches = 0;
  bool shuffle = false, bleu = false, baselines = false;
  std::int64_t sentences = 0, show = 0;  // for BLEU: at most so many; so many translations are shown
  std::string out;                       // hypotheses, one a line
};

struct Decode {
  Common common;
  std::string checkpoint, input, output, method;
  std::int64_t beam = -1, top_k = -1, max_length = -1;
  double temperature = -1, top_p = -1, length_penalty = -1;
  bool scores = false;
};

struct Explain {
  Common common;
  bool json = false, program = false;
};

struct TokenizerCommand {
  std::vector<std::string> files;
  std::string model, kind = "unigram";
  int vocabulary = 8000;
  std::string action = "encode";  // train, encode, decode, info
};

struct Bench {
  Common common;
  std::int64_t steps = 20;
  bool json = false;
  std::vector<std::string> without;  // passes, or "all"
};

struct Profile {
  Common common;
  std::int64_t steps = 20;
  std::string trace = "profile.json";
};

struct Compare {
  Common common;
  std::int64_t steps = 20;
  std::vector<std::string> rows;  // "mesh | layout [| section.key=value ...]", the first is the reference
  bool json = false;
};

// Each returns the exit code.
int train(const Train& options);
int eval(const Eval& options);
int translate(const Decode& options);
int generate(const Decode& options);
int score(const Decode& options);
int explain(const Explain& options);
int presets(bool json);
int tokenizer(const TokenizerCommand& options);
int bench(const Bench& options);
int profile(const Profile& options);
int compare(const Compare& options);

// Lines of a file, or of standard input for "" and "-". Throws UserError (BadData).
std::vector<std::string> read_lines(const std::string& path);
// Writes lines to a file, or standard output.
void write_lines(const std::string& path, const std::vector<std::string>& lines);

}  // namespace tessera::command
