// A strict scanner for safetensors headers.
#include "io/json_scanner.h"

#include "base/check.h"
#include "base/checked.h"
#include "base/text.h"

namespace tessera {
namespace {

void append_utf8(std::string& out, std::uint32_t c) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace

void JsonScanner::fail(std::string_view reason) const {
  throw UserError(
      fmt::format("'{}' is not a valid safetensors file: header byte {}: {}", printable(path_), at_, reason),
      ExitCode::BadData);
}

void JsonScanner::skip_space() {
  while (at_ < text_.size() &&
         (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
    ++at_;
  }
}

bool JsonScanner::accept(char c) {
  skip_space();
  if (at_ >= text_.size() || text_[at_] != c) return false;
  ++at_;
  return true;
}

void JsonScanner::expect(char c) {
  if (accept(c)) return;
  if (at_ >= text_.size()) fail(fmt::format("ends where '{}' is due", c));
  fail(fmt::format("'{}' where '{}' is due", printable(text_.substr(at_, 1)), c));
}

void JsonScanner::expect_end() {
  skip_space();
  if (at_ < text_.size()) fail("text after the end of the object");
}

std::int64_t JsonScanner::integer() {
  skip_space();
  const std::size_t begin = at_;
  std::int64_t value = 0;
  while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
    const auto scaled = checked_multiply<std::int64_t>(value, 10);
    const auto sum = scaled ? checked_add<std::int64_t>(*scaled, text_[at_] - '0') : std::nullopt;
    if (!sum) fail("a number beyond 2^63 - 1");
    value = *sum;
    ++at_;
  }
  if (at_ == begin) fail("no plain non-negative integer where one is due");
  if (text_[begin] == '0' && at_ > begin + 1) fail("a number with a leading zero");
  if (at_ < text_.size() && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E')) {
    fail("a number that is no plain integer");
  }
  return value;
}

std::string JsonScanner::string(std::uint64_t limit) {
  expect('"');
  std::string out;
  while (true) {
    if (at_ >= text_.size()) fail("ends inside a string");
    const char c = text_[at_];
    if (c == '"') break;
    if (static_cast<unsigned char>(c) < 0x20) fail("a control character inside a string");
    if (c == '\\') {
      ++at_;
      escape(out);
    } else {
      const std::size_t length = utf8_length(text_.substr(at_, 4));
      if (length == 0) fail("a string that is not UTF-8");
      out += text_.substr(at_, length);
      at_ += length;
    }
    if (out.size() > limit) fail(fmt::format("a string of more than {} bytes", limit));
  }
  ++at_;
  return out;
}

void JsonScanner::escape(std::string& out) {
  if (at_ >= text_.size()) fail("ends inside a string");
  const char c = text_[at_++];
  constexpr std::string_view kLetters = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
  if (const std::size_t i = kLetters.find(c); i != std::string_view::npos) {
    out += kMeanings[i];
    return;
  }
  if (c != 'u') fail("an unknown escape in a string");
  std::uint32_t code = hex4();
  if (code >= 0xDC00 && code < 0xE000) fail("half of a surrogate pair");
  if (code >= 0xD800 && code < 0xDC00) {
    if (text_.substr(at_, 2) != "\\u") fail("half of a surrogate pair");
    at_ += 2;
    const std::uint32_t low = hex4();
    if (low < 0xDC00 || low >= 0xE000) fail("half of a surrogate pair");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  append_utf8(out, code);
}

std::uint32_t JsonScanner::hex4() {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    const bool digit = c >= '0' && c <= '9', lower = c >= 'a' && c <= 'f', upper = c >= 'A' && c <= 'F';
    if (!digit && !lower && !upper) fail("a \\u escape without four hexadecimal digits");
    value = value * 16 + static_cast<std::uint32_t>(digit ? c - '0' : lower ? c - 'a' + 10 : c - 'A' + 10);
  }
  return value;
}

}  // namespace tessera
