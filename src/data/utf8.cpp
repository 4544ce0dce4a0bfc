// Strict UTF-8 decoding (Unicode 3.9, table 3-7) and searches in the property tables.
#include "data/utf8.h"

#include <algorithm>

#include "data/unicode_tables.h"

namespace tessera::data {
namespace {

// What may follow a lead byte: how many bytes, and the range of the second (the others are 80..BF).
struct Lead {
  int more;
  int low, high;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0xc2 || byte > 0xf4) return {-1, 0, 0};
  if (byte < 0xe0) return {1, 0x80, 0xbf};
  if (byte < 0xf0) return {2, byte == 0xe0 ? 0xa0 : 0x80, byte == 0xed ? 0x9f : 0xbf};
  return {3, byte == 0xf0 ? 0x90 : 0x80, byte == 0xf4 ? 0x8f : 0xbf};
}

bool in_ranges(std::span<const CodeRange> ranges, char32_t code) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), code,
                                      [](char32_t c, const CodeRange& range) { return c < range.first; });
  return after != ranges.begin() && code <= std::prev(after)->last;
}

char32_t lower_of(char32_t code) {
  const auto after = std::upper_bound(kLowerRuns.begin(), kLowerRuns.end(), code,
                                      [](char32_t c, const LowerRun& run) { return c < run.first; });
  if (after == kLowerRuns.begin()) return code;
  const LowerRun& run = *std::prev(after);
  if (code > run.last || (code - run.first) % static_cast<char32_t>(run.step) != 0) return code;
  return static_cast<char32_t>(static_cast<std::int32_t>(code) + run.delta);
}

}  // namespace

Decoded decode_utf8(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) return {first, 1, true};
  const Lead lead = lead_of(first);
  if (lead.more < 0) return {0xfffd, 1, false};
  char32_t code = first & (0x3fu >> lead.more);
  std::size_t length = 1;
  for (int i = 0; i < lead.more; ++i, ++length) {
    if (at + length >= text.size()) return {0xfffd, length, false};
    const unsigned char next = byte(at + length);
    const int low = i == 0 ? lead.low : 0x80, high = i == 0 ? lead.high : 0xbf;
    if (next < low || next > high) return {0xfffd, length, false};
    code = code << 6 | (next & 0x3fu);
  }
  return {code, length, true};
}

void append_utf8(std::string& out, char32_t code) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6), put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12), put(0x80 | (code >> 6 & 0x3f)), put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18), put(0x80 | (code >> 12 & 0x3f)), put(0x80 | (code >> 6 & 0x3f)),
        put(0x80 | (code & 0x3f));
  }
}

std::size_t first_invalid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const Decoded d = decode_utf8(text, i);
    if (!d.valid) return i;
    i += d.length;
  }
  return kAllValid;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const Decoded d = decode_utf8(text, i);
    if (d.valid) {
      out.append(text.substr(i, d.length));
    } else {
      append_utf8(out, 0xfffd);
    }
    i += d.length;
  }
  return out;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool is_number(char32_t code) {
  return in_ranges(kNumbers, code);
}
bool is_punctuation(char32_t code) {
  return in_ranges(kPunctuation, code);
}
bool is_symbol(char32_t code) {
  return in_ranges(kSymbols, code);
}

std::string to_lower(std::string_view text) {
  constexpr char32_t kCapitalIWithDot = 0x130;  // the one point whose lower case is two
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const Decoded d = decode_utf8(text, i);
    if (!d.valid) {
      out.append(text.substr(i, d.length));
    } else if (d.code == kCapitalIWithDot) {
      out.append("i\u0307");
    } else {
      append_utf8(out, lower_of(d.code));
    }
    i += d.length;
  }
  return out;
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  std::size_t start = 0;
  for (std::size_t i = 0; i <= text.size();) {
    const Decoded d = i < text.size() ? decode_utf8(text, i) : Decoded{' ', 1, true};
    if (d.valid && is_space(d.code)) {
      if (i > start) words.push_back(text.substr(start, i - start));
      start = i + d.length;
    }
    i += d.length;
  }
  return words;
}

std::string_view strip_right(std::string_view text) {
  std::size_t end = 0;
  for (std::size_t i = 0; i < text.size();) {
    const Decoded d = decode_utf8(text, i);
    i += d.length;
    if (!d.valid || !is_space(d.code)) end = i;
  }
  return text.substr(0, end);
}

}  // namespace tessera::data
