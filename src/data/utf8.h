// UTF-8 as the data layer needs it: strict decoding that names the first bad byte, Python's idea of white
// space, the general categories N, P and S, and lower case. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::data {

// One step of decoding: `length` bytes from `at` are the code point, or (valid = false) the maximal
// ill-formed subpart that Unicode says becomes one U+FFFD. REQUIRES at < text.size(); length >= 1.
struct Decoded {
  char32_t code = 0;
  std::size_t length = 1;
  bool valid = true;
};
Decoded decode_utf8(std::string_view text, std::size_t at);

void append_utf8(std::string& out, char32_t code);

constexpr std::size_t kAllValid = static_cast<std::size_t>(-1);
std::size_t first_invalid_utf8(std::string_view text);  // byte offset, or kAllValid
std::string replace_invalid_utf8(std::string_view text);

bool is_space(char32_t code);        // what str.split() splits on
bool is_number(char32_t code);       // category N
bool is_punctuation(char32_t code);  // category P
bool is_symbol(char32_t code);       // category S

// Simple lower case, point by point (Greek final sigma is not special). Ill-formed bytes stay.
std::string to_lower(std::string_view text);

// The parts between white space; views into `text`.
std::vector<std::string_view> split_words(std::string_view text);
std::string_view strip_right(std::string_view text);

}  // namespace tessera::data
