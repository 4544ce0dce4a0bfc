// Rows of a fixed length made of several short texts, for language modelling.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::data {

// A piece of an example: tokens [begin, begin + size) of the example with its end.
struct Segment {
  std::int64_t example = 0;
  std::int64_t begin = 0;
  std::int64_t size = 0;
};

struct PackedRows {
  std::vector<Segment> segments;            // of all rows
  std::vector<std::int64_t> first_segment;  // [rows + 1]

  std::int64_t rows() const { return static_cast<std::int64_t>(first_segment.size()) - 1; }
  std::span<const Segment> row(std::int64_t i) const {
    return {segments.data() + first_segment[i],
            static_cast<std::size_t>(first_segment[i + 1] - first_segment[i])};
  }
};

// Cuts examples longer than a row, then puts each piece into the row where the least room is left (best fit);
// with `packed` off each piece gets a row of its own. Depends on the lengths alone.
PackedRows pack(std::span<const std::int64_t> lengths, std::int64_t row_length, bool packed);

}  // namespace tessera::data
