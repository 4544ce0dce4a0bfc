// The tiling check against counting every element.
#include <gtest/gtest.h>

#include "io/slices.h"
#include "io/tiling.h"
#include "tessera/random.h"

namespace tessera {
namespace {

// How often each element is covered, by counting.
bool covered_once(const std::vector<std::int64_t>& shape, const std::vector<Box>& boxes) {
  const Box whole{std::vector<std::int64_t>(shape.size(), 0), shape};
  bool once = true;
  for_each_slice(whole, 1, [&](const Box& cell) {
    int count = 0;
    for (const Box& box : boxes) count += !intersect(box, cell).empty();
    once &= count == 1;
  });
  return once;
}

TEST(Tiling, AgreesWithCounting) {
  const RandomKey key = random_key(2, "tiling", 0);
  std::uint64_t drawn = 0;
  const auto draw = [&](std::int64_t limit) {
    return static_cast<std::int64_t>(random_uniform_at(key, drawn++) * static_cast<float>(limit));
  };
  int good = 0, bad = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<std::int64_t> shape;
    for (std::int64_t d = 1 + draw(3); d > 0; --d) shape.push_back(1 + draw(5));
    // Cut the whole again and again, so that it is covered once.
    std::vector<Box> boxes = {{std::vector<std::int64_t>(shape.size(), 0), shape}};
    for (std::int64_t cuts = draw(6); cuts > 0; --cuts) {
      Box& box = boxes[static_cast<std::size_t>(draw(static_cast<std::int64_t>(boxes.size())))];
      const auto d = static_cast<std::size_t>(draw(static_cast<std::int64_t>(shape.size())));
      const std::int64_t at = draw(box.size[d] + 1);  // an empty part too
      Box rest = box;
      box.size[d] = at;
      rest.start[d] += at;
      rest.size[d] -= at;
      boxes.push_back(rest);
    }
    // Then perhaps spoil it: move, resize, drop or repeat one.
    const std::int64_t kind = draw(6);
    Box& box = boxes[static_cast<std::size_t>(draw(static_cast<std::int64_t>(boxes.size())))];
    const auto d = static_cast<std::size_t>(draw(static_cast<std::int64_t>(shape.size())));
    if (kind == 1 && box.start[d] > 0) --box.start[d];
    if (kind == 2 && box.size[d] > 0) --box.size[d];
    if (kind == 3 && box.end(d) < shape[d]) ++box.size[d];
    if (kind == 4) boxes.push_back(Box(box));
    if (kind == 5) boxes.pop_back();
    const bool want = covered_once(shape, boxes);
    ASSERT_EQ(tiling_fault(shape, boxes).empty(), want) << tiling_fault(shape, boxes);
    (want ? good : bad)++;
  }
  EXPECT_GT(good, 300);
  EXPECT_GT(bad, 300);
}

// An overlap and a gap of the same size.
TEST(Tiling, TheNumberOfElementsIsNotEnough) {
  EXPECT_EQ(tiling_fault({4}, {Box{{0}, {2}}, Box{{1}, {2}}}), "blocks [0:2] and [1:3] overlap");
  EXPECT_EQ(tiling_fault({2, 2}, {Box{{0, 0}, {1, 2}}, Box{{0, 0}, {1, 2}}}),
            "blocks [0:1, 0:2] and [0:1, 0:2] overlap");
}

TEST(Tiling, ScalarsAndEmptyShapes) {
  EXPECT_EQ(tiling_fault({}, {Box{}}), "");
  EXPECT_EQ(tiling_fault({}, {}), "the blocks hold 0 of 1 elements");
  EXPECT_EQ(tiling_fault({}, {Box{}, Box{}}), "blocks [] and [] overlap");
  EXPECT_EQ(tiling_fault({0, 3}, {}), "");
  EXPECT_EQ(tiling_fault({0, 3}, {Box{{0, 0}, {0, 3}}}), "");
  EXPECT_EQ(tiling_fault({3}, {Box{{2}, {2}}}), "block [2:4] does not lie in the tensor [0:3]");
}

// A grid of blocks as a large mesh makes it: linear, not quadratic.
TEST(Tiling, ManyBlocks) {
  std::vector<Box> boxes;
  for (std::int64_t i = 0; i < 512; ++i) {
    for (std::int64_t j = 0; j < 128; ++j) boxes.push_back(Box{{i * 2, j * 3}, {2, 3}});
  }
  EXPECT_EQ(tiling_fault({1024, 384}, boxes), "");
  boxes.back().start[0] -= 2;
  EXPECT_EQ(tiling_fault({1024, 384}, boxes), "some elements lie in two blocks, others in none");
}

TEST(Slices, TileABoxInOrder) {
  const Box box{{1, 2, 3}, {3, 4, 5}};
  for (std::int64_t most : {1, 4, 5, 9, 20, 60, 100}) {
    std::vector<Box> moved;
    for_each_slice(box, most, [&](Box slice) {
      EXPECT_LE(slice.elements(), most);
      for (std::size_t d = 0; d < 3; ++d) slice.start[d] -= box.start[d];
      moved.push_back(slice);
    });
    EXPECT_EQ(tiling_fault(box.size, moved), "") << most;
  }
}

}  // namespace
}  // namespace tessera
