// Configuration files: TOML text -> plain structs, with overrides and messages that name file and line. Layer
// models.
//
//   Config c = load_config("demo.toml", {"train.steps=100", "model.dtype=bf16"});
//   std::string resolved = to_toml(c);           // everything, defaults included; parses back to the same
//   Config
//
// Files may begin with include = ["base.toml"] (paths relative to the including file; read first, so the
// including file wins). Unknown keys, wrong types and values out of range are UserErrors such as
//   demo.toml:12: train.stepz is no key of [train]; did you mean 'steps'?
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/models.h"
#include "tessera/optimizer.h"

namespace tessera {

// [data.train], [data.dev], [data.test]. Files may be gzip or zstd.
struct SplitConfig {
  Strings files;         // text, tsv, jsonl; parallel: the source side
  Strings target_files;  // parallel: the target side, line by line
  Strings documents;     // optional, line by line beside files: "origin:document" of each example
  Strings origins;       // only examples of these origins; needs documents
  bool operator==(const SplitConfig&) const = default;
};

// [data]
struct DataConfig {
  std::string format = "parallel";  // parallel, tsv, text, jsonl
  SplitConfig train, dev, test;
  std::string source_key = "source", target_key = "target";  // jsonl
  std::string invalid_utf8 = "error";                        // error, replace, skip
  std::string tokenizer;  // a SentencePiece model; empty: one is trained on the training files
  std::string tokenizer_kind = "unigram";  // unigram, bpe
  std::int64_t vocab_size = 8000;          // of a tokenizer to be trained
  std::string cache;                       // folder of tokenised data; empty: "cache" in the run folder
  std::int64_t batch_tokens = 3000;        // target tokens a batch, padding included (translation)
  std::int64_t batch_sentences =
      0;                     // > 0: so many sequences of the largest lengths instead; rows of a text batch
  std::int64_t buckets = 8;  // at most so many batch shapes
  std::int64_t max_source_length = 128, max_target_length = 128;  // tokens with the end
  std::string too_long = "drop";                                  // drop, cut, error
  bool pack = true;                                               // text: several examples a row
  bool operator==(const DataConfig&) const = default;
};

// [train]
struct TrainConfig {
  std::string output;  // the run folder
  std::int64_t steps = 1000;
  std::int64_t seed = 1;
  std::int64_t micro_batches = 1;  // runs of the model per update
  std::int64_t log_every = 10, eval_every = 200,
               checkpoint_every = 200;  // steps; 0: never (checkpoints: at the end only)
  std::int64_t keep = 3;                // newest checkpoints; 0: all
  std::int64_t eval_batches = 0;        // of the dev data; 0: all
  std::int64_t nan_budget = 10;         // skipped updates in a row before the run stops (policy skip)
  double deadline_seconds = 300;        // for a rank to reach a collective
  bool resume = true;                   // from the newest checkpoint of the run folder
  bool operator==(const TrainConfig&) const = default;
};

// [optimizer]; groups are [[optimizer.groups]], Adafactor's settings [optimizer.adafactor]
struct OptimizerSection {
  OptimizerConfig config;
  Schedule schedule = Schedule::parse("0.001 * warmup_linear(0.1)");
  bool operator==(const OptimizerSection&) const = default;
};

// [mesh]
struct MeshConfig {
  std::string shape;   // "rows:2;cols:2"; empty: one processor
  std::string layout;  // rules, or a preset's name
  // Bytes that a process with all ranks may take for variables and arenas; values are computed again to keep
  // it. 0: as many as it needs.
  std::int64_t memory = 0;
  bool operator==(const MeshConfig&) const = default;
};

// [decode]
struct DecodeConfig {
  std::string method = "greedy";  // greedy, sample, beam
  std::int64_t beam = 4;
  double length_penalty = 0.6;    // beam: score = log p / ((5 + length) / 6)^penalty
  double temperature = 1;         // sample
  std::int64_t top_k = 0;         // sample: 0 is off
  double top_p = 1;               // sample: 1 is off
  std::int64_t batch = 32;        // sentences at a time
  std::int64_t max_length = 128;  // tokens of an output
  double length_factor = 2;       // an output has at most factor * source + 10 tokens
  bool operator==(const DecodeConfig&) const = default;
};

struct Config {
  std::string preset;  // model.preset: a name of tessera/models.h, or empty
  TransformerConfig model;
  OptimizerSection optimizer;
  DataConfig data;
  TrainConfig train;
  MeshConfig mesh;
  DecodeConfig decode;
  bool operator==(const Config&) const = default;
};

// Reads a file (at most 1 MiB, as each include), then applies overrides "section.key=value": the value is
// TOML, or else taken as a string; lists also take "a,b". A preset replaces model, optimizer and schedule
// that were set before it in reading order; other keys of the same file win over it wherever they stand.
// Throws UserError.
Config load_config(const std::string& path, const Strings& overrides = {});
// The same on text; `name` stands for the file's name in messages and its folder for includes.
Config parse_config(std::string_view text, const std::string& name, const Strings& overrides = {});
// Applies one override more.
void set_config(Config& config, const std::string& override_text);

// Throws UserError when settings of several sections contradict each other. load_config and parse_config call
// it.
void check(const Config& config);

std::string to_toml(const Config& config);
// Every key with its type, range, default and meaning, one a line: for --help and docs.
std::string describe_config();

}  // namespace tessera
