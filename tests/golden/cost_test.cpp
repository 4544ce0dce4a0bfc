// The cost table of the paper's two fully connected layers (peers.md A5): the program's collectives equal the
// formulas in exact bytes per axis, and operations are those of the largest part.
#include <gtest/gtest.h>

#include "golden/cases.h"

namespace tessera::testing {
namespace {

using Bytes = std::map<std::string, std::int64_t>;

ProgramStats lowered(const std::string& mesh, const std::string& layout, const TwoLayers& sizes) {
  Graph g;
  std::vector<Tensor> targets = build_two_layers(g, sizes);
  LowerOptions options;
  options.without = {"fuse"};
  return stats(lower(g, targets, Mesh::parse(mesh), Layout::parse(layout), options));
}

// forward: x w, h v; backward: dy v, dv, dw (dx is not asked for): five contractions of batch * io * hidden.
double contraction_flops(std::int64_t b, std::int64_t io, std::int64_t h) {
  return 5 * 2.0 * static_cast<double>(b * io * h);
}

constexpr TwoLayers kSizes{.batch = 48, .io = 20, .hidden = 36};

TEST(CostTable, None) {
  ProgramStats s = lowered("all:4", "", kSizes);
  EXPECT_EQ(s.bytes_per_axis, Bytes{});
  EXPECT_EQ(s.contraction_flops, contraction_flops(48, 20, 36));
}

// Gradients of both weights: 2 io h.
TEST(CostTable, BatchSplit) {
  ProgramStats s = lowered("all:4", "batch:all", kSizes);
  EXPECT_EQ(s.bytes_per_axis, (Bytes{{"all", 4 * 2 * 20 * 36}}));
  EXPECT_EQ(s.contraction_flops, contraction_flops(12, 20, 36));
}

// The result y: b io (and no more, since dx is not asked for).
TEST(CostTable, HiddenSplit) {
  ProgramStats s = lowered("all:4", "d_h:all", kSizes);
  EXPECT_EQ(s.bytes_per_axis, (Bytes{{"all", 4 * 48 * 20}}));
  EXPECT_EQ(s.contraction_flops, contraction_flops(48, 20, 9));
}

// h before the relu, and its gradient: 2 b h.
TEST(CostTable, IoSplit) {
  ProgramStats s = lowered("all:4", "d_io:all", kSizes);
  EXPECT_EQ(s.bytes_per_axis, (Bytes{{"all", 4 * 2 * 48 * 36}}));
  EXPECT_EQ(s.contraction_flops, contraction_flops(48, 5, 36));
}

TEST(CostTable, BatchAndHidden) {
  ProgramStats s = lowered("r:4;c:2", "batch:r;d_h:c", kSizes);
  EXPECT_EQ(s.bytes_per_axis, (Bytes{{"c", 4 * 12 * 20}, {"r", 4 * 2 * 20 * 18}}));
  EXPECT_EQ(s.contraction_flops, contraction_flops(12, 20, 18));
}

TEST(CostTable, BatchAndIo) {
  ProgramStats s = lowered("r:4;c:2", "batch:r;d_io:c", kSizes);
  EXPECT_EQ(s.bytes_per_axis, (Bytes{{"c", 4 * 2 * 12 * 36}, {"r", 4 * 2 * 10 * 36}}));
}

TEST(CostTable, ThreeDimensional) {
  ProgramStats s = lowered("r:2;c:2;p:2", "batch:r;d_io:c;d_h:p", kSizes);
  EXPECT_EQ(s.bytes_per_axis, (Bytes{{"c", 4 * 2 * 24 * 18}, {"p", 4 * 24 * 10}, {"r", 4 * 2 * 10 * 18}}));
  EXPECT_EQ(s.contraction_flops, contraction_flops(24, 10, 18));
}

// Parts that do not divide: the largest part counts, never the whole.
TEST(CostTable, UnevenParts) {
  ProgramStats s = lowered("r:3;c:4", "batch:r;d_h:c", {.batch = 10, .io = 7, .hidden = 9});
  EXPECT_EQ(s.bytes_per_axis, (Bytes{{"c", 4 * 4 * 7}, {"r", 4 * 2 * 7 * 3}}));
  EXPECT_EQ(s.contraction_flops, contraction_flops(4, 7, 3));
}

}  // namespace
}  // namespace tessera::testing
