// A box of global indices: a start and a size for every dimension of a shape. The common language of shards,
// feeds, fetches and checkpoint files. Plain value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

struct Box {
  std::vector<std::int64_t> start;
  std::vector<std::int64_t> size;

  std::int64_t elements() const;  // 1 for a scalar
  bool empty() const { return elements() == 0; }
  std::int64_t end(std::size_t d) const { return start[d] + size[d]; }
  bool operator==(const Box&) const = default;
};

Box intersect(const Box& a, const Box& b);  // sizes 0 where they do not meet; REQUIRES equal lengths
std::string to_string(const Box& box);      // "[0:4, 2:3]" as start:end

// Copies the elements of `part` (global indices, inside both boxes) from a row-major buffer that holds
// `from_box` into one that holds `to_box`. `element` is the size of one element in bytes.
void copy_box(const void* from, const Box& from_box, void* to, const Box& to_box, const Box& part,
              std::size_t element);

}  // namespace tessera
