// Pieces of JSON text.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// With quotes; malformed UTF-8 becomes U+FFFD.
std::string json_string(std::string_view text);

// The shortest digits that give the number back; "nan", "inf" or "-inf" with quotes, since JSON has no such
// numbers.
std::string json_number(double value);

}  // namespace tessera
