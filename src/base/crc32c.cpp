// CRC-32C by table and, on x86-64 with SSE 4.2, by instruction.
#include "base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace tessera {
namespace {

constexpr std::array<std::uint32_t, 256> kTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? 0x82F63B78u : 0);
    table[i] = value;
  }
  return table;
}();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t crc32c_instruction(const unsigned char* p, std::size_t bytes,
                                                                   std::uint32_t crc) {
  std::uint64_t value = static_cast<std::uint32_t>(~crc);
  for (; bytes >= 8; p += 8, bytes -= 8) {
    std::uint64_t word;
    std::memcpy(&word, p, 8);
    value = _mm_crc32_u64(value, word);
  }
  auto narrow = static_cast<std::uint32_t>(value);
  for (; bytes > 0; ++p, --bytes) narrow = _mm_crc32_u8(narrow, *p);
  return ~narrow;
}
#endif

}  // namespace

std::uint32_t crc32c_portable(const void* data, std::size_t bytes, std::uint32_t crc) {
  const auto* p = static_cast<const unsigned char*>(data);
  crc = ~crc;
  for (std::size_t i = 0; i < bytes; ++i) crc = (crc >> 8) ^ kTable[(crc ^ p[i]) & 0xFF];
  return ~crc;
}

std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t crc) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) {
    return crc32c_instruction(static_cast<const unsigned char*>(data), bytes, crc);
  }
#endif
  return crc32c_portable(data, bytes, crc);
}

}  // namespace tessera
