// Text that comes from outside.
#include "base/text.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iterator>

#include "base/check.h"

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

namespace {

constexpr const char* kBinaryUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
constexpr const char* kDecimalUnits[] = {"B", "kB", "MB", "GB", "TB"};

}  // namespace

std::int64_t parse_bytes(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  std::string unit(end);
  unit.erase(0, unit.find_first_not_of(' '));
  double scale = unit.empty() ? 1 : 0;
  for (std::size_t u = 0; u < std::size(kBinaryUnits); ++u) {
    if (unit == kBinaryUnits[u]) scale = std::pow(1024.0, static_cast<double>(u));
    if (unit == kDecimalUnits[u]) scale = std::pow(1000.0, static_cast<double>(u));
  }
  constexpr double kMost = 1e18;
  TESSERA_CHECK(end != text.c_str() && scale > 0 && number >= 0 && number * scale <= kMost,
                "'{}' is no number of bytes; write it as 900MiB, 1.5GB or 4096", printable(text));
  return static_cast<std::int64_t>(number * scale);
}

std::string bytes_text(std::int64_t bytes) {
  std::size_t unit = 0;
  for (; bytes > 0 && bytes % 1024 == 0 && unit + 1 < std::size(kBinaryUnits); ++unit) bytes /= 1024;
  return fmt::format("{}{}", bytes, kBinaryUnits[unit]);
}

std::string people_bytes(std::int64_t bytes) {
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kBinaryUnits); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kBinaryUnits[unit]);
}

}  // namespace tessera
