// Decompression by zlib and zstd in chunks, and the search for line ends.
#include "data/line_reader.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "data/data_error.h"

namespace tessera::data {
namespace {

constexpr std::size_t kChunk = 1 << 16;

class PlainStream : public ByteStream {
 public:
  explicit PlainStream(const std::string& path)
      : file_(File::open(real_vfs(), checked_path(path))), size_(file_.size()) {}

  std::size_t read(char* to, std::size_t size) override {
    const std::size_t n = static_cast<std::size_t>(std::min<std::uint64_t>(size, size_ - at_));
    if (n > 0) file_.read_at(to, n, at_);
    at_ += n;
    return n;
  }

  // The first bytes, without moving on.
  std::string peek(std::size_t size) const {
    std::string head(static_cast<std::size_t>(std::min<std::uint64_t>(size, size_)), '\0');
    if (!head.empty()) file_.read_at(head.data(), head.size(), 0);
    return head;
  }

 private:
  File file_;
  std::uint64_t size_, at_ = 0;
};

class GzipStream : public ByteStream {
 public:
  GzipStream(std::string path, std::unique_ptr<ByteStream> from)
      : path_(std::move(path)), from_(std::move(from)), input_(kChunk) {
    constexpr int kGzip = 15 + 16;  // the largest window, gzip framing
    if (inflateInit2(&state_, kGzip) != Z_OK) throw SystemError("zlib has no memory", ExitCode::Memory);
  }
  ~GzipStream() override { inflateEnd(&state_); }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  std::size_t read(char* to, std::size_t size) override {
    state_.next_out = reinterpret_cast<Bytef*>(to);
    state_.avail_out = static_cast<uInt>(std::min(size, kChunk));
    const uInt wanted = state_.avail_out;
    while (state_.avail_out == wanted) {
      if (state_.avail_in == 0) {
        state_.next_in = reinterpret_cast<Bytef*>(input_.data());
        state_.avail_in = static_cast<uInt>(from_->read(input_.data(), input_.size()));
        if (state_.avail_in == 0) {
          if (!between_members_)
            bad_data("data: '{}' ends inside a gzip stream; it was cut, make it again", printable(path_));
          return 0;
        }
      }
      if (between_members_) inflateReset(&state_);  // files made of several gzip streams are legal
      between_members_ = false;
      const int code = inflate(&state_, Z_NO_FLUSH);
      if (code == Z_STREAM_END) {
        between_members_ = true;
      } else if (code != Z_OK && code != Z_BUF_ERROR) {
        bad_data("data: '{}' is a damaged gzip file ({})", printable(path_),
                 state_.msg ? state_.msg : "zlib error");
      }
    }
    return wanted - state_.avail_out;
  }

 private:
  std::string path_;
  std::unique_ptr<ByteStream> from_;
  std::vector<char> input_;
  z_stream state_ = {};
  bool between_members_ = false;
};

class ZstdStream : public ByteStream {
 public:
  ZstdStream(std::string path, std::unique_ptr<ByteStream> from)
      : path_(std::move(path)),
        from_(std::move(from)),
        input_(kChunk),
        state_(ZSTD_createDStream(), ZSTD_freeDStream) {
    if (!state_) throw SystemError("zstd has no memory", ExitCode::Memory);
  }

  std::size_t read(char* to, std::size_t size) override {
    ZSTD_outBuffer out = {to, size, 0};
    while (out.pos == 0) {
      if (in_.pos == in_.size && !flushing_) {
        in_ = {input_.data(), from_->read(input_.data(), input_.size()), 0};
        if (in_.size == 0) {
          if (inside_frame_)
            bad_data("data: '{}' ends inside a zstd frame; it was cut, make it again", printable(path_));
          return 0;
        }
      }
      const std::size_t left = ZSTD_decompressStream(state_.get(), &out, &in_);
      if (ZSTD_isError(left)) {
        bad_data("data: '{}' is a damaged zstd file ({})", printable(path_), ZSTD_getErrorName(left));
      }
      inside_frame_ = left != 0;
      flushing_ = out.pos == out.size && inside_frame_;  // the decoder may hold more than fitted
    }
    return out.pos;
  }

 private:
  std::string path_;
  std::unique_ptr<ByteStream> from_;
  std::vector<char> input_;
  std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> state_;
  ZSTD_inBuffer in_ = {nullptr, 0, 0};
  bool inside_frame_ = false, flushing_ = false;
};

}  // namespace

std::string checked_path(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    bad_data("data: there is no file '{}'; check the path in the configuration", printable(path));
  }
  if (!error && status.type() != std::filesystem::file_type::regular) {
    bad_data("data: '{}' is not a regular file; name a text file, plain, .gz or .zst", printable(path));
  }
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  return error ? path : real.string();
}

std::unique_ptr<ByteStream> open_bytes(const std::string& path) {
  auto plain = std::make_unique<PlainStream>(path);
  const std::string head = plain->peek(4);
  if (head.starts_with("\x1f\x8b")) return std::make_unique<GzipStream>(path, std::move(plain));
  if (head == "\x28\xb5\x2f\xfd") return std::make_unique<ZstdStream>(path, std::move(plain));
  return plain;
}

LineReader::LineReader(const std::string& path, std::int64_t max_line_bytes)
    : path_(path), limit_(max_line_bytes), bytes_(open_bytes(path)) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  while (buffer_.size() < kByteOrderMark.size() && refill()) continue;
  if (buffer_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
}

bool LineReader::refill() {
  if (ended_) return false;
  buffer_.erase(0, at_);
  buffer_offset_ += static_cast<std::int64_t>(at_);
  at_ = 0;
  const std::size_t old = buffer_.size();
  buffer_.resize(old + kChunk);
  const std::size_t n = bytes_->read(buffer_.data() + old, kChunk);
  buffer_.resize(old + n);
  ended_ = n == 0;
  return !ended_;
}

bool LineReader::next(std::string_view& line) {
  std::size_t searched = at_;
  std::size_t end;
  while ((end = buffer_.find('\n', searched)) == std::string::npos) {
    const std::size_t have = buffer_.size() - at_;
    if (static_cast<std::int64_t>(have) > limit_) break;
    if (!refill()) {
      end = buffer_.size();
      break;
    }
    searched = at_ + have;
  }
  if (end != std::string::npos && end == buffer_.size() && at_ == end) return false;
  ++number_;
  if (end == std::string::npos || static_cast<std::int64_t>(end - at_) > limit_) {
    bad_data("data: line {} of '{}' is longer than {} bytes; split it or raise the limit", number_,
             printable(path_), limit_);
  }
  offset_ = buffer_offset_ + static_cast<std::int64_t>(at_);
  line = std::string_view(buffer_).substr(at_, end - at_);
  if (line.ends_with('\r')) line.remove_suffix(1);
  at_ = std::min(end + 1, buffer_.size());
  return true;
}

}  // namespace tessera::data
