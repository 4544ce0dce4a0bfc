// The tokenizer: SentencePiece models with fixed special ids, trained here or brought along. Layer data.
//
//   Tokenizer t = Tokenizer::train({"train.en", "train.fr"}, {}, "spm.model");
//   std::vector<std::int32_t> ids = t.encode("A small house.");    // without an end: append kEosId where one
//   belongs std::string text = t.decode(ids);
//
// A Tokenizer is a value that shares its model; const use from any thread. A model file is hostile input: it
// is checked as a whole before SentencePiece sees it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

inline constexpr std::int32_t kPadId = 0;  // never a token of real text
inline constexpr std::int32_t kEosId = 1;
inline constexpr std::int32_t kUnknownId = 2;  // there is no begin-of-sentence id

enum class TokenizerKind { Unigram, Bpe };

const char* to_string(TokenizerKind kind);             // "unigram", "bpe"
TokenizerKind parse_tokenizer_kind(std::string_view);  // throws UserError that lists the names

struct TokenizerOptions {
  TokenizerKind kind = TokenizerKind::Unigram;
  int vocabulary = 8000;                // pieces, the three special ones and 256 bytes included
  bool byte_fallback = true;            // unknown characters become bytes instead of kUnknownId
  std::int64_t max_sentences = 50'000;  // a pseudo-random share is taken when there are more
  double character_coverage = 0.9998;   // share of the characters that get pieces of their own
};

class Tokenizer {
 public:
  // Trains on the lines of text files (.gz and .zst too) and writes the model to `model_path`, replacing it
  // at once. The same lines and options give the same model on every machine. Throws UserError (BadData) on
  // unreadable or too little text, (Usage) on impossible options.
  static Tokenizer train(const std::vector<std::string>& files, const TokenizerOptions& options,
                         const std::string& model_path);

  // The same on lines: `next` puts the next one into its argument, or returns false at the end.
  static Tokenizer train(const std::function<bool(std::string& line)>& next, const TokenizerOptions& options,
                         const std::string& model_path);

  // Throws UserError (BadData) when there is no usable model.
  static Tokenizer load(const std::string& model_path);

  std::vector<std::int32_t> encode(std::string_view text) const;  // ill-formed UTF-8 becomes U+FFFD
  std::string decode(
      std::span<const std::int32_t> ids) const;  // special ids vanish; throws UserError on ids outside

  int vocabulary() const;
  std::string piece(std::int32_t id) const;  // "▁the"; throws UserError on ids outside
  const std::string& hash() const;           // SHA-256 of the model file, 64 hexadecimal digits
  const std::string& model() const;          // the model file's bytes, to copy into a run folder

 private:
  struct Impl;
  explicit Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace tessera
