// The tiling check by corners. The indicator function of a box is fixed by its signed corners (the mixed
// difference of the function), so boxes sum up to the whole exactly when their signed corners sum up to those
// of the whole. Unlike a comparison of all pairs this stays linear, however many blocks a file claims to
// have.
#include "io/tiling.h"

#include <fmt/format.h>

#include <bit>
#include <map>

namespace tessera {
namespace {

constexpr std::uint64_t kMostCorners = 1u << 24;
constexpr std::size_t kMostForPairs = 2000;  // boxes that are compared one with another for a better message

using Corners = std::map<std::vector<std::int64_t>, std::int64_t>;

// Dimensions in which every box is whole have the same two planes in all of them and tell nothing.
std::vector<std::size_t> cut_dimensions(const std::vector<std::int64_t>& shape,
                                        const std::vector<Box>& boxes) {
  std::vector<std::size_t> cut;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    for (const Box& box : boxes) {
      if (box.size[d] != shape[d]) {
        cut.push_back(d);
        break;
      }
    }
  }
  return cut;
}

void add_corners(Corners& corners, const Box& box, const std::vector<std::size_t>& dimensions, int sign) {
  std::vector<std::int64_t> corner(dimensions.size());
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << dimensions.size()); ++bits) {
    for (std::size_t i = 0; i < dimensions.size(); ++i) {
      corner[i] = bits >> i & 1 ? box.end(dimensions[i]) : box.start[dimensions[i]];
    }
    auto& sum = corners[corner];
    sum += std::popcount(bits) % 2 == 0 ? sign : -sign;
    if (sum == 0) corners.erase(corner);
  }
}

std::string describe(const std::vector<Box>& boxes) {
  if (boxes.size() <= kMostForPairs) {
    for (std::size_t i = 0; i < boxes.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const Box both = intersect(boxes[j], boxes[i]);
        if (!both.empty())
          return fmt::format("blocks {} and {} overlap", to_string(boxes[j]), to_string(boxes[i]));
      }
    }
  }
  return "";
}

}  // namespace

std::string tiling_fault(const std::vector<std::int64_t>& shape, const std::vector<Box>& boxes) {
  const Box whole{std::vector<std::int64_t>(shape.size(), 0), shape};
  std::vector<Box> solid;
  std::int64_t covered = 0;
  for (const Box& box : boxes) {
    if (box.size.size() != shape.size() || intersect(box, whole) != box) {
      return fmt::format("block {} does not lie in the tensor {}", to_string(box), to_string(whole));
    }
    if (box.empty()) continue;
    if (__builtin_add_overflow(covered, box.elements(), &covered))
      return "the blocks have more than 2^63 elements";
    solid.push_back(box);
  }
  if (whole.empty()) return "";
  const auto missing = [&]() -> std::string {
    if (covered == whole.elements()) return "some elements lie in two blocks, others in none";
    return fmt::format("the blocks hold {} of {} elements", covered, whole.elements());
  };
  if (solid.empty()) return missing();
  const std::vector<std::size_t> cut = cut_dimensions(shape, solid);
  if (solid.size() > kMostCorners >> cut.size()) {
    return fmt::format("{} blocks, cut in {} dimensions, are too many to check", solid.size(), cut.size());
  }
  Corners corners;
  for (const Box& box : solid) add_corners(corners, box, cut, 1);
  add_corners(corners, whole, cut, -1);
  // Without a cut dimension all blocks are whole, and the one corner counts them.
  if (corners.empty()) return "";
  const std::string overlap = describe(solid);
  return overlap.empty() ? missing() : overlap;
}

}  // namespace tessera
