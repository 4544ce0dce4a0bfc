// A made-up language pair, small models and temporary run folders for tests of training.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tessera/config.h"
#include "tessera/decode.h"
#include "tessera/train.h"

namespace tessera::testing {

// A folder that is removed at the end.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Files of this process: source sentences of 2 to 9 words, targets word by word in the other language with
// the order turned round; a text; a tokenizer of both. Made once.
struct Corpus {
  std::string train_source, train_target, dev_source, dev_target, text, tokenizer;
  std::vector<std::string> dev_sources, dev_targets;
};
const Corpus& corpus();

// A very small encoder-decoder (or language model) on the corpus, f64 unless overridden.
Config small_config(const std::string& run_folder, const Strings& overrides = {});
Config small_lm_config(const std::string& run_folder, const Strings& overrides = {});

// Trains and returns the losses.
std::vector<double> train(const Config& config, TrainOptions options = {});

}  // namespace tessera::testing
