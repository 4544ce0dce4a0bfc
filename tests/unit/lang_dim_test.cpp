#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "tessera/dim.h"
#include "tessera/error.h"

namespace tessera {
namespace {

using testing::expect_error;

const std::vector<std::pair<std::string, std::string>> kBadShapes{
    {"batch", "shape 'batch': expected ':' and a size after 'batch' at position 6; write name:size"},
    {"batch:", "shape 'batch:': expected the size of 'batch' at position 7; write name:size"},
    {"batch:x", "shape 'batch:x': expected the size of 'batch' at position 7; write name:size"},
    {"a:2;2b:3", "shape 'a:2;2b:3': expected a dimension name at position 5; write name:size"},
    {"a:2/b:3", "shape 'a:2/b:3': expected ';' between dimensions at position 4"},
    {"a:2;b:3;a:4", "shape: dimension 'a' occurs twice (sizes 2 and 4); rename one of them"},
    {"a:-1", "shape: dimension 'a' has the negative size -1; sizes start at 0"},
    {"a:99999999999999999999",
     "shape 'a:99999999999999999999': expected the size of 'a' at position 3; write name:size"},
    {"a:4294967296;b:4294967296",
     "shape: 'b:4294967296' and the dimensions before it has more than 2^62 elements; check the sizes"},
};

TEST(Shape, RejectsBadTextWithTheWholeStory) {
  for (const auto& [text, message] : kBadShapes) {
    expect_error<UserError>([&] { parse_shape(text); }, message);
  }
}

TEST(Shape, TextRoundTripsWithAnySeparator) {
  const Shape shape{{"batch", 128}, {"d_model", 0}, {"_x9", 1}};
  EXPECT_EQ(to_string(shape), "batch:128;d_model:0;_x9:1");
  for (const char* text :
       {"batch:128;d_model:0;_x9:1", "batch:128,d_model:0,_x9:1", " batch : 128 d_model:0\n_x9:1; "}) {
    EXPECT_EQ(parse_shape(text), shape) << text;
  }
  EXPECT_EQ(parse_shape(""), Shape());
  EXPECT_EQ(to_string(Shape()), "");
}

TEST(Shape, CountsElementsAndAnEmptyDimensionDoesNotHideAnOverflow) {
  EXPECT_EQ(Shape().elements(), 1);
  EXPECT_EQ((Shape{{"a", 3}, {"b", 0}}).elements(), 0);
  EXPECT_THROW((Shape{{"e", 0}, {"a", std::int64_t{1} << 40}, {"b", std::int64_t{1} << 40}}), UserError);
  EXPECT_NO_THROW((Shape{{"a", std::int64_t{1} << 62}}));
}

TEST(Shape, EditsKeepPositions) {
  const Shape shape{{"a", 2}, {"b", 3}, {"c", 4}};
  EXPECT_EQ(to_string(shape.replaced("b", {"d", 5})), "a:2;d:5;c:4");
  EXPECT_EQ(to_string(shape.without("a")), "b:3;c:4");
  EXPECT_EQ(to_string(shape.with({"d", 1})), "a:2;b:3;c:4;d:1");
  EXPECT_THROW(shape.replaced("b", {"a", 5}), UserError);
  expect_error<UserError>([&] { shape.without("z"); }, "there is no dimension 'z' in [a:2;b:3;c:4]");
}

TEST(Shape, BroadcastKeepsTheLargerOneElseAppends) {
  const Shape a{{"a", 2}, {"b", 3}}, b{{"b", 3}}, c{{"c", 4}, {"a", 2}}, all{{"b", 3}, {"c", 4}, {"a", 2}};
  EXPECT_EQ(broadcast_shape(a, b), a);
  EXPECT_EQ(broadcast_shape(b, a), a);
  EXPECT_EQ(broadcast_shape(a, Shape()), a);
  EXPECT_EQ(to_string(broadcast_shape(a, c)), "a:2;b:3;c:4");
  EXPECT_EQ(broadcast_shape(a, all), all) << "the one that covers the other keeps its order";
  expect_error<UserError>(
      [&] {
        broadcast_shape(a, Shape{{"a", 5}});
      },
      "dimension 'a' has size 2 in [a:2;b:3] but 5 in [a:5]; rename one or fix the size");
}

TEST(Shape, SameDimsIgnoresOrderOnly) {
  const Shape a{{"a", 2}, {"b", 3}};
  EXPECT_TRUE(same_dims(a, Shape{{"b", 3}, {"a", 2}}));
  EXPECT_FALSE(same_dims(a, Shape{{"a", 2}}));
  EXPECT_FALSE(same_dims(a, Shape{{"a", 3}, {"b", 2}}));
}

TEST(Type, PrintsAndCountsBytes) {
  const Type type{{{"batch", 3}, {"hidden", 5}}, DType::BF16};
  EXPECT_EQ(to_string(type), "bf16[batch:3;hidden:5]");
  EXPECT_EQ(type.bytes(), 30);
}

}  // namespace
}  // namespace tessera
