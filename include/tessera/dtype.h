// Element types and the bfloat16 value type.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

enum class DType : std::uint8_t { F32, BF16, F64, I32, Bool };

// Bytes of one element: 4, 2, 8, 4, 1.
std::size_t size_of(DType type);

// "f32", "bf16", "f64", "i32", "bool".
const char* to_string(DType type);

// The inverse of to_string; throws UserError that lists the names.
DType parse_dtype(std::string_view text);

inline bool is_floating(DType type) {
  return type == DType::F32 || type == DType::BF16 || type == DType::F64;
}

// The upper half of a float. Conversion from float rounds to nearest, ties to even; NaN stays NaN.
struct bf16 {
  std::uint16_t bits = 0;

  bf16() = default;
  explicit bf16(float value) {
    std::uint32_t u = std::bit_cast<std::uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<std::uint16_t>((u >> 16) | 0x40u);
    } else {
      bits = static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
  explicit operator double() const { return static_cast<double>(static_cast<float>(*this)); }
};

}  // namespace tessera
