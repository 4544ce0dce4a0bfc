// Every collective of the threads communicator against closed forms: sizes near edges, all types, one- and
// two-dimensional meshes, uneven and empty parts, strided pieces, bits that do not depend on timing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "comm_harness.h"

namespace tessera {
namespace {

using namespace testing;  // NOLINT: the harness

const std::vector<std::vector<int>> kMeshes{{2}, {3}, {2, 2}, {4, 2}};
const std::vector<DType> kTypes{DType::F32, DType::BF16, DType::F64, DType::I32, DType::Bool};

double get(const std::vector<std::byte>& data, DType type, std::int64_t i) {
  const std::byte* at = data.data() + i * static_cast<std::int64_t>(size_of(type));
  switch (type) {
    case DType::F32:
      return *reinterpret_cast<const float*>(at);
    case DType::BF16:
      return static_cast<double>(*reinterpret_cast<const bf16*>(at));
    case DType::F64:
      return *reinterpret_cast<const double*>(at);
    case DType::I32:
      return *reinterpret_cast<const std::int32_t*>(at);
    default:
      return static_cast<double>(*at);
  }
}

void set(std::vector<std::byte>& data, DType type, std::int64_t i, double value) {
  std::byte* at = data.data() + i * static_cast<std::int64_t>(size_of(type));
  switch (type) {
    case DType::F32:
      *reinterpret_cast<float*>(at) = static_cast<float>(value);
      return;
    case DType::BF16:
      *reinterpret_cast<bf16*>(at) = bf16(static_cast<float>(value));
      return;
    case DType::F64:
      *reinterpret_cast<double*>(at) = value;
      return;
    case DType::I32:
      *reinterpret_cast<std::int32_t*>(at) = static_cast<std::int32_t>(value);
      return;
    default:
      *at = static_cast<std::byte>(value != 0);
  }
}

using Buffer = std::vector<std::byte>;
Buffer make(DType type, std::int64_t count) {
  return Buffer(static_cast<std::size_t>(count) * size_of(type), std::byte{0x5a});
}

// Small integers that every type holds exactly and that tell rank and index apart.
double value(DType type, int rank, std::int64_t i) {
  if (type == DType::Bool) return (i + rank) % 3 == 0;
  return static_cast<double>((i * 7 + rank * 5) % 13 - 4);
}

CollectivePlan plan_of(const char* kind, DType type, Combine combine, std::vector<int> group,
                       std::int64_t bytes) {
  CollectivePlan plan;
  plan.kind = kind;
  plan.what = "'x' (test.cc:1)";
  plan.dtype = type;
  plan.combine = combine;
  plan.group = std::move(group);
  plan.bytes = bytes;
  return plan;
}

void complete(Communicator& c, CollectivePlan plan, const Buffer& in, Buffer& out) {
  auto prepared = c.prepare(std::move(plan));
  c.wait(c.start(*prepared, in.data(), out.data()));
}

template <class Body>
void for_all_meshes(Body body) {
  for (const auto& mesh : kMeshes) {
    ThreadsWorld world(ranks_of(mesh), {.deadline_seconds = 20, .random_delays = false});
    for (DType type : kTypes) {
      SCOPED_TRACE(::testing::Message()
                   << "mesh " << ::testing::PrintToString(mesh) << " " << to_string(type));
      run_ranks(world, [&](Communicator& c, int rank) {
        for (std::size_t axis = 0; axis < mesh.size(); ++axis) body(c, rank, type, along(mesh, axis, rank));
      });
    }
  }
}

TEST(Comm, AllGatherOfUnevenAndEmptyParts) {
  for_all_meshes([](Communicator& c, int rank, DType type, const std::vector<int>& group) {
    const int n = static_cast<int>(group.size()), me = position_in(group, rank);
    for (std::int64_t size : {0, 1, 2, 3, 5, 63, 64, 65, 1000}) {
      auto plan = plan_of("all_gather", type, Combine::None, group, size);
      for (int i = 0; i < n; ++i)
        plan.pieces.push_back(
            run_of({group[static_cast<std::size_t>(i)]}, 0, part(size, n, i).begin, part(size, n, i).size()));
      const Range mine = part(size, n, me);
      Buffer in = make(type, mine.size()), out = make(type, size);
      for (std::int64_t i = 0; i < mine.size(); ++i) set(in, type, i, value(type, group[0], mine.begin + i));
      complete(c, plan, in, out);
      for (std::int64_t i = 0; i < size; ++i)
        ASSERT_EQ(get(out, type, i), value(type, group[0], i)) << size << " " << i;
    }
  });
}

// Every rank's part lies where it goes already; what is between the parts of others is written by nobody
// else.
TEST(Comm, AllGatherAroundThePartThatIsThere) {
  for_all_meshes([](Communicator& c, int rank, DType type, const std::vector<int>& group) {
    const int n = static_cast<int>(group.size()), me = position_in(group, rank);
    for (std::int64_t size : {0, 1, 2, 5, 64, 65, 1000}) {
      auto plan = plan_of("all_gather", type, Combine::None, group, size);
      for (int i = 0; i < n; ++i)
        plan.pieces.push_back(
            run_of({group[static_cast<std::size_t>(i)]}, 0, part(size, n, i).begin, part(size, n, i).size()));
      const Range mine = part(size, n, me);
      Buffer out = make(type, size);
      for (std::int64_t i = mine.begin; i < mine.end; ++i) set(out, type, i, value(type, group[0], i));
      auto prepared = c.prepare(std::move(plan));
      c.wait(
          c.start(*prepared, out.data() + static_cast<std::size_t>(mine.begin) * size_of(type), out.data()));
      for (std::int64_t i = 0; i < size; ++i)
        ASSERT_EQ(get(out, type, i), value(type, group[0], i)) << size << " " << i;
    }
  });
}

// Parts of sizes around those of the halves that two ranks swap and of the blocks in which they do.
TEST(Comm, AllToAllInPlaceSwapsParts) {
  for_all_meshes([](Communicator& c, int rank, DType type, const std::vector<int>& group) {
    const int n = static_cast<int>(group.size()), me = position_in(group, rank);
    const auto data = [&](int from, int to, std::int64_t i) { return value(type, 3 * from + to, i); };
    for (std::int64_t part : {1, 3, 63, 64, 65, 129, 5000}) {
      auto plan = plan_of("all_to_all", type, Combine::None, group, n * part);
      for (int i = 0; i < n; ++i)
        plan.pieces.push_back(run_of({group[static_cast<std::size_t>(i)]}, me * part, i * part, part));
      Buffer buffer = make(type, n * part);
      for (std::int64_t i = 0; i < n * part; ++i)
        set(buffer, type, i, data(me, static_cast<int>(i / part), i % part));
      complete(c, std::move(plan), buffer, buffer);
      for (std::int64_t i = 0; i < n * part; ++i)
        ASSERT_EQ(get(buffer, type, i), data(static_cast<int>(i / part), me, i % part)) << part << " " << i;
    }
  });
}

double combined(DType type, Combine combine, const std::vector<int>& group, std::int64_t i) {
  double result = value(type, group[0], i);
  for (std::size_t k = 1; k < group.size(); ++k) {
    const double v = value(type, group[k], i);
    if (combine == Combine::Sum) result += v;
    if (combine == Combine::Max) result = std::max(result, v);
    if (combine == Combine::Min) result = std::min(result, v);
  }
  return type == DType::Bool && combine == Combine::Sum ? result != 0 : result;
}

TEST(Comm, AllReduceAroundTheSizeWhereTheMethodChanges) {
  for_all_meshes([](Communicator& c, int rank, DType type, const std::vector<int>& group) {
    const std::int64_t edge = 16384 / static_cast<std::int64_t>(size_of(type));
    for (Combine combine : {Combine::Sum, Combine::Max, Combine::Min}) {
      for (std::int64_t size : {std::int64_t{0}, std::int64_t{1}, std::int64_t{3}, std::int64_t{513},
                                edge - 1, edge, edge + 1, 3 * edge + 7}) {
        for (bool in_place : {false, true}) {
          auto plan = plan_of("all_reduce", type, combine, group, size);
          plan.pieces.push_back(run_of(group, 0, 0, size));
          Buffer in = make(type, size), other = make(type, size);
          for (std::int64_t i = 0; i < size; ++i) set(in, type, i, value(type, rank, i));
          Buffer& out = in_place ? in : other;
          complete(c, plan, in, out);
          for (std::int64_t i = 0; i < size; ++i)
            ASSERT_EQ(get(out, type, i), combined(type, combine, group, i))
                << size << " " << i << " " << in_place;
        }
      }
    }
  });
}

TEST(Comm, ReduceScatterOfUnevenParts) {
  for_all_meshes([](Communicator& c, int rank, DType type, const std::vector<int>& group) {
    const int n = static_cast<int>(group.size()), me = position_in(group, rank);
    for (std::int64_t size : {0, 1, 2, 3, 5, 64, 1021}) {
      const Range mine = part(size, n, me);
      auto plan = plan_of("reduce_scatter", type, Combine::Sum, group, size);
      plan.pieces.push_back(run_of(group, mine.begin, 0, mine.size()));
      Buffer in = make(type, size), out = make(type, mine.size());
      for (std::int64_t i = 0; i < size; ++i) set(in, type, i, value(type, rank, i));
      complete(c, plan, in, out);
      for (std::int64_t i = 0; i < mine.size(); ++i)
        ASSERT_EQ(get(out, type, i), combined(type, Combine::Sum, group, mine.begin + i)) << size << " " << i;
    }
  });
}

// A matrix split by rows becomes one split by columns, transposed on the way when `transpose`.
void check_all_to_all(Communicator& c, int rank, DType type, const std::vector<int>& group, std::int64_t rows,
                      std::int64_t cols, bool transpose) {
  const int n = static_cast<int>(group.size()), me = position_in(group, rank);
  const Range in_rows = part(rows, n, me), out_cols = part(cols, n, me);
  auto plan = plan_of("all_to_all", type, Combine::None, group, rows * cols);
  for (int i = 0; i < n; ++i) {
    const Range theirs = part(rows, n, i);
    Piece piece{{group[static_cast<std::size_t>(i)]}, out_cols.begin, 0,
                {theirs.size(), out_cols.size()},     {cols, 1},      {}};
    piece.to = transpose ? theirs.begin : theirs.begin * out_cols.size();
    piece.to_stride =
        transpose ? std::vector<std::int64_t>{1, rows} : std::vector<std::int64_t>{out_cols.size(), 1};
    plan.pieces.push_back(piece);
  }
  Buffer in = make(type, in_rows.size() * cols), out = make(type, rows * out_cols.size());
  for (std::int64_t r = 0; r < in_rows.size(); ++r)
    for (std::int64_t k = 0; k < cols; ++k)
      set(in, type, r * cols + k, value(type, 0, (in_rows.begin + r) * cols + k));
  complete(c, plan, in, out);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t k = 0; k < out_cols.size(); ++k) {
      const std::int64_t at = transpose ? k * rows + r : r * out_cols.size() + k;
      ASSERT_EQ(get(out, type, at), value(type, 0, r * cols + out_cols.begin + k)) << rows << "x" << cols;
    }
  }
}

TEST(Comm, AllToAllOfUnevenAndEmptyParts) {
  for_all_meshes([](Communicator& c, int rank, DType type, const std::vector<int>& group) {
    for (std::int64_t rows : {0, 1, 3, 5, 64}) {
      for (std::int64_t cols : {1, 2, 7, 33}) {
        check_all_to_all(c, rank, type, group, rows, cols, false);
        check_all_to_all(c, rank, type, group, rows, cols, true);
      }
    }
  });
}

TEST(Comm, PermuteAndHaloExchange) {
  for_all_meshes([](Communicator& c, int rank, DType type, const std::vector<int>& group) {
    const int n = static_cast<int>(group.size()), me = position_in(group, rank);
    for (std::int64_t size : {1, 2, 17, 64}) {
      auto at = [&](int i) { return group[static_cast<std::size_t>((me + i + n) % n)]; };
      auto plan = plan_of("exchange", type, Combine::None, group, size);
      plan.pieces.push_back(
          run_of({at(-1)}, size - 1, 0, 1));  // one element from the left, mine, one from the right
      plan.pieces.push_back(run_of({rank}, 0, 1, size));
      plan.pieces.push_back(run_of({at(1)}, 0, size + 1, 1));
      Buffer in = make(type, size), out = make(type, size + 2);
      for (std::int64_t i = 0; i < size; ++i) set(in, type, i, value(type, rank, i));
      complete(c, plan, in, out);
      ASSERT_EQ(get(out, type, 0), value(type, at(-1), size - 1));
      for (std::int64_t i = 0; i < size; ++i) ASSERT_EQ(get(out, type, i + 1), value(type, rank, i));
      ASSERT_EQ(get(out, type, size + 1), value(type, at(1), 0));
    }
  });
}

TEST(Comm, ReductionThatMovesAndTransposes) {
  for_all_meshes([](Communicator& c, int rank, DType type, const std::vector<int>& group) {
    const std::int64_t rows = 3, cols = 5;
    auto plan = plan_of("exchange", type, Combine::Sum, group, rows * cols);
    plan.pieces.push_back({group, 0, 0, {rows, cols}, {cols, 1}, {1, rows}});
    Buffer in = make(type, rows * cols), out = make(type, rows * cols);
    for (std::int64_t i = 0; i < rows * cols; ++i) set(in, type, i, value(type, rank, i));
    complete(c, plan, in, out);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t k = 0; k < cols; ++k)
        ASSERT_EQ(get(out, type, k * rows + r), combined(type, Combine::Sum, group, r * cols + k));
  });
}

// 1 + 2^-24 + 2^-24 in f32 depends on the order; in rank order with one rounding a term it is 1, the other
// way 1 + 2^-23.
TEST(Comm, SumsAreInRankOrder) {
  for (std::int64_t size : {8, 5000}) {
    ThreadsWorld world(3, {.deadline_seconds = 20, .random_delays = true});
    for (int one : {0, 2}) {
      run_ranks(world, [&](Communicator& c, int rank) {
        std::vector<float> in(static_cast<std::size_t>(size), rank == one ? 1.0f : 0x1p-24f), out(in.size());
        auto plan = plan_of("all_reduce", DType::F32, Combine::Sum, {0, 1, 2}, size * 4);
        plan.pieces.push_back(run_of({0, 1, 2}, 0, 0, size));
        auto prepared = c.prepare(plan);
        c.wait(c.start(*prepared, in.data(), out.data()));
        for (float x : out) ASSERT_EQ(x, one == 0 ? 1.0f : 1.0f + 0x1p-23f);
      });
    }
  }
}

// bf16: 256 + 1 + 1: partial sums in bf16 would stay at 256; summed in f32 and rounded once it is 258.
TEST(Comm, Bf16SumsAreRoundedOnce) {
  ThreadsWorld world(3, {.deadline_seconds = 20, .random_delays = false});
  run_ranks(world, [&](Communicator& c, int rank) {
    std::vector<bf16> in(9000, bf16(rank == 0 ? 256.0f : 1.0f)), out(in.size());
    auto plan = plan_of("all_reduce", DType::BF16, Combine::Sum, {0, 1, 2}, 18000);
    plan.pieces.push_back(run_of({0, 1, 2}, 0, 0, 9000));
    auto prepared = c.prepare(plan);
    c.wait(c.start(*prepared, in.data(), out.data()));
    for (bf16 x : out) ASSERT_EQ(static_cast<float>(x), 258.0f);
  });
}

TEST(Comm, MaximumOfNanIsNan) {
  ThreadsWorld world(2, {.deadline_seconds = 20, .random_delays = false});
  for (int nan_rank : {0, 1}) {
    run_ranks(world, [&](Communicator& c, int rank) {
      const float in = rank == nan_rank ? NAN : 1.0f;
      float out = 0;
      auto plan = plan_of("all_reduce", DType::F32, Combine::Max, {0, 1}, 4);
      plan.pieces.push_back(run_of({0, 1}, 0, 0, 1));
      auto prepared = c.prepare(plan);
      c.wait(c.start(*prepared, &in, &out));
      EXPECT_TRUE(std::isnan(out));
    });
  }
}

// After wait the input is mine again: whoever overwrites it at once must not change what others get. Several
// in flight.
TEST(Comm, InputsMayBeOverwrittenAfterWaitAndManyAreInFlight) {
  constexpr int kRanks = 4, kInFlight = 5;
  constexpr std::int64_t kSize = 6000;
  ThreadsWorld world(kRanks, {.deadline_seconds = 20, .random_delays = true});
  const std::vector<int> group{0, 1, 2, 3};
  run_ranks(world, [&](Communicator& c, int rank) {
    std::vector<std::unique_ptr<PreparedCollective>> prepared;
    std::vector<std::vector<std::int32_t>> in(kInFlight), out(kInFlight);
    for (int k = 0; k < kInFlight; ++k) {
      auto plan = plan_of(k % 2 ? "all_reduce" : "all_gather", DType::I32,
                          k % 2 ? Combine::Sum : Combine::None, group, k);
      if (k % 2) plan.pieces.push_back(run_of(group, 0, 0, kSize));
      for (int m = 0; m < kRanks && k % 2 == 0; ++m) plan.pieces.push_back(run_of({m}, 0, m * kSize, kSize));
      prepared.push_back(c.prepare(plan));
      in[static_cast<std::size_t>(k)].resize(kSize);
      out[static_cast<std::size_t>(k)].resize(k % 2 ? kSize : kSize * kRanks);
    }
    for (int round = 0; round < 30; ++round) {
      std::vector<Ticket> tickets;
      for (std::size_t k = 0; k < kInFlight; ++k) {
        for (std::int64_t i = 0; i < kSize; ++i)
          in[k][static_cast<std::size_t>(i)] = static_cast<std::int32_t>(round * 1000 + i * (rank + 1));
        tickets.push_back(c.start(*prepared[k], in[k].data(), out[k].data()));
      }
      for (std::size_t k : {3u, 0u, 1u, 4u, 2u}) {
        c.wait(tickets[k]);
        std::fill(in[k].begin(), in[k].end(), -1);
        for (std::int64_t i = 0; i < kSize; ++i) {
          if (k % 2) {
            ASSERT_EQ(out[k][static_cast<std::size_t>(i)], round * 4000 + i * 10);
          } else {
            for (int m = 0; m < kRanks; ++m)
              ASSERT_EQ(out[k][static_cast<std::size_t>(m * kSize + i)], round * 1000 + i * (m + 1));
          }
        }
      }
    }
  });
}

TEST(Comm, BroadcastAndBarrier) {
  ThreadsWorld world(3, {.deadline_seconds = 20, .random_delays = true});
  std::atomic<int> arrived{0};
  run_ranks(world, [&](Communicator& c, int rank) {
    std::vector<int> data(1000, rank);
    c.broadcast(data.data(), data.size() * sizeof(int), 1);
    EXPECT_THAT(data, ::testing::Each(1));
    auto barrier = c.prepare(plan_of("barrier", DType::F32, Combine::None, {0, 1, 2}, 0));
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      c.barrier(*barrier);
      EXPECT_GE(arrived.load(), 3 * round);
      c.barrier(*barrier);
    }
  });
}

}  // namespace
}  // namespace tessera
