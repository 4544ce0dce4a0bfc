// A box in slices of bounded size, for work that must not hold the whole.
#pragma once

#include <algorithm>

#include "tessera/box.h"

namespace tessera {

// f(slice) for boxes of at most `most` elements (at least 1) that tile `box`, in row-major order.
template <typename F>
void for_each_slice(const Box& box, std::int64_t most, F&& f) {
  if (box.empty()) return;
  std::int64_t inner = box.elements();
  std::size_t d = 0;
  while (d < box.size.size() && box.size[d] == 1) ++d;
  if (inner <= most || d == box.size.size()) {
    f(box);
    return;
  }
  inner /= box.size[d];
  const std::int64_t rows = std::max<std::int64_t>(1, most / inner);
  for (std::int64_t i = box.start[d]; i < box.end(d); i += rows) {
    Box slice = box;
    slice.start[d] = i;
    slice.size[d] = std::min(rows, box.end(d) - i);
    for_each_slice(slice, most, f);
  }
}

}  // namespace tessera
