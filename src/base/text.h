// Text that comes from outside: validity of UTF-8, and a form that is safe to print.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// Length in bytes (1 to 4) of the well-formed UTF-8 character at the start of `text`; 0 if there is none.
// Overlong forms, surrogates and values above U+10FFFF are not well-formed.
std::size_t utf8_length(std::string_view text);

bool is_utf8(std::string_view text);

// The text with control characters and malformed bytes written as \xNN, cut to `limit` bytes with "..." at
// the end: names from files must not reach a terminal raw.
std::string printable(std::string_view text, std::size_t limit = 200);

// A number of bytes: "900MiB", "1.5 GB", "4096"; units B, kB, MB, GB, TB (powers of 1000), KiB, MiB, GiB,
// TiB. Throws UserError.
std::int64_t parse_bytes(const std::string& text);
// Short and exact, for parse_bytes: "900MiB", "4097B".
std::string bytes_text(std::int64_t bytes);
// For people: "899.6 MiB".
std::string people_bytes(std::int64_t bytes);

}  // namespace tessera
