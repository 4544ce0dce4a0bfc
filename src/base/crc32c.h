// CRC-32C (Castagnoli), with the processor's instruction where it has one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

// Continues from `crc`, the value of the bytes before (0 at the start).
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t crc = 0);

// The same by tables: for processors without the instruction, and as the oracle of the fast one.
std::uint32_t crc32c_portable(const void* data, std::size_t bytes, std::uint32_t crc = 0);

}  // namespace tessera
