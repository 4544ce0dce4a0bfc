// The parts of blockwise attention that know no call: pairs of blocks, rows to and from scratch, register
// tiles. Included once per vector target.
#if defined(TESSERA_EXEC_CPU_ATTENTION_BLOCKS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_EXEC_CPU_ATTENTION_BLOCKS_INL_H
#undef TESSERA_EXEC_CPU_ATTENTION_BLOCKS_INL_H
#else
#define TESSERA_EXEC_CPU_ATTENTION_BLOCKS_INL_H
#endif

#include <hwy/cache_control.h>

#include <algorithm>

#include "exec/cpu/attention.h"
#include "exec/cpu/row-inl.h"
#include "exec/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {

constexpr int kBlock = kAttentionBlock;
constexpr int kVector = static_cast<int>(HWY_LANES(float));
// Queries whose visible part of a memory block is found together.
constexpr int kPanel = kTileColumns<float> < 16 ? 16 : kTileColumns<float>;
constexpr int kPanels = kBlock / kPanel;
static_assert(kBlock % kTileRows == 0 && kBlock % kPanel == 0 && kPanel % kTileColumns<float> == 0);
static_assert(kAttentionWidth % kTileColumns<float> == 0);

using FloatTag = hwy::HWY_NAMESPACE::ScalableTag<float>;
using IntTag = hwy::HWY_NAMESPACE::Rebind<std::int32_t, FloatTag>;

// A register tile of c = a b, or added to it; of a, rows or columns lie `a_pitch` apart.
template <TileForm kForm>
HWY_INLINE void tile_at(const float* a, std::int64_t a_pitch, const float* b, std::int64_t b_pitch, float* c,
                        std::int64_t c_pitch, int kc, bool add) {
  float* row[kTileRows];
  for (int i = 0; i < kTileRows; ++i) row[i] = c + i * c_pitch;
  multiply_tile<kForm>(Tile<float>{a, b, a_pitch, a_pitch, b_pitch, kc, add}, row);
}

struct Range {
  int begin = 0, end = 0;

  bool empty() const { return begin >= end; }
  int size() const { return end - begin; }
  bool meets(int from, int to) const { return !empty() && begin < to && end > from; }
  void cover(const Range& other) {
    if (other.empty()) return;
    if (empty()) *this = other;
    begin = std::min(begin, other.begin);
    end = std::max(end, other.end);
  }
};

// A block of queries with a block of the memory. Tiles over both hold a memory position in each row.
struct BlockPair {
  std::int64_t block = 0, first = 0;  // of the memory; its first position
  int queries = 0, memory = 0, panels = 0;
  bool masked = false;  // some pairs are hidden
  Range seen[kPanels];  // positions of the memory block that some query of a panel may see

  // Queries of which some may see positions [from, to).
  Range queries_seeing(int from, int to) const {
    Range all;
    for (int p = 0; p < panels; ++p) {
      if (seen[p].meets(from, to)) all.cover({p * kPanel, std::min((p + 1) * kPanel, queries)});
    }
    return all;
  }
  // Positions that some of the queries [from, to) may see.
  Range memory_seen(int from, int to) const {
    Range all;
    for (int p = from / kPanel; p < panels && p * kPanel < to; ++p) all.cover(seen[p]);
    return all;
  }
};

// Up to the next multiple of `to`.
constexpr int rounded_up(int n, int to) {
  return (n + to - 1) / to * to;
}

// Rows of one head lie apart, which the processor's own prefetching does not see through: they are fetched so
// many rows before they are read.
constexpr int kAhead = 6;
template <class T>
void fetch_row(const T* row, std::int64_t features) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  for (std::int64_t i = 0; i < features; i += kLine) hwy::Prefetch(row + i);
}

// Rows of a matrix as f32, times a factor, `width` apart; features behind the last and rows behind `count`
// are zeros.
template <class T>
void load_rows(const T* from, AttentionPlan::Step step, int count, int padded, std::int64_t features,
               std::int64_t width, float factor, float* to) {
  namespace hn = hwy::HWY_NAMESPACE;
  const FloatTag d;
  const auto scale = hn::Set(d, factor);
  for (int r = 0; r < count; ++r, to += width, from += step.row) {
    if (step.feature != 1) {
      for (std::int64_t i = 0; i < features; ++i) to[i] = widened<float>(from[i * step.feature]) * factor;
      std::fill(to + features, to + width, 0.0F);
      continue;
    }
    std::int64_t i = 0;
    if (r + kAhead < count) fetch_row(from + kAhead * step.row, features);
    for (; i < features; i += kVector) hn::Store(hn::Mul(read(d, from, i, features), scale), d, to + i);
    for (; i < width; i += kVector) hn::Store(hn::Zero(d), d, to + i);
  }
  std::fill_n(to, (padded - count) * width, 0.0F);
}

// The way back, of one row.
template <class T>
void store_row(const float* from, float factor, std::int64_t features, std::int64_t step, T* to) {
  namespace hn = hwy::HWY_NAMESPACE;
  const FloatTag d;
  if (step != 1) {
    for (std::int64_t i = 0; i < features; ++i) to[i * step] = narrowed<T>(from[i] * factor);
    return;
  }
  const auto scale = hn::Set(d, factor);
  for (std::int64_t i = 0; i < features; i += kVector) {
    write(d, hn::Mul(hn::Load(d, from + i), scale), to, i, features);
  }
}

// The first `count` rows become columns of a tile.
inline void transpose_block(const float* rows, int count, std::int64_t width, float* columns) {
  constexpr int kStep = kSquare<float>;
  for (int r = 0; r < count; r += kStep) {
    const float* from[kStep];
    for (int s = 0; s < kStep; ++s) from[s] = rows + (r + s) * width;
    transpose_rows<kStep>(from, columns + r, kBlock, width);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#endif
