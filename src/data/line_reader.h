// Lines of a text file, plain or compressed, with bounded memory: the one place that knows gzip, zstd, line
// ends, byte order marks and the limit on a line's length.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tessera::data {

// Throws UserError (BadData) with "data: " in front when `path` is missing or no regular file. Follows links.
std::string checked_path(const std::string& path);

// A stream of bytes. read() returns how many it put into `to`, 0 at the end.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  virtual std::size_t read(char* to, std::size_t size) = 0;
};

// The file's bytes, decompressed when it begins like gzip or zstd. Throws UserError on damaged or cut
// streams.
std::unique_ptr<ByteStream> open_bytes(const std::string& path);

class LineReader {
 public:
  LineReader(const std::string& path, std::int64_t max_line_bytes);

  // False at the end. The view lives until the next call. A last line without an end counts; an empty file
  // has none.
  bool next(std::string_view& line);

  const std::string& path() const { return path_; }
  std::int64_t number() const { return number_; }  // of the line returned last, from 1
  std::int64_t offset() const { return offset_; }  // of its first byte in the decompressed text

 private:
  bool refill();

  std::string path_;
  std::int64_t limit_;
  std::unique_ptr<ByteStream> bytes_;
  std::string buffer_;
  std::size_t at_ = 0;              // first byte of buffer_ that was not returned
  std::int64_t buffer_offset_ = 0;  // of buffer_[0] in the text
  bool ended_ = false;
  std::int64_t number_ = 0, offset_ = 0;
};

}  // namespace tessera::data
