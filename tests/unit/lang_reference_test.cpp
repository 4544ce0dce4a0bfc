// The reference executor: scalar code, broadcasting, copies on whole tensors and on shards.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lang/reference.h"
#include "support/array.h"

namespace tessera {
namespace {

using testing::view_of;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

double binary(Scalar op, double a, double b, DType type = DType::F32) {
  const ScalarCode code{2, {{.op = op, .a = 0, .b = 1, .type = type}}, {2}};
  const double inputs[] = {a, b};
  return interpret(code, inputs)[0];
}

double unary(Scalar op, double a, DType type = DType::F32) {
  const ScalarCode code{1, {{.op = op, .a = 0, .type = type}}, {1}};
  return interpret(code, std::span(&a, 1))[0];
}

TEST(ScalarCode, IntegersWrapAndDivideByZeroIsDefined) {
  constexpr double kLargest = 2147483647, kLowest = -2147483648.0;
  EXPECT_EQ(binary(Scalar::Add, kLargest, 1, DType::I32), kLowest);
  EXPECT_EQ(binary(Scalar::Sub, kLowest, 1, DType::I32), kLargest);
  EXPECT_EQ(binary(Scalar::Mul, 65537, 65537, DType::I32), 131073);
  EXPECT_EQ(binary(Scalar::Mul, kLargest, kLargest, DType::I32), 1) << "beyond 2^53";
  EXPECT_EQ(unary(Scalar::Neg, kLowest, DType::I32), kLowest);
  EXPECT_EQ(binary(Scalar::FloorDiv, -7, 2, DType::I32), -4);
  EXPECT_EQ(binary(Scalar::FloorDiv, 7, 0, DType::I32), 0);
  EXPECT_EQ(binary(Scalar::Mod, 7, 0, DType::I32), 0);
}

TEST(ScalarCode, ModHasTheSignOfTheDivisor) {
  EXPECT_EQ(binary(Scalar::Mod, -7, 3), 2);
  EXPECT_EQ(binary(Scalar::Mod, 7, -3), -2);
  EXPECT_EQ(binary(Scalar::Mod, 6, -3), 0);
}

TEST(ScalarCode, NanIsNeverLost) {
  for (Scalar op : {Scalar::Min, Scalar::Max}) {
    EXPECT_TRUE(std::isnan(binary(op, kNan, 1)));
    EXPECT_TRUE(std::isnan(binary(op, 1, kNan)));
  }
  EXPECT_TRUE(std::isnan(unary(Scalar::Sign, kNan)));
  EXPECT_EQ(unary(Scalar::Sigmoid, -1000), 0);
  EXPECT_EQ(unary(Scalar::Sigmoid, 1000), 1);
}

TEST(ScalarCode, SelectTakesOneBranchWithoutArithmetic) {
  const ScalarCode code{3, {{.op = Scalar::Select, .a = 0, .b = 1, .c = 2}}, {3}};
  const double taken[] = {1, 5, kNan}, other[] = {0, kInf, 7};
  EXPECT_EQ(interpret(code, taken)[0], 5);
  EXPECT_EQ(interpret(code, other)[0], 7);
}

TEST(ScalarCode, CastRoundsToTheType) {
  EXPECT_EQ(unary(Scalar::Cast, 1.00390625, DType::BF16), 1.0) << "half way, ties to even";
  EXPECT_EQ(unary(Scalar::Cast, 1.01171875, DType::BF16), 1.015625);
  EXPECT_EQ(unary(Scalar::Cast, -2.9, DType::I32), -2);
  EXPECT_EQ(unary(Scalar::Cast, 3e10, DType::I32), 2147483647);
  EXPECT_EQ(unary(Scalar::Cast, kNan, DType::I32), 0);
  EXPECT_EQ(unary(Scalar::Cast, 0.25, DType::Bool), 1);
}

TEST(Reference, ScalarOpsBroadcastByNameNotByPosition) {
  const Array a({{{"x", 2}, {"y", 3}}, DType::F32}, {1, 2, 3, 4, 5, 6});
  const Array b({{{"y", 3}}, DType::F32}, {10, 20, 30}),
      c({{{"y", 3}, {"x", 2}}, DType::F32}, {1, 4, 2, 5, 3, 6});
  Array out(a.type);
  const ScalarCode code{3, {{.op = Scalar::Add, .a = 0, .b = 1}, {.op = Scalar::Sub, .a = 3, .b = 2}}, {4}};
  const View in[] = {view_of(a), view_of(b), view_of(c)}, result[] = {view_of(out)};
  run_scalar(code, in, result);
  EXPECT_EQ(out.values(), (std::vector<double>{10, 20, 30, 10, 20, 30}));
}

// out[2 * i + 1] = in[i]; everything else is filled.
TEST(Reference, MovesClipToShardsOnBothSides) {
  const Type in_type{{{"d", 5}}, DType::I32}, out_type{{{"d", 12}}, DType::I32};
  const Array whole(in_type, {1, 2, 3, 4, 5});
  const Move move{0, 0, {5}, {{0, {{0, 1}}}}, {{1, {{0, 2}}}}};
  Array out(out_type);
  {
    const View in[] = {view_of(whole)}, result[] = {view_of(out)};
    run_moves(std::span(&move, 1), -1, in, result);
  }
  const std::vector<double> expected{-1, 1, -1, 2, -1, 3, -1, 4, -1, 5, -1, -1};
  EXPECT_EQ(out.values(), expected);
  for (std::int64_t begin = 0; begin < 12; ++begin) {
    for (std::int64_t end = begin; end <= 12; ++end) {
      const Box box{{begin}, {end - begin}};
      Array part = testing::part_of(out, box);
      const View in[] = {view_of(whole)}, result[] = {make_view(part.data.data(), out_type, box)};
      run_moves(std::span(&move, 1), -1, in, result);
      EXPECT_EQ(part.values(), std::vector<double>(expected.begin() + begin, expected.begin() + end));
    }
  }
  // A shard of the input writes its own elements only.
  Array part = testing::part_of(whole, {{2}, {2}});
  const View in[] = {make_view(part.data.data(), in_type, {{2}, {2}})}, result[] = {view_of(out)};
  run_moves(std::span(&move, 1), 0, in, result);
  EXPECT_EQ(out.values(), (std::vector<double>{0, 0, 0, 0, 0, 3, 0, 4, 0, 0, 0, 0}));
}

TEST(Reference, IndicesVisitEverythingOnceAndNothingWhenEmpty) {
  int visits = 0;
  const auto count = [&](auto) { ++visits; };
  for_each_index(std::vector<std::int64_t>{2, 3}, count);
  EXPECT_EQ(visits, 6);
  for_each_index(std::vector<std::int64_t>{2, 0, 3}, count);
  EXPECT_EQ(visits, 6);
  for_each_index(std::vector<std::int64_t>{}, count);
  EXPECT_EQ(visits, 7);
}

TEST(Reference, InitialValuesDependOnNameAndIndexOnly) {
  const RandomKey key = random_key(5, "mlp/w", 0);
  EXPECT_EQ(initial_value(Initializer::normal(0.5), key, 3),
            0.5 * static_cast<double>(random_normal_at(key, 3)));
  EXPECT_EQ(initial_value(Initializer::constant(2.5), key, 3), 2.5);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const double value = initial_value(Initializer::uniform(-3, -1), key, i);
    EXPECT_GE(value, -3);
    EXPECT_LT(value, -1);
    EXPECT_LE(std::abs(initial_value(Initializer::truncated_normal(0.1), key, i)), 0.2000001);
  }
}

// From any start, over the borders of blocks and of 32 bits.
TEST(Reference, RunsOfInitialValuesHaveTheSameBits) {
  const RandomKey key = random_key(5, "mlp/w", 0);
  for (const Initializer& init : {Initializer::zeros(), Initializer::constant(2.5), Initializer::normal(0.5),
                                  Initializer::truncated_normal(0.1), Initializer::uniform(-3, -1)}) {
    for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{7}, (std::uint64_t{1} << 32) - 100}) {
      for (const std::size_t n : {0, 1, 3, 64, 65, 700}) {
        std::vector<double> run(n), single(n);
        initial_values(init, key, first, run);
        for (std::size_t i = 0; i < n; ++i) single[i] = initial_value(init, key, first + i);
        EXPECT_EQ(run, single) << static_cast<int>(init.kind) << " " << first << " " << n;
      }
    }
  }
}

}  // namespace
}  // namespace tessera
