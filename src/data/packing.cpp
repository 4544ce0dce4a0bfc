// Best-fit packing with rows listed by the room that is left in them.
#include "data/packing.h"

#include <algorithm>

namespace tessera::data {

PackedRows pack(std::span<const std::int64_t> lengths, std::int64_t row_length, bool packed) {
  std::vector<std::vector<Segment>> rows;
  std::vector<std::vector<std::size_t>> with_room(static_cast<std::size_t>(row_length) + 1);
  const auto place = [&](const Segment& piece) {
    std::int64_t room = packed ? piece.size : row_length + 1;
    while (room <= row_length && with_room[room].empty()) ++room;
    std::size_t row = rows.size();
    if (room > row_length) {
      rows.emplace_back();
      room = row_length;
    } else {
      row = with_room[room].back();
      with_room[room].pop_back();
    }
    rows[row].push_back(piece);
    with_room[room - piece.size].push_back(row);
  };
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    for (std::int64_t begin = 0; begin < lengths[i]; begin += row_length) {
      place({static_cast<std::int64_t>(i), begin, std::min(row_length, lengths[i] - begin)});
    }
  }
  PackedRows result;
  result.first_segment.push_back(0);
  for (const std::vector<Segment>& row : rows) {
    result.segments.insert(result.segments.end(), row.begin(), row.end());
    result.first_segment.push_back(static_cast<std::int64_t>(result.segments.size()));
  }
  return result;
}

}  // namespace tessera::data
