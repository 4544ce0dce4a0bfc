// Data sets: text files -> tokens in a cache file -> batches of fixed shapes. Layer data.
//
//   DataSource source = parallel_files({"train.en"}, {"train.fr"});
//   auto train = open_translation_data(source, tokenizer, {.tokens_per_batch = 3000}, "run/cache");
//   Batch b = train->batch(step);                       // a pure function of data, seed and step
//   session.run(program[b.shape], [&](const std::string& name, const Box& box, void* out) { b.fill(name, box,
//   out); });
//
// Every error is a UserError with ExitCode::BadData that begins with "data: " and names file and line; a full
// or broken disk is a SystemError. A Dataset is immutable: const use from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/array.h"
#include "tessera/box.h"
#include "tessera/tokenizer.h"

namespace tessera {

enum class InvalidUtf8 {
  Error,    // name file, line and byte
  Replace,  // each ill-formed part becomes U+FFFD; counted
  Skip,     // leave the example out; counted
};

const char* to_string(InvalidUtf8 policy);              // "error", "replace", "skip"
InvalidUtf8 parse_invalid_utf8(std::string_view text);  // throws UserError that lists the names

// Where examples come from. Files may be gzip or zstd (seen by their first bytes). Lines end with LF or CRLF;
// a byte order mark at the start is dropped.
struct DataSource {
  enum class Format {
    Text,      // each line is an example
    Parallel,  // line i of files[k] and line i of target_files[k]
    Tsv,       // source <tab> target
    Jsonl,     // one object a line: source_key and target_key, both strings; without target_key only text
  };
  Format format = Format::Text;
  std::vector<std::string> files;
  std::vector<std::string> target_files;    // Parallel
  std::vector<std::string> document_files;  // optional, line by line beside `files`: "origin:document"
  std::vector<std::string> origins;         // keep only the examples of these origins; needs document_files
  std::string source_key = "source", target_key = "target";  // Jsonl
  InvalidUtf8 invalid_utf8 = InvalidUtf8::Error;
  std::int64_t max_line_bytes = 16 << 20;
};

DataSource text_files(std::vector<std::string> files);
DataSource parallel_files(std::vector<std::string> files, std::vector<std::string> target_files);
DataSource tsv_files(std::vector<std::string> files);
DataSource jsonl_files(std::vector<std::string> files, std::string source_key, std::string target_key);

struct TextExample {
  std::string source;  // the text of a source without targets
  std::string target;
};

// All examples in memory, for baselines, references of BLEU and the training of a tokenizer.
std::vector<TextExample> read_examples(const DataSource& source);

// The shapes of a batch, and so of the program that eats it: few, so that each is compiled once.
struct BatchShape {
  std::int64_t sentences = 0;
  std::int64_t source_length = 0;  // 0 in language modelling
  std::int64_t target_length = 0;

  bool operator==(const BatchShape&) const = default;
};

// One batch: inputs by name, each i32 [batch, length], row-major. What follows a row's tokens is kPadId;
// every token of real text is greater, so "weight of a label" is label != 0. Each row of text ends with
// kEosId unless it was cut.
//
//   translation   source [batch, source_length], target [batch, target_length]
//   text          target [batch, target_length]; of the same shape segment (1, 2, ... inside a row, 0 for
//                 padding) and position (from 0 in each segment); tokens may attend only inside their segment
//
// A decoder reads the target shifted right by one place, with kPadId where position is 0.
struct Batch {
  std::int64_t step = 0;
  std::int64_t epoch = 0;               // times the data was read before, about
  std::size_t shape = 0;                // index into Dataset::shapes()
  std::map<std::string, Array> inputs;  // a FeedMap of Session::run
  std::int64_t tokens = 0;              // real (not padding) target tokens: the weight of the loss
  std::int64_t source_tokens = 0;       // real source tokens
  // Of the target texts that end in this batch, as Perplexity::count_text counts them.
  std::int64_t words = 0, bytes = 0;
  // Ids of the examples (translation) or rows (text) in it; -1 for an empty row.
  std::vector<std::int64_t> examples;

  // The part of one input inside `box`, row-major, for Session::run. Throws UserError on an unknown name or a
  // box that reaches outside.
  void fill(const std::string& name, const Box& box, void* out) const;
};

struct DataStats {
  std::int64_t examples = 0;                          // usable ones
  std::int64_t too_long = 0;                          // dropped or cut
  std::int64_t empty = 0;                             // a side without tokens: dropped
  std::int64_t replaced_utf8 = 0;                     // lines with ill-formed UTF-8 that was replaced
  std::int64_t skipped_utf8 = 0;                      // examples left out for it
  std::int64_t source_tokens = 0, target_tokens = 0;  // ends included, of the usable ones
  std::int64_t words = 0, bytes = 0;  // of their target texts, as Perplexity::count_text counts them
};

class Dataset {
 public:
  virtual ~Dataset() = default;

  // Training: step >= 0. Every batch is full. The order is shuffled anew in each epoch; after e epochs each
  // example was read e times, or e - 1 times the few that did not fill a batch: those come first in the next
  // epoch (a batch larger than the data repeats some). Two calls give equal batches, whatever was called in
  // between.
  virtual Batch batch(std::int64_t step) const = 0;
  virtual double steps_per_epoch() const = 0;

  // Evaluation: every usable example exactly once; the last batch of a shape may have empty rows. 0 <= index
  // < count.
  virtual std::int64_t evaluation_batches() const = 0;
  virtual Batch evaluation_batch(std::int64_t index) const = 0;

  virtual const std::vector<BatchShape>& shapes() const = 0;
  virtual const DataStats& stats() const = 0;

  // SHA-256 over the data, the tokenizer and every option that changes a batch, the seed included: equal
  // fingerprints give equal batches. Belongs into checkpoints.
  virtual const std::string& fingerprint() const = 0;
};

enum class TooLong { Drop, Cut, Error };

const char* to_string(TooLong policy);          // "drop", "cut", "error"
TooLong parse_too_long(std::string_view text);  // throws UserError that lists the names

struct TranslationOptions {
  std::int64_t tokens_per_batch = 3000;  // at most sentences * target_length of a shape, padding included
  int buckets = 8;                       // at most so many shapes, placed where they leave the least padding
  std::int64_t sentences_per_batch = 0;  // > 0: one shape of so many sentences and the largest lengths
  std::int64_t max_source = 128, max_target = 128;  // tokens with the end
  TooLong too_long = TooLong::Drop;
  std::uint64_t seed = 1;  // of the order
  // Names of the dimensions of Batch::inputs.
  std::string batch_dim = "batch", source_dim = "source_length", target_dim = "length";
};

struct LanguageOptions {
  std::int64_t rows_per_batch = 16;
  std::int64_t length = 128;  // tokens of a row; longer examples go on as segments of their own
  bool packed = true;         // several examples in a row; off: one a row
  std::uint64_t seed = 1;
  std::string batch_dim = "batch", length_dim = "length";
};

// `cache_folder` is made when missing; the token file in it is named by a hash of data, tokenizer and format,
// checked when opened and rebuilt when damaged. Delete it freely.
std::unique_ptr<Dataset> open_translation_data(const DataSource& source, const Tokenizer& tokenizer,
                                               const TranslationOptions& options,
                                               const std::string& cache_folder);
std::unique_ptr<Dataset> open_language_data(const DataSource& source, const Tokenizer& tokenizer,
                                            const LanguageOptions& options, const std::string& cache_folder);

// Baselines that every translation system must beat.
std::vector<std::string> copy_baseline(const std::vector<std::string>& sources);

// For each source the target of the training example whose source shares the most words with it: the largest
// 2 * common / (words + words) over lower-case words, the earliest example on a tie; "" when nothing is
// shared.
std::vector<std::string> retrieval_baseline(const std::vector<TextExample>& train,
                                            const std::vector<std::string>& sources);

}  // namespace tessera
