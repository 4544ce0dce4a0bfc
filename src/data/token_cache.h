// The token file: a DataSource tokenised once. Little-endian; mapped into memory; wholly checked when opened,
// so that no damaged byte ever becomes an index into an embedding.
//
//   header (TokenHeader) | tokens i32[tokens] | counts u32[2 * examples] (words, bytes) | offsets u64[sides *
//   examples + 1]
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tessera/data.h"

namespace tessera::data {

constexpr std::uint32_t kTokenFormat = 1;

struct TokenHeader {
  char magic[8];         // "TESSTOKS"
  std::uint32_t format;  // kTokenFormat
  std::uint32_t sides;   // 2 with targets, else 1
  std::uint32_t vocabulary;
  std::uint32_t checksum;  // CRC-32C of what follows the header
  std::uint64_t examples;
  std::uint64_t tokens;
  std::uint64_t empty, replaced_utf8, skipped_utf8;
  char key[64];  // token_key()
};
static_assert(sizeof(TokenHeader) == 128);

// SHA-256 over the content of the files, the tokenizer and whatever else the tokens depend on.
std::string token_key(const DataSource& source, const Tokenizer& tokenizer);

class TokenCache {
 public:
  // Opens folder/<key>.tokens, or makes it (again when damaged). Throws UserError on bad data or when nothing
  // is usable.
  static TokenCache open(const DataSource& source, const Tokenizer& tokenizer, const std::string& folder);

  // Throws UserError (BadData) with what is wrong in the file. `vocabulary` is the tokenizer's.
  static TokenCache map(const std::string& path, const std::string& key, int vocabulary);

  std::int64_t examples() const { return static_cast<std::int64_t>(header().examples); }
  int sides() const { return static_cast<int>(header().sides); }
  const std::string& key() const { return key_; }

  // Tokens without the end. side: 0 source (or the text), 1 target.
  std::span<const std::int32_t> tokens(std::int64_t example, int side) const {
    const std::uint64_t* at = offsets_ + example * sides() + side;
    return {tokens_ + at[0], static_cast<std::size_t>(at[1] - at[0])};
  }
  // Of the last side's text, with one end each.
  std::int64_t words(std::int64_t example) const { return counts_[2 * example]; }
  std::int64_t bytes(std::int64_t example) const { return counts_[2 * example + 1]; }

  DataStats stats() const;  // what was left out while reading; nothing about lengths

 private:
  const TokenHeader& header() const { return *static_cast<const TokenHeader*>(mapping_.get()); }
  static TokenCache try_map(const std::string& path, const std::string& key, int vocabulary,
                            std::string& fault);
  std::string fault_in(std::size_t size, int vocabulary) const;

  std::shared_ptr<const void> mapping_;
  const std::int32_t* tokens_ = nullptr;
  const std::uint32_t* counts_ = nullptr;
  const std::uint64_t* offsets_ = nullptr;
  std::string key_;
};

}  // namespace tessera::data
