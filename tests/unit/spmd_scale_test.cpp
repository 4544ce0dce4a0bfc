// What must not grow with the mesh: arithmetic on cuts against the one formula, and exchanges that name only
// the peers whose boxes meet the reader's.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "spmd/cuts.h"
#include "spmd/pieces.h"
#include "tessera/layout.h"

namespace tessera {
namespace {

constexpr std::int64_t kSizes[] = {0, 1, 2, 7, 31, 32, 33, 64, 100, 101, 1021, 1024};
constexpr std::int64_t kGrains[] = {1, 2, 3, 16, 64, 5000};
constexpr std::int64_t kParts[] = {1, 2, 3, 5, 8, 32, 37};

TEST(CutsAtScale, LargestPartAndPartOfAnElementFollowTheFormula) {
  for (std::int64_t size : kSizes) {
    for (std::int64_t grain : kGrains) {
      for (std::int64_t parts : kParts) {
        const Mesh mesh({{"a", parts}});
        std::int64_t largest = 0;
        for (std::int64_t i = 0; i < parts; ++i) {
          const std::int64_t begin = cut_at(size, grain, parts, i), end = cut_at(size, grain, parts, i + 1);
          largest = std::max(largest, end - begin);
          for (std::int64_t x = begin; x < end; ++x)
            ASSERT_EQ(part_at(size, grain, parts, x), i) << size << " " << grain << " " << parts << " " << x;
        }
        EXPECT_EQ(largest_part(mesh, {{0}, grain}, size), largest) << size << " " << grain << " " << parts;
      }
    }
  }
  EXPECT_EQ(part_at(std::int64_t{1} << 60, 1, 1 << 20, (std::int64_t{1} << 60) - 1), (1 << 20) - 1);
  EXPECT_EQ(part_at(std::int64_t{1} << 60, 1, 1 << 20, std::int64_t{1} << 40), 1);
}

TEST(CutsAtScale, AgreementFollowsTheFormula) {
  int agree = 0, differ = 0;
  for (std::int64_t size : kSizes) {
    for (std::int64_t scale : {1, 2, 3, 16}) {
      for (std::int64_t grain : kGrains) {
        for (std::int64_t scaled : {1, 2, 4, 64}) {
          for (std::int64_t parts : kParts) {
            bool same = true;
            for (std::int64_t i = 0; i <= parts; ++i)
              same = same && cut_at(scale * size, grain, parts, i) == scale * cut_at(size, scaled, parts, i);
            ASSERT_EQ(cuts_agree(size, scale, grain, scaled, parts), same)
                << size << " " << scale << " " << grain << " " << scaled << " " << parts;
            ++(same ? agree : differ);
          }
        }
      }
    }
  }
  EXPECT_GT(agree, 100);
  EXPECT_GT(differ, 100);
}

// The elements of the reader's part that each rank holds, counted one by one.
std::map<int, std::int64_t> held_by(const Mesh& mesh, const Shape& shape, const Placement& from,
                                    const Box& mine, const std::set<int>& candidates) {
  std::map<int, std::int64_t> held;
  for (int rank : candidates) {
    const Box box = box_of(mesh, shape, from, rank);
    std::int64_t n = 1;
    for (std::size_t d = 0; d < shape.count(); ++d)
      n *= std::max<std::int64_t>(0,
                                  std::min(box.end(d), mine.end(d)) - std::max(box.start[d], mine.start[d]));
    if (n > 0) held[rank] = n;
  }
  return held;
}

void check_peers(const Mesh& mesh, const Shape& shape, const Placement& from, const Placement& to) {
  std::vector<int> axes;
  for (const Cut& cut : from.cuts) axes.insert(axes.end(), cut.axes.begin(), cut.axes.end());
  for (int rank : {0, 1, mesh.ranks() / 3, mesh.ranks() - 1}) {
    const Box mine = box_of(mesh, shape, to, rank);
    const std::vector<int> group = mesh.group(axes, rank);
    std::map<int, std::int64_t> listed;
    for (const CopyPiece& piece : pieces_for(mesh, identity_move(shape), shape, from, shape, to, rank)) {
      std::int64_t n = 1;
      for (std::int64_t e : piece.extent) n *= e;
      EXPECT_GT(n, 0);
      EXPECT_TRUE(listed.emplace(piece.peer, n).second) << "two pieces from rank " << piece.peer;
    }
    EXPECT_EQ(listed, held_by(mesh, shape, from, mine, {group.begin(), group.end()}))
        << to_string(from, shape, mesh) << " to " << to_string(to, shape, mesh) << ", rank " << rank;
  }
}

TEST(PiecesAtScale, NameOnlyPeersWhoseBoxesMeet) {
  for (const char* axes : {"a:2;b:1;c:1", "a:4;b:2;c:4", "a:16;b:4;c:8"}) {
    const Mesh mesh = Mesh::parse(axes);
    for (std::int64_t rows : {1024, 1021, 7}) {
      const Shape shape{{"rows", rows}, {"cols", 96}, {"deep", 3}};
      Placement whole = replicated(mesh, shape), by_rows = whole, by_cols = whole, grained = whole,
                mixed = whole, two = whole;
      by_rows.cuts[0] = {{0}, 1};
      by_cols.cuts[1] = {{0}, 1};
      grained.cuts[0] = {{0}, 64};
      two.cuts[0] = {{2, 0}, 1};
      mixed.cuts[0] = {{1}, 1};
      mixed.cuts[2] = {{2, 0}, 1};
      const Placement all[] = {whole, by_rows, by_cols, grained, two, mixed};
      for (const Placement& from : all)
        for (const Placement& to : all) check_peers(mesh, shape, from, to);
    }
  }
}

// A part that is moved by one grain's width meets two neighbours, however many ranks there are.
TEST(PiecesAtScale, AShiftOfBoundariesIsAnExchangeWithNeighbours) {
  const Mesh mesh = Mesh::parse("a:512");
  const Shape shape{{"rows", 5000}};
  Placement fine = replicated(mesh, shape), coarse = fine;
  fine.cuts[0] = {{0}, 1};
  coarse.cuts[0] = {{0}, 4};
  for (int rank = 0; rank < 512; rank += 37)
    EXPECT_LE(pieces_for(mesh, identity_move(shape), shape, fine, shape, coarse, rank).size(), 3u) << rank;
}

}  // namespace
}  // namespace tessera
