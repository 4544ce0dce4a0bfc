// Text that comes from outside.
#include "base/text.h"

#include <fmt/format.h>

#include <cstdint>

namespace tessera {

std::size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  // The second byte carries the limits that exclude overlong forms, surrogates and values past U+10FFFF.
  const std::uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const std::uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  return length;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string printable(std::string_view text, std::size_t limit) {
  std::string out;
  while (!text.empty()) {
    if (out.size() >= limit) return out + "...";
    const std::size_t length = utf8_length(text);
    const auto first = static_cast<std::uint8_t>(text[0]);
    // U+0080 to U+009F are control characters too; they are written C2 80 to C2 9F.
    const bool control = first < 0x20 || first == 0x7F ||
                         (length == 2 && first == 0xC2 && static_cast<std::uint8_t>(text[1]) < 0xA0);
    const std::size_t taken = length == 0 ? 1 : length;
    if (length == 0 || control) {
      for (std::size_t i = 0; i < taken; ++i)
        out += fmt::format("\\x{:02x}", static_cast<std::uint8_t>(text[i]));
    } else {
      out += text.substr(0, taken);
    }
    text.remove_prefix(taken);
  }
  return out;
}

}  // namespace tessera
