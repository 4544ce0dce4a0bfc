// Tokenisation in blocks: read a block of examples, encode it with several threads, write its tokens in
// order.
#include "data/token_writer.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <filesystem>
#include <mutex>
#include <thread>

#include "base/cores.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "base/text.h"
#include "data/data_error.h"
#include "data/examples.h"
#include "tessera/metrics.h"

namespace tessera::data {
namespace {

struct Encoded {
  std::vector<std::int32_t> sides[2];
  std::uint32_t words = 0, bytes = 0;
};

// Runs f(i) for i < n on a few threads; rethrows the first failure.
template <class F>
void parallel(std::size_t n, F f) {
  std::atomic<std::size_t> next = 0;
  std::exception_ptr failure;
  std::mutex mutex;
  const auto work = [&] {
    try {
      for (std::size_t i; (i = next++) < n;) f(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      next = n;
    }
  };
  std::vector<std::jthread> threads;
  const int count = std::min(usable_cores(), 16);
  for (int t = 1; t < count; ++t) threads.emplace_back(work);
  work();
  threads.clear();
  if (failure) std::rethrow_exception(failure);
}

class Writer {
 public:
  Writer(const std::string& path, std::uint32_t sides) : file_(File::create(real_vfs(), path)) {
    std::memcpy(header_.magic, "TESSTOKS", sizeof header_.magic);
    header_.format = kTokenFormat;
    header_.sides = sides;
  }

  void add(const Encoded& example) {
    for (std::uint32_t side = 0; side < header_.sides; ++side) {
      const std::vector<std::int32_t>& tokens = example.sides[side];
      put(tokens.data(), 4 * tokens.size());
      header_.tokens += tokens.size();
      offsets_.push_back(header_.tokens);
    }
    counts_.push_back(example.words);
    counts_.push_back(example.bytes);
    ++header_.examples;
  }

  TokenHeader& header() { return header_; }

  void finish() {
    put(counts_.data(), 4 * counts_.size());
    const std::uint64_t zero = 0;
    put(&zero, offsets_place(header_) - written_);
    put(offsets_.data(), 8 * offsets_.size());
    flush();
    header_.checksum = file_checksum(header_, checksum_);
    file_.write_at(&header_, sizeof header_, 0);
    file_.sync();
    file_.close();
  }

 private:
  static constexpr std::size_t kBuffer = 1 << 20;

  void put(const void* data, std::size_t bytes) {
    checksum_ = crc32c(data, bytes, checksum_);
    buffer_.append(static_cast<const char*>(data), bytes);
    written_ += bytes;
    if (buffer_.size() >= kBuffer) flush();
  }
  void flush() {
    file_.write_at(buffer_.data(), buffer_.size(), sizeof header_ + written_ - buffer_.size());
    buffer_.clear();
  }

  File file_;
  TokenHeader header_ = {};
  std::uint32_t checksum_ = 0;
  std::uint64_t written_ = 0;  // bytes after the header
  std::string buffer_;
  std::vector<std::uint32_t> counts_;
  std::vector<std::uint64_t> offsets_ = {0};
};

Encoded encode(const TextExample& example, bool has_target, const Tokenizer& tokenizer) {
  Encoded result;
  result.sides[0] = tokenizer.encode(example.source);
  if (has_target) result.sides[1] = tokenizer.encode(example.target);
  Perplexity counts;
  counts.count_text(has_target ? example.target : example.source);
  result.words = static_cast<std::uint32_t>(counts.words);
  result.bytes = static_cast<std::uint32_t>(counts.bytes);
  return result;
}

void write_examples(const DataSource& source, const Tokenizer& tokenizer, ExampleReader& reader,
                    Writer& writer) {
  constexpr std::size_t kBlock = 8192;
  constexpr std::size_t kBlockBytes = 64 << 20;
  for (bool more = true; more;) {
    std::vector<TextExample> block;
    std::size_t bytes = 0;
    for (TextExample example;
         block.size() < kBlock && bytes < kBlockBytes && (more = reader.next(example));) {
      bytes += example.source.size() + example.target.size();
      block.push_back(std::move(example));
    }
    std::vector<Encoded> encoded(block.size());
    parallel(block.size(),
             [&](std::size_t i) { encoded[i] = encode(block[i], reader.has_target(), tokenizer); });
    for (const Encoded& example : encoded) {
      if (example.sides[0].empty() || (reader.has_target() && example.sides[1].empty())) {
        ++writer.header().empty;
      } else {
        writer.add(example);
      }
    }
  }
  TokenHeader& header = writer.header();
  header.replaced_utf8 = static_cast<std::uint64_t>(reader.replaced_utf8());
  header.skipped_utf8 = static_cast<std::uint64_t>(reader.skipped_utf8());
  if (header.examples == 0) {
    bad_data("data: '{}' has no usable example ({} with an empty side, {} skipped for ill-formed UTF-8)",
             printable(source.files.front()), header.empty, header.skipped_utf8);
  }
}

}  // namespace

std::uint32_t file_checksum(TokenHeader header, std::uint32_t body) {
  header.checksum = 0;
  return crc32c(&header, sizeof header, body);
}

void write_tokens(const DataSource& source, const Tokenizer& tokenizer, const std::string& key,
                  const std::string& path) {
  static std::atomic<int> serial = 0;  // two threads of one process may make the same file
  const std::string partial = fmt::format("{}.partial.{}.{}", path, getpid(), serial++);
  ExampleReader reader(source);
  try {
    Writer writer(partial, reader.has_target() ? 2 : 1);
    writer.header().vocabulary = static_cast<std::uint32_t>(tokenizer.vocabulary());
    std::memcpy(writer.header().key, key.data(), sizeof writer.header().key);
    write_examples(source, tokenizer, reader, writer);
    writer.finish();
    if (const int failed = real_vfs().rename(partial, path); failed < 0)
      throw_file_error("rename", partial, failed);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(partial, ignored);
    throw;
  }
}

}  // namespace tessera::data
