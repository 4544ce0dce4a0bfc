// Opening, checking and finding token files; token_writer.cpp makes them.
#include "data/token_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/checked.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/text.h"
#include "data/data_error.h"
#include "data/line_reader.h"
#include "data/token_writer.h"

namespace tessera::data {
namespace {

void hash_text(Sha256& hash, std::string_view text) {
  const std::uint64_t size =
      text.size();  // the length goes first, so that ("ab", "c") and ("a", "bc") differ
  hash.update(&size, sizeof size);
  hash.update(text.data(), text.size());
}

void hash_files(Sha256& hash, const std::vector<std::string>& paths) {
  hash_text(hash, std::to_string(paths.size()));
  std::vector<char> block(1 << 20);
  for (const std::string& path : paths) {
    const File file = File::open(real_vfs(), checked_path(path));
    const std::uint64_t size = file.size();
    hash.update(&size, sizeof size);
    for (std::uint64_t at = 0; at < size; at += block.size()) {
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(block.size(), size - at));
      file.read_at(block.data(), n, at);
      hash.update(block.data(), n);
    }
  }
}

// A private read-only mapping of the whole file, released with the last copy.
std::shared_ptr<const void> map_file(const std::string& path, std::size_t& size) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw_file_error("open", path, errno);
  struct stat info = {};
  const int failed = fstat(file, &info) < 0 ? errno : 0;
  size = failed ? 0 : static_cast<std::size_t>(info.st_size);
  void* data = size > 0 ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0) : nullptr;
  const int map_failed = data == MAP_FAILED ? errno : 0;
  ::close(file);
  if (failed || map_failed) throw_file_error("map", path, failed ? failed : map_failed);
  return {data, [size](const void* p) {
            if (p != nullptr) munmap(const_cast<void*>(p), size);
          }};
}

}  // namespace

std::string token_key(const DataSource& source, const Tokenizer& tokenizer) {
  Sha256 hash;
  hash_text(hash, "tessera tokens " + std::to_string(kTokenFormat));
  hash_text(hash, tokenizer.hash());
  hash_text(hash, std::to_string(static_cast<int>(source.format)));
  hash_text(hash, std::to_string(static_cast<int>(source.invalid_utf8)));
  hash_files(hash, source.files);
  hash_files(hash, source.target_files);
  if (!source.origins.empty()) hash_files(hash, source.document_files);
  for (const std::string& origin : source.origins) hash_text(hash, origin);
  if (source.format == DataSource::Format::Jsonl) {
    hash_text(hash, source.source_key);
    hash_text(hash, source.target_key);
  }
  return hash.hex();
}

// What is wrong, or "" for a good file. `size` bytes are mapped, at least a header.
std::string TokenCache::fault_in(std::size_t size, int vocabulary) const {
  const TokenHeader& h = header();
  if (std::memcmp(h.magic, "TESSTOKS", sizeof h.magic) != 0) return "it is no token file";
  if (h.format != kTokenFormat) return fmt::format("its format is {}, not {}", h.format, kTokenFormat);
  if (std::string_view(h.key, sizeof h.key) != key_) return "it belongs to other data or another tokenizer";
  if (h.vocabulary != static_cast<std::uint32_t>(vocabulary)) {
    return fmt::format("its vocabulary is {}, not {}", h.vocabulary, vocabulary);
  }
  if (h.sides < 1 || h.sides > 2 || h.examples > size || h.tokens > size ||
      tokens_bytes(h) + sizeof h != size) {
    return "its size does not fit its header; it was cut";
  }
  const auto* body = static_cast<const char*>(mapping_.get()) + sizeof h;
  if (file_checksum(h, crc32c(body, size - sizeof h)) != h.checksum) return "its checksum is wrong";
  const std::int32_t* tokens = reinterpret_cast<const std::int32_t*>(body);
  const std::uint64_t* offsets = reinterpret_cast<const std::uint64_t*>(body + offsets_place(h));
  const std::uint64_t places = h.sides * h.examples;
  if (offsets[0] != 0 || offsets[places] != h.tokens || !std::is_sorted(offsets, offsets + places + 1)) {
    return "its offsets are wrong";
  }
  const auto [least, most] = std::minmax_element(tokens, tokens + h.tokens);
  if (h.tokens > 0 && (*least <= kEosId || *most >= vocabulary)) {
    return fmt::format("it holds the token {}, outside of text tokens {} to {}",
                       *least <= kEosId ? *least : *most, kEosId + 1, vocabulary - 1);
  }
  return "";
}

// Leaves `fault` empty for a good file.
TokenCache TokenCache::try_map(const std::string& path, const std::string& key, int vocabulary,
                               std::string& fault) {
  TokenCache cache;
  cache.key_ = key;
  std::size_t size = 0;
  cache.mapping_ = map_file(path, size);
  fault = size < sizeof(TokenHeader) ? "it is shorter than its header" : cache.fault_in(size, vocabulary);
  if (!fault.empty()) return cache;
  const auto* body = static_cast<const char*>(cache.mapping_.get()) + sizeof(TokenHeader);
  cache.tokens_ = reinterpret_cast<const std::int32_t*>(body);
  cache.counts_ = reinterpret_cast<const std::uint32_t*>(body + counts_place(cache.header()));
  cache.offsets_ = reinterpret_cast<const std::uint64_t*>(body + offsets_place(cache.header()));
  return cache;
}

TokenCache TokenCache::map(const std::string& path, const std::string& key, int vocabulary) {
  std::string fault;
  TokenCache cache = try_map(path, key, vocabulary, fault);
  if (!fault.empty()) bad_data("data: the token file '{}' is damaged: {}; delete it", printable(path), fault);
  return cache;
}

TokenCache TokenCache::open(const DataSource& source, const Tokenizer& tokenizer, const std::string& folder) {
  const std::string key = token_key(source, tokenizer);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw_file_error("make the folder", folder, error.value());
  const std::string path = (std::filesystem::path(folder) / (key + ".tokens")).string();
  if (std::filesystem::exists(path, error)) {
    std::string fault;
    TokenCache cache = try_map(path, key, tokenizer.vocabulary(), fault);
    if (fault.empty()) return cache;
    log_warning("data: the token file '{}' is damaged: {}; it is made again", printable(path), fault);
  }
  write_tokens(source, tokenizer, key, path);
  return map(path, key, tokenizer.vocabulary());
}

DataStats TokenCache::stats() const {
  DataStats stats;
  stats.empty = static_cast<std::int64_t>(header().empty);
  stats.replaced_utf8 = static_cast<std::int64_t>(header().replaced_utf8);
  stats.skipped_utf8 = static_cast<std::int64_t>(header().skipped_utf8);
  return stats;
}

}  // namespace tessera::data
