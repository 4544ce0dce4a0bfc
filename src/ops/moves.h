// Building blocks of data movement records: a Move whose indices are taken by dimension name.
#pragma once

#include "tessera/op.h"

namespace tessera {

// The copy over the box `box`: index of a tensor's dimension = index of the box's dimension of that name, or
// 0.
inline Move move_by_name(const Shape& box, const Shape& in, const Shape& out) {
  auto affine = [&](const Shape& shape) {
    std::vector<Affine> all;
    for (const Dim& dim : shape) {
      const int r = box.find(dim.name);
      all.push_back(r < 0 ? Affine{} : Affine{0, {{r, 1}}});
    }
    return all;
  };
  Move move;
  for (const Dim& dim : box) move.extent.push_back(dim.size);
  move.in = affine(in);
  move.out = affine(out);
  return move;
}

inline Affine& index_of(std::vector<Affine>& indices, const Shape& shape, const std::string& dim) {
  return indices[static_cast<std::size_t>(shape.find(dim))];
}

}  // namespace tessera
