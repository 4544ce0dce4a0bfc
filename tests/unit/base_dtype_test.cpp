// Element types: names, sizes and the rounding of bfloat16.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tessera/dtype.h"
#include "tessera/error.h"

namespace tessera {
namespace {

TEST(DType, NamesParseBack) {
  const std::size_t sizes[] = {4, 2, 8, 4, 1};
  int i = 0;
  for (DType type : {DType::F32, DType::BF16, DType::F64, DType::I32, DType::Bool}) {
    EXPECT_EQ(parse_dtype(to_string(type)), type);
    EXPECT_EQ(size_of(type), sizes[i++]);
  }
}

TEST(DType, UnknownNameListsTheNames) {
  try {
    parse_dtype("f16");
    FAIL();
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(), "'f16' is no element type; use one of f32, bf16, f64, i32, bool");
  }
  EXPECT_THROW(parse_dtype(""), UserError);
  EXPECT_THROW(parse_dtype("F32"), UserError);
}

TEST(Bf16, RoundsToNearestTiesToEven) {
  EXPECT_EQ(bf16(1.0f).bits, 0x3f80);
  EXPECT_EQ(bf16(1.0f + 0x1p-8f).bits, 0x3f80);                     // tie, even below
  EXPECT_EQ(bf16(1.0f + 0x1p-8f + 0x1p-20f).bits, 0x3f81);          // above the tie
  EXPECT_EQ(bf16(1.0f + 0x3p-8f).bits, 0x3f82);                     // tie, even above
  EXPECT_EQ(bf16(std::numeric_limits<float>::max()).bits, 0x7f80);  // overflows to infinity
  EXPECT_EQ(bf16(-std::numeric_limits<float>::infinity()).bits, 0xff80);
  EXPECT_EQ(static_cast<float>(bf16(-2.5f)), -2.5f);
}

TEST(Bf16, NanStaysNan) {
  // The payload lies in the lower half only: truncation would give infinity.
  const float nan = std::bit_cast<float>(0x7f800001u);
  EXPECT_TRUE(std::isnan(static_cast<float>(bf16(nan))));
  EXPECT_TRUE(std::isnan(static_cast<float>(bf16(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace
}  // namespace tessera
