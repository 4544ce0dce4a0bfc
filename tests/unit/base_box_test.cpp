// Boxes: intersection, text and copies between buffers that hold different boxes.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "tessera/box.h"
#include "tessera/error.h"
#include "tessera/random.h"

namespace tessera {
namespace {

TEST(Box, ElementsAndText) {
  EXPECT_EQ((Box{{}, {}}.elements()), 1);
  EXPECT_EQ((Box{{0, 3}, {4, 0}}.elements()), 0);
  EXPECT_EQ(to_string(Box{{0, 2}, {4, 1}}), "[0:4, 2:3]");
  EXPECT_EQ(to_string(Box{}), "[]");
}

TEST(Box, IntersectionMayBeEmpty) {
  EXPECT_EQ(intersect(Box{{0, 2}, {4, 3}}, Box{{1, 0}, {7, 4}}), (Box{{1, 2}, {3, 2}}));
  const Box apart = intersect(Box{{0}, {2}}, Box{{5}, {2}});
  EXPECT_EQ(apart.size[0], 0);
  EXPECT_TRUE(apart.empty());
  EXPECT_FALSE(intersect(Box{}, Box{}).empty());  // two scalars
  EXPECT_THROW(intersect(Box{{0}, {1}}, Box{}), InternalError);
}

// The value of an element is its row-major position in a fixed global shape.
std::int64_t global_value(const std::vector<std::int64_t>& index) {
  std::int64_t value = 0;
  for (std::int64_t i : index) value = value * 31 + i;
  return value;
}

template <typename Function>
void for_each_index(const Box& box, Function&& f) {
  if (box.empty()) return;
  std::vector<std::int64_t> index = box.start;
  while (true) {
    f(index);
    std::size_t d = index.size();
    for (; d > 0; --d) {
      if (++index[d - 1] < box.end(d - 1)) break;
      index[d - 1] = box.start[d - 1];
    }
    if (d == 0) return;
  }
}

template <typename T>
void check_copy(const Box& from_box, const Box& to_box, const Box& part) {
  std::vector<T> from, to(static_cast<std::size_t>(to_box.elements()), T(-1));
  for_each_index(from_box, [&](const auto& i) { from.push_back(static_cast<T>(global_value(i))); });
  copy_box(from.data(), from_box, to.data(), to_box, part, sizeof(T));
  std::size_t k = 0;
  for_each_index(to_box, [&](const auto& i) {
    bool inside = true;
    for (std::size_t d = 0; d < i.size(); ++d) inside &= i[d] >= part.start[d] && i[d] < part.end(d);
    ASSERT_EQ(to[k++], inside ? static_cast<T>(global_value(i)) : T(-1))
        << to_string(from_box) << " -> " << to_string(to_box) << " part " << to_string(part);
  });
}

struct Odd {  // an element size without a fast path
  std::int8_t v[3];
  explicit Odd(std::int64_t x)
      : v{static_cast<std::int8_t>(x), static_cast<std::int8_t>(x >> 3), static_cast<std::int8_t>(x * 7)} {}
  bool operator==(const Odd&) const = default;
};

TEST(CopyBox, RandomBoxesOfEveryElementSize) {
  const RandomKey key = random_key(1, "copy", 0);
  std::uint64_t n = 0;
  const auto draw = [&](std::int64_t limit) {
    return static_cast<std::int64_t>(random_uniform_at(key, n++) * static_cast<float>(limit));
  };
  for (int trial = 0; trial < 400; ++trial) {
    const std::size_t rank = static_cast<std::size_t>(draw(5));
    Box a, b;
    for (std::size_t d = 0; d < rank; ++d) {
      a.start.push_back(draw(3));
      b.start.push_back(draw(3));
      a.size.push_back(draw(6));
      b.size.push_back(draw(6));
    }
    const Box part = intersect(a, b);
    if (part.empty()) continue;
    check_copy<std::int8_t>(a, b, part);
    check_copy<std::int16_t>(a, b, part);
    check_copy<std::int32_t>(a, b, part);
    check_copy<std::int64_t>(a, b, part);
    check_copy<Odd>(a, b, part);
  }
}

TEST(CopyBox, WholeScalarAndEmpty) {
  check_copy<std::int32_t>(Box{{2, 3}, {4, 5}}, Box{{2, 3}, {4, 5}}, Box{{2, 3}, {4, 5}});
  check_copy<std::int32_t>(Box{}, Box{}, Box{});
  copy_box(nullptr, Box{{0}, {0}}, nullptr, Box{{0}, {0}}, Box{{0}, {0}}, 4);  // touches nothing
  check_copy<std::int32_t>(Box{{0, 0}, {3, 3}}, Box{{0, 0}, {3, 3}}, Box{{1, 3}, {1, 0}});
}

TEST(CopyBox, PartOutsideIsOurBug) {
  int x[4] = {};
  EXPECT_THROW(copy_box(x, Box{{0}, {2}}, x + 2, Box{{0}, {2}}, Box{{1}, {2}}, sizeof(int)), InternalError);
}

}  // namespace
}  // namespace tessera
