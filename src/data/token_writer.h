// Writes token files (token_cache.h) and says where their parts lie.
#pragma once

#include "data/token_cache.h"

namespace tessera::data {

// Bytes after the header where the counts and the offsets begin, and of all parts together. REQUIRES examples
// and tokens below 2^56. Offsets are aligned to 8 bytes.
constexpr std::uint64_t counts_place(const TokenHeader& h) {
  return 4 * h.tokens;
}
constexpr std::uint64_t offsets_place(const TokenHeader& h) {
  return (4 * h.tokens + 8 * h.examples + 7) / 8 * 8;
}
constexpr std::uint64_t tokens_bytes(const TokenHeader& h) {
  return offsets_place(h) + 8 * (h.sides * h.examples + 1);
}

// The checksum of a file whose bytes after the header have the CRC-32C `body`.
std::uint32_t file_checksum(TokenHeader header, std::uint32_t body);

// Tokenises the whole source with a few threads and puts the file there by rename: a reader sees all or
// nothing.
void write_tokens(const DataSource& source, const Tokenizer& tokenizer, const std::string& key,
                  const std::string& path);

}  // namespace tessera::data
