// What blocked matrix products are made of: the register tile, and transposition of squares. Included once
// per vector target.
#if defined(TESSERA_EXEC_CPU_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_EXEC_CPU_TILE_INL_H
#undef TESSERA_EXEC_CPU_TILE_INL_H
#else
#define TESSERA_EXEC_CPU_TILE_INL_H
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {

// Rows of the register tile; its width is two vectors.
constexpr int kTileRows = HWY_TARGET == HWY_AVX3 ? 12 : 6;
template <class Acc>
constexpr int kTileColumns = 2 * static_cast<int>(HWY_LANES(Acc));

// Transposes a square of kSquare rows: to[j * pitch + i] = from[i][j].
#if HWY_TARGET == HWY_SCALAR
template <class Acc>
constexpr int kSquare = 1;

template <class Acc>
HWY_INLINE void transpose_square(const Acc* const* from, Acc* to, int) {
  to[0] = from[0][0];
}
#else
template <class Acc>
constexpr int kSquare = 16 / static_cast<int>(sizeof(Acc));

template <class Acc>
HWY_INLINE void transpose_square(const Acc* const* from, Acc* to, int pitch) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::FixedTag<Acc, 16 / sizeof(Acc)> d;
  if constexpr (sizeof(Acc) == 8) {
    const auto r0 = hn::LoadU(d, from[0]), r1 = hn::LoadU(d, from[1]);
    hn::StoreU(hn::InterleaveLower(d, r0, r1), d, to);
    hn::StoreU(hn::InterleaveUpper(d, r0, r1), d, to + pitch);
  } else {
    const hn::FixedTag<double, 2> w;
    const auto r0 = hn::LoadU(d, from[0]), r1 = hn::LoadU(d, from[1]);
    const auto r2 = hn::LoadU(d, from[2]), r3 = hn::LoadU(d, from[3]);
    const auto a0 = hn::BitCast(w, hn::InterleaveLower(d, r0, r1));
    const auto a1 = hn::BitCast(w, hn::InterleaveLower(d, r2, r3));
    const auto a2 = hn::BitCast(w, hn::InterleaveUpper(d, r0, r1));
    const auto a3 = hn::BitCast(w, hn::InterleaveUpper(d, r2, r3));
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(w, a0, a1)), d, to);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(w, a0, a1)), d, to + pitch);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(w, a2, a3)), d, to + 2 * pitch);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(w, a2, a3)), d, to + 3 * pitch);
  }
}
#endif

// rows[i][k] -> to[k * pitch + i] for i < kWidth and k < n.
template <int kWidth, class Acc>
HWY_INLINE void transpose_rows(const Acc* const* rows, Acc* to, int pitch, std::int64_t n) {
  constexpr int kStep = kSquare<Acc>;
  std::int64_t k = 0;
  for (; k + kStep <= n; k += kStep) {
    int i = 0;
    for (; i + kStep <= kWidth; i += kStep) {
      const Acc* from[kStep];
      for (int s = 0; s < kStep; ++s) from[s] = rows[i + s] + k;
      transpose_square(from, to + k * pitch + i, pitch);
    }
    for (; i < kWidth; ++i) {
      for (int s = 0; s < kStep; ++s) to[(k + s) * pitch + i] = rows[i][k + s];
    }
  }
  for (; k < n; ++k) {
    for (int i = 0; i < kWidth; ++i) to[k * pitch + i] = rows[i][k];
  }
}

// Where a tile's operands lie: element (i, k) of a, row k of b at b + k * b_step.
template <class Acc>
struct Tile {
  const Acc *a, *b;
  std::int64_t a_row, a_step, b_step;
  int kc;
  bool add;  // to what is in c
};

// How a tile's operands lie. Of a, one step is 1: `Rows` of it lie in memory as they are (element (i, k) at
// i * a_row + k), or `Columns` do (at i + k * a_step). `Panels`: columns of both, without gaps, which takes
// no instructions to step from one to the next.
enum class TileForm { Rows, Columns, Panels };

// c[i] = row i of the product, kTileRows by kTileColumns.
template <TileForm kForm, class Acc>
HWY_INLINE void multiply_tile(const Tile<Acc>& tile, Acc* const* c) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<Acc> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kLanes = static_cast<int>(HWY_LANES(Acc));
  const Acc* HWY_RESTRICT a = tile.a;
  const Acc* HWY_RESTRICT b = tile.b;
  const std::int64_t a_row = kForm == TileForm::Rows ? tile.a_row : 1;
  const std::int64_t a_step = kForm == TileForm::Rows     ? 1
                              : kForm == TileForm::Panels ? kTileRows
                                                          : tile.a_step;
  const std::int64_t b_step = kForm == TileForm::Panels ? kTileColumns<Acc> : tile.b_step;
  V s0[kTileRows], s1[kTileRows];
#pragma GCC unroll 12
  for (int i = 0; i < kTileRows; ++i) s0[i] = s1[i] = hn::Zero(d);
    // Unrolled: where two hardware threads share a core, its instructions are what a product waits for.
#pragma GCC unroll 4
  for (int k = 0; k < tile.kc; ++k) {
    const V b0 = hn::LoadU(d, b), b1 = hn::LoadU(d, b + kLanes);
#pragma GCC unroll 12
    for (int i = 0; i < kTileRows; ++i) {
      const V x = hn::Set(d, a[i * a_row]);
      if constexpr (std::is_integral_v<Acc>) {
        s0[i] = hn::Add(s0[i], hn::Mul(x, b0));
        s1[i] = hn::Add(s1[i], hn::Mul(x, b1));
      } else {
        s0[i] = hn::MulAdd(x, b0, s0[i]);
        s1[i] = hn::MulAdd(x, b1, s1[i]);
      }
    }
    a += a_step;
    b += b_step;
  }
  if (tile.add) {
#pragma GCC unroll 12
    for (int i = 0; i < kTileRows; ++i) {
      s0[i] = hn::Add(s0[i], hn::LoadU(d, c[i]));
      s1[i] = hn::Add(s1[i], hn::LoadU(d, c[i] + kLanes));
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kTileRows; ++i) {
    hn::StoreU(s0[i], d, c[i]);
    hn::StoreU(s1[i], d, c[i] + kLanes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#endif
