// The wrapper around SentencePiece: the only file that includes its headers.
#include "tessera/tokenizer.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>
#include <unistd.h>

#include <filesystem>
#include <unordered_map>

#include "base/check.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/text.h"
#include "data/data_error.h"
#include "data/line_reader.h"
#include "data/model_check.h"
#include "data/utf8.h"
#include "tessera/error.h"
#include "tessera/random.h"

namespace tessera {
namespace {

using data::bad_data;

constexpr std::int64_t kMaxTrainingLine = 16 << 20;
constexpr int kSmallestVocabulary = 8;
constexpr int kLargestVocabulary = 1 << 20;

class Lines : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const std::vector<std::string>& lines) : lines_(lines) {}
  bool done() const override { return at_ >= lines_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return lines_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& lines_;
  std::size_t at_ = 0;
};

// A pseudo-random share of the lines without keeping all: when the buffer is full, the share halves. Which
// lines is decided by a hash of their number, so that a rhythm of the text (source and target in turn) does
// not matter.
std::vector<std::string> sample(const std::function<bool(std::string&)>& next, std::int64_t most) {
  const RandomKey key = random_key(0, "tokenizer lines", 0);
  std::vector<std::pair<std::uint32_t, std::string>> kept;
  std::uint64_t index = 0;
  std::uint32_t mask = 0;
  for (std::string line; next(line);) {
    if (line.empty()) continue;
    const std::uint32_t hash = philox(key, index++)[0];
    if ((hash & mask) != 0) continue;
    kept.emplace_back(hash, data::replace_invalid_utf8(line));
    if (static_cast<std::int64_t>(kept.size()) < 2 * most) continue;
    mask = 2 * mask + 1;
    std::erase_if(kept, [&](const auto& entry) { return (entry.first & mask) != 0; });
  }
  const std::size_t n = kept.size(), m = std::min(static_cast<std::size_t>(most), n);
  std::vector<std::string> chosen;
  for (std::size_t i = 0; i < m; ++i) chosen.push_back(std::move(kept[i * n / m].second));
  return chosen;
}

void check_options(const TokenizerOptions& options) {
  TESSERA_CHECK(options.vocabulary >= kSmallestVocabulary && options.vocabulary <= kLargestVocabulary,
                "tokenizer: vocabulary is {}; it must be from {} to {}", options.vocabulary,
                kSmallestVocabulary, kLargestVocabulary);
  TESSERA_CHECK(!options.byte_fallback || options.vocabulary > 256 + 3,
                "tokenizer: vocabulary is {}, but the bytes and special ids of byte_fallback alone are 259; "
                "enlarge it or set "
                "byte_fallback = false",
                options.vocabulary);
  TESSERA_CHECK(options.max_sentences >= 1, "tokenizer: max_sentences is {}; at least 1 is needed",
                options.max_sentences);
  TESSERA_CHECK(options.character_coverage > 0.5 && options.character_coverage <= 1,
                "tokenizer: character_coverage is {}; it must be above 0.5 and at most 1",
                options.character_coverage);
}

std::unordered_map<std::string, std::string> trainer_arguments(const TokenizerOptions& options) {
  return {{"model_type", to_string(options.kind)},
          {"vocab_size", std::to_string(options.vocabulary)},
          {"pad_id", std::to_string(kPadId)},
          {"eos_id", std::to_string(kEosId)},
          {"unk_id", std::to_string(kUnknownId)},
          {"bos_id", "-1"},
          {"byte_fallback", options.byte_fallback ? "true" : "false"},
          {"character_coverage", fmt::format("{}", options.character_coverage)},
          {"shuffle_input_sentence", "false"},
          {"num_threads", "4"},  // the model depends on it: sums are merged thread by thread
          {"max_sentence_length", std::to_string(kMaxTrainingLine)},
          {"minloglevel", "2"}};
}

// SentencePiece's own words for the two usual failures hold the number that helps.
[[noreturn]] void training_failed(const std::string& message, const TokenizerOptions& options) {
  const std::string_view high = "<= ";
  if (message.find("too high") != std::string::npos && message.find(high) != std::string::npos) {
    const std::string number = message.substr(message.find(high) + high.size());
    bad_data(
        "tokenizer: a vocabulary of {} is too large for this text; it supports at most {} pieces, give more "
        "text or ask for "
        "fewer",
        options.vocabulary, number.substr(0, number.find_first_not_of("0123456789")));
  }
  if (message.find("smaller than required_chars") != std::string::npos) {
    bad_data(
        "tokenizer: a vocabulary of {} is smaller than the characters of this text; enlarge it or lower "
        "character_coverage",
        options.vocabulary);
  }
  if (message.find("too high") != std::string::npos || message.find("vocab_size") != std::string::npos) {
    bad_data(
        "tokenizer: a vocabulary of {} is too large for this text; give more text or ask for fewer pieces",
        options.vocabulary);
  }
  bad_data("tokenizer: training failed: {}", printable(message));
}

// Under another name first, so that a reader never sees half a model.
void replace_file(const std::string& path, std::string_view bytes) {
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::string partial = fmt::format("{}.partial.{}", path, getpid());
  std::filesystem::remove(partial, error);
  write_new_file(real_vfs(), partial, bytes);
  if (const int failed = real_vfs().rename(partial, path); failed < 0)
    throw_file_error("replace", path, failed);
}

}  // namespace

const char* to_string(TokenizerKind kind) {
  return kind == TokenizerKind::Unigram ? "unigram" : "bpe";
}

TokenizerKind parse_tokenizer_kind(std::string_view text) {
  if (text == "unigram") return TokenizerKind::Unigram;
  if (text == "bpe") return TokenizerKind::Bpe;
  throw UserError(fmt::format("tokenizer: unknown kind '{}'; use one of: unigram, bpe", printable(text)));
}

struct Tokenizer::Impl {
  sentencepiece::SentencePieceProcessor processor;
  std::string hash;
  std::string model;
};

Tokenizer Tokenizer::train(const std::function<bool(std::string&)>& next, const TokenizerOptions& options,
                           const std::string& model_path) {
  check_options(options);
  const std::vector<std::string> lines = sample(next, options.max_sentences);
  if (lines.empty()) bad_data("tokenizer: there is no text to train on; every line is empty");
  Lines iterator(lines);
  std::string model;
  const auto status =
      sentencepiece::SentencePieceTrainer::Train(trainer_arguments(options), &iterator, &model);
  if (!status.ok()) training_failed(status.ToString(), options);
  replace_file(model_path, model);
  return load(model_path);
}

Tokenizer Tokenizer::train(const std::vector<std::string>& files, const TokenizerOptions& options,
                           const std::string& model_path) {
  std::size_t file = 0;
  std::unique_ptr<data::LineReader> reader;
  const auto next = [&](std::string& line) {
    while (true) {
      std::string_view view;
      if (reader && reader->next(view)) {
        line = view;
        return true;
      }
      if (file == files.size()) return false;
      reader = std::make_unique<data::LineReader>(files[file++], kMaxTrainingLine);
    }
  };
  return train(next, options, model_path);
}

Tokenizer Tokenizer::load(const std::string& model_path) {
  std::error_code error;
  const auto status = std::filesystem::status(model_path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    bad_data("tokenizer: there is no model '{}'; train one with 'tessera tokenizer'", printable(model_path));
  }
  if (status.type() != std::filesystem::file_type::regular) {
    bad_data("tokenizer: '{}' is not a regular file; name a SentencePiece model", printable(model_path));
  }
  const std::filesystem::path real = std::filesystem::canonical(model_path, error);
  auto impl = std::make_shared<Impl>();
  impl->model = read_text(real_vfs(), error ? model_path : real.string(), data::kMaxModelBytes);
  data::check_model(impl->model, model_path);
  const auto loaded = impl->processor.LoadFromSerializedProto(impl->model);
  if (!loaded.ok())
    bad_data("tokenizer: cannot use '{}': {}", printable(model_path), printable(loaded.ToString()));
  impl->hash = sha256_hex(impl->model);
  return Tokenizer(impl);
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int> ids;
  const std::string valid = data::first_invalid_utf8(text) == data::kAllValid
                                ? std::string(text)
                                : data::replace_invalid_utf8(text);
  const auto status = impl_->processor.Encode(valid, &ids);
  if (!status.ok()) throw InternalError("tokenizer: SentencePiece cannot encode: " + status.ToString());
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::vector<int> real;
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocabulary())
      bad_data("tokenizer: cannot decode id {}: the vocabulary is 0 to {}", id, vocabulary() - 1);
    if (id != kPadId && id != kEosId) real.push_back(id);
  }
  std::string text;
  const auto status = impl_->processor.Decode(real, &text);
  if (!status.ok()) throw InternalError("tokenizer: SentencePiece cannot decode: " + status.ToString());
  return text;
}

int Tokenizer::vocabulary() const {
  return impl_->processor.GetPieceSize();
}

std::string Tokenizer::piece(std::int32_t id) const {
  if (id < 0 || id >= vocabulary())
    bad_data("tokenizer: there is no piece {}: the vocabulary is 0 to {}", id, vocabulary() - 1);
  return impl_->processor.IdToPiece(id);
}

const std::string& Tokenizer::hash() const {
  return impl_->hash;
}
const std::string& Tokenizer::model() const {
  return impl_->model;
}

}  // namespace tessera
