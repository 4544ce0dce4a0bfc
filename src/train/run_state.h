// The run folder and what a checkpoint records beside the tensors: counters, and what the run depends on.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/checkpoint.h"
#include "tessera/train.h"

namespace tessera {

class RunFolder {
 public:
  explicit RunFolder(std::string path);  // throws UserError when the path is empty

  const std::string& path() const { return path_; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string tokenizer() const { return path_ + "/tokenizer.model"; }
  std::string events() const { return path_ + "/events"; }
  std::string metrics() const { return path_ + "/metrics.jsonl"; }
  std::string cache() const { return path_ + "/cache"; }

  // The resolved config of the run with overrides. Throws UserError (BadData) when the folder holds no run.
  Config load_config(const Strings& overrides) const;
  void write_config(const Config& config) const;
  void write_tokenizer(const Tokenizer& tokenizer) const;  // unless it is there
  void add_command(const std::string& command_line) const;

 private:
  std::string path_;
};

// Makes a folder and its parents. Throws SystemError.
void make_folders(const std::string& path);

struct RunState {
  std::int64_t step = 0;                 // updates done
  std::int64_t tokens = 0, skipped = 0;  // since the start of training
  std::int64_t skipped_in_a_row = 0;
  double seconds = 0;
  std::string data;                           // Dataset::fingerprint() of the training data
  std::string tokenizer;                      // Tokenizer::hash()
  std::map<std::string, std::string> config;  // "model.d_ff" -> "2048", as TOML
};
std::string to_json(const RunState& state);
RunState parse_run_state(const std::string& json, const std::string& path);  // throws UserError (BadData)

// All keys of a config as "section.key" -> TOML.
std::map<std::string, std::string> flat_config(const Config& config);

// What makes parameters of the checkpoint useless for this model: lines "model.d_ff: 2048 there, 1024 here".
Strings model_differences(const RunState& state, const Config& config, const Tokenizer& tokenizer);
// The same for going on with a run: seed, optimizer kind and data too.
Strings run_differences(const RunState& state, const Config& config, const Tokenizer& tokenizer,
                        const std::string& data);
// Throws UserError (BadData) that lists the differences, if there are any.
void refuse_differences(const Strings& differences, const std::string& checkpoint, const std::string& advice);

// Parameters and slots of the store, by name.
Strings saved_variables(const Store& store);
std::string save_variables(CheckpointDir& dir, const Session& session, const Store& store,
                           const RunState& state);
// Fills parameters, and slots when wanted. Throws UserError (BadData) when the checkpoint lacks some.
void load_variables(const CheckpointReader& reader, Store& store, bool slots);

}  // namespace tessera
