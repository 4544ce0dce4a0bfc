// A part of a tensor inside a file: the row-major bytes of one box, from which any smaller box can be read in
// pieces of at most 4 MiB, each checked against its CRC where there is one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/file.h"
#include "tessera/box.h"

namespace tessera {

constexpr std::uint64_t kPieceBytes = 4u << 20;  // a multiple of every element size

inline std::uint64_t piece_count(std::uint64_t bytes) {
  return (bytes + kPieceBytes - 1) / kPieceBytes;
}

struct Region {
  Box box;
  std::uint64_t offset = 0;        // of its first byte in the file
  std::vector<std::uint32_t> crc;  // CRC-32C of each piece; empty: not checked

  std::uint64_t bytes(std::size_t element) const {
    return static_cast<std::uint64_t>(box.elements()) * element;
  }
};

// Copies `part` (inside both boxes) from the region to `to`, a row-major buffer of `to_box`. `damaged` is
// called with the number of a piece whose CRC is wrong, and must throw.
void read_region(const File& file, const Region& region, const Box& part, void* to, const Box& to_box,
                 std::size_t element, const std::function<void(std::uint64_t)>& damaged);

}  // namespace tessera
