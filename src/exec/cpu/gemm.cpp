// The blocked matrix product: panels of both operands are packed to the accumulator's type, and a register
// tile of the result is summed over one block of k at a time.
#include "exec/cpu/gemm.h"

#include <algorithm>
#include <cstring>

#include "base/simd.h"
#include "exec/team.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/gemm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/vector-inl.h"
#include "exec/cpu/gemm_blocks.h"
#include "exec/cpu/tile-inl.h"

namespace tessera {
void* gemm_panel();  // where the calling thread packs its block of A
}

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

static_assert(kTileRows <= kGemmMaxRows);
constexpr int kTogether = 4;  // panels that are packed at once

// One panel: kWidth consecutive elements of `free` (fewer at the end: zeros) by `kc` of `k`.
template <int kWidth, class Acc, class T>
void pack_panel(const T* from, const GemmIndex& free, std::int64_t f0, int width, const GemmIndex& k,
                std::int64_t k0, int kc, Acc* to) {
  if (free.contiguous(f0, width)) {
    const T* base = from + free.at(f0);
    if (width == kWidth) {
      for (int i = 0; i < kc; ++i) widen_run(base + k.at(k0 + i), to + i * kWidth, kWidth);
      return;
    }
    for (int i = 0; i < kc; ++i) {
      widen_run(base + k.at(k0 + i), to + i * kWidth, width);
      std::memset(to + i * kWidth + width, 0, static_cast<std::size_t>(kWidth - width) * sizeof(Acc));
    }
    return;
  }
  if (k.run(k0) > 1) {
    // Rows of k become columns, piece by piece; bf16 is converted first. Missing rows read zeros.
    constexpr int kPiece = 64;
    alignas(64) static constexpr Acc kZeros[kPiece] = {};
    alignas(64) Acc piece[std::is_same_v<T, Acc> ? 1 : kWidth * kPiece];
    const Acc* rows[kWidth];
    for (int i0 = 0, n = 0; i0 < kc; i0 += n) {
      n = static_cast<int>(std::min<std::int64_t>(std::min(kPiece, kc - i0), k.run(k0 + i0)));
      for (int i = 0; i < kWidth; ++i) {
        if (i >= width) {
          rows[i] = kZeros;
          continue;
        }
        const T* row = from + free.at(f0 + i) + k.at(k0 + i0);
        if constexpr (std::is_same_v<T, Acc>) {
          rows[i] = row;
        } else {
          widen_run(row, piece + i * kPiece, n);
          rows[i] = piece + i * kPiece;
        }
      }
      transpose_rows<kWidth>(rows, to + i0 * kWidth, kWidth, n);
    }
    return;
  }
  for (int i = 0; i < kc; ++i) {
    const T* base = from + k.at(k0 + i);
    for (int j = 0; j < kWidth; ++j)
      to[i * kWidth + j] = j < width ? widened<Acc>(base[free.at(f0 + j)]) : Acc(0);
  }
}

// Operands of type T, a result of type R. Blocks are shared out to threads, or all the caller's (`alone`).
template <class T, class R, class Acc>
class BlockedProduct {
 public:
  BlockedProduct(const GemmPlan& plan, const GemmBlocks& blocks, void* workspace, bool alone)
      : plan_(plan), blocks_(blocks), alone_(alone) {
    b_pack_ = static_cast<Acc*>(workspace);
    sums_ = b_pack_ + blocks.b_pack();
  }

  void run(const T* a, const T* b, R* c, const GemmRange& range) const {
    const std::int64_t depth = plan_.a_k.count();
    // A result that cannot hold partial sums is kept in `sums_` until all of k is done.
    const bool apart = blocks_.apart && depth > blocks_.kc;
    const std::int64_t m_step = apart ? blocks_.m_apart : range.m_end - range.m_begin;
    for (std::int64_t n0 = range.n_begin; n0 < range.n_end; n0 += blocks_.nc) {
      const std::int64_t n1 = std::min(n0 + blocks_.nc, range.n_end);
      for (std::int64_t m0 = range.m_begin; m0 < range.m_end; m0 += m_step) {
        const std::int64_t m1 = std::min(m0 + m_step, range.m_end);
        for (std::int64_t k0 = 0; k0 < std::max<std::int64_t>(depth, 1); k0 += blocks_.kc)
          run_depth(
              a, b, c,
              {m0, m1, n0, n1, k0, static_cast<int>(std::min<std::int64_t>(blocks_.kc, depth - k0)), apart});
        if (!apart) continue;
        in_blocks(m0, m1, blocks_.mc,
                  [&](std::int64_t i0, std::int64_t i1) { store_sums(c, m0, i0, i1, n0, n1); });
      }
    }
  }

 private:
  // Rows [m0, m1) and columns [n0, n1) of the result, summed over kc elements of k.
  struct Depth {
    std::int64_t m0, m1, n0, n1, k0;
    int kc;
    bool apart;
    const T* straight_b = nullptr;  // b itself instead of its packed block
  };

  // body(i, end) for every block of `step` of [begin, end).
  template <class Body>
  void in_blocks(std::int64_t begin, std::int64_t end, std::int64_t step, const Body& body) const {
    const auto block = [&](int i) { body(begin + i * step, std::min(begin + (i + 1) * step, end)); };
    const int count = static_cast<int>((end - begin + step - 1) / step);
    if (!alone_) return share_parts(count, block);
    for (int i = 0; i < count; ++i) block(i);
  }

  void run_depth(const T* a, const T* b, R* c, Depth d) const {
    constexpr std::int64_t kColumns = 512;  // that are packed at a time
    static_assert(kColumns % kTileColumns<Acc> == 0);
    if (reads_b_straight(d.m1 - d.m0, d.n0, d.n1)) {
      d.straight_b = b + plan_.b_n.at(d.n0) + plan_.b_k.at(d.k0);
    } else {
      in_blocks(d.n0, d.n1, kColumns, [&](std::int64_t n, std::int64_t end) {
        pack<kTileColumns<Acc>>(b, plan_.b_n, n, end, plan_.b_k, d.k0, d.kc, b_pack_ + (n - d.n0) * d.kc);
      });
    }
    in_blocks(d.m0, d.m1, blocks_.mc, [&](std::int64_t i0, std::int64_t i1) {
      if (d.apart) {
        rows<true>(a, c, d, i0, i1);
      } else {
        rows<false>(a, c, d, i0, i1);
      }
    });
  }

  // A few rows do not repay the packing of b, if its columns lie behind each other and fill whole tiles; few
  // columns do not repay that of a, if k does.
  bool reads_b_straight(std::int64_t rows, std::int64_t n0, std::int64_t n1) const {
    if (!std::is_same_v<T, Acc> || rows > 2 * kGemmMaxRows || (n1 - n0) % kTileColumns<Acc> != 0)
      return false;
    return plan_.b_n.contiguous(n0, n1 - n0) && plan_.b_k.even();
  }
  bool reads_a_straight(std::int64_t columns) const {
    return std::is_same_v<T, Acc> && columns <= 256 && plan_.a_m.even() && plan_.a_k.even() &&
           plan_.a_k.contiguous(0, plan_.a_k.count());
  }

  template <int kWidth>
  void pack(const T* from, const GemmIndex& free, std::int64_t begin, std::int64_t end, const GemmIndex& k,
            std::int64_t k0, int kc, Acc* to) const {
    std::int64_t f = begin;
    // Several panels at once, so that a row is read in one go and its conversion fills whole vectors.
    constexpr std::int64_t kRun = kTogether * kWidth;
    for (; f + kRun <= end && free.contiguous(f, kRun); f += kRun) {
      for (int i = 0; i < kc; ++i) {
        const T* row = from + free.at(f) + k.at(k0 + i);
        alignas(64) Acc wide[kRun];
        const Acc* source = wide;
        if constexpr (std::is_same_v<T, Acc>) {
          source = row;
        } else {
          widen_run(row, wide, kRun);
        }
        for (int p = 0; p < kTogether; ++p) {
          std::memcpy(to + static_cast<std::int64_t>(p * kc + i) * kWidth, source + p * kWidth,
                      kWidth * sizeof(Acc));
        }
      }
      to += kRun * kc;
    }
    for (; f < end; f += kWidth) {
      const int width = static_cast<int>(std::min<std::int64_t>(kWidth, end - f));
      pack_panel<kWidth>(from, free, f, width, k, k0, kc, to);
      to += static_cast<std::int64_t>(kWidth) * kc;
    }
  }

  // Rows [i0, i1) of it into c, or into sums_ (row-major, nc wide, from row m0).
  template <bool kApart>
  void rows(const T* a, R* c, const Depth& d, std::int64_t i0, std::int64_t i1) const {
    auto* a_pack = static_cast<Acc*>(gemm_panel());
    // Of rows that are read straight only the last, partial panel is packed.
    const T* straight_a = nullptr;
    if (reads_a_straight(d.n1 - d.n0)) straight_a = a + plan_.a_m.at(i0) + plan_.a_k.at(d.k0);
    const std::int64_t packed = straight_a ? i1 - (i1 - i0) % kTileRows : i0;
    pack<kTileRows>(a, plan_.a_m, packed, i1, plan_.a_k, d.k0, d.kc, a_pack);
    Tile<Acc> tile{nullptr, b_pack_, 1, kTileRows, kTileColumns<Acc>, d.kc, d.k0 > 0 || plan_.accumulate};
    std::int64_t b_panel = static_cast<std::int64_t>(kTileColumns<Acc>) * d.kc;
    if constexpr (std::is_same_v<T, Acc>) {
      if (d.straight_b) tile.b = d.straight_b, tile.b_step = plan_.b_k.at(1), b_panel = kTileColumns<Acc>;
    }
    for (std::int64_t n = d.n0; n < d.n1; n += kTileColumns<Acc>, tile.b += b_panel) {
      const int columns = static_cast<int>(std::min<std::int64_t>(kTileColumns<Acc>, d.n1 - n));
      const Acc* panel = a_pack;
      for (std::int64_t i = i0; i < i1; i += kTileRows) {
        const int rows = static_cast<int>(std::min<std::int64_t>(kTileRows, i1 - i));
        bool straight = false;
        if constexpr (std::is_same_v<T, Acc>) straight = straight_a && rows == kTileRows;
        if (straight) {
          if constexpr (std::is_same_v<T, Acc>) tile.a = straight_a + (i - i0) * plan_.a_m.at(1);
          tile.a_row = plan_.a_m.at(1);
        } else {
          tile.a = panel, tile.a_row = 1;
          panel += static_cast<std::int64_t>(kTileRows) * d.kc;
        }
        if constexpr (kApart) {
          Acc* row[kTileRows];
          for (int r = 0; r < kTileRows; ++r) row[r] = sums_ + (i - d.m0 + r) * blocks_.nc + (n - d.n0);
          fetch(row);
          multiply(tile, straight, row);
        } else {
          tile_to_result(tile, straight, c, i, rows, n, columns);
        }
      }
    }
  }

  static void multiply(const Tile<Acc>& tile, bool straight, Acc* const* row) {
    if (straight) return multiply_tile<TileForm::Rows>(tile, row);
    if (tile.b_step != kTileColumns<Acc>) return multiply_tile<TileForm::Columns>(tile, row);
    multiply_tile<TileForm::Panels>(tile, row);
  }

  // The result's lines are on their way while the tile is summed. (Inlined, or the compiler drops calls of a
  // function that only prefetches.)
  static HWY_INLINE void fetch(Acc* const* row) {
    constexpr int kLast = kTileColumns<Acc> - 1;
    for (int r = 0; r < kTileRows; ++r) {
      __builtin_prefetch(row[r], 1);
      __builtin_prefetch(row[r] + kLast, 1);
    }
  }

  void tile_to_result(Tile<Acc> tile, bool straight, R* c, std::int64_t m, int rows, std::int64_t n,
                      int columns) const {
    const bool contiguous = plan_.c_n.contiguous(n, columns);
    if constexpr (std::is_same_v<R, Acc>) {
      if (rows == kTileRows && columns == kTileColumns<Acc> && contiguous) {
        Acc* row[kTileRows];
        for (int r = 0; r < kTileRows; ++r) row[r] = c + plan_.c_m.at(m + r) + plan_.c_n.at(n);
        fetch(row);
        return multiply(tile, straight, row);
      }
    }
    alignas(64) Acc part[kTileRows * kTileColumns<Acc>];
    Acc* row[kTileRows];
    for (int r = 0; r < kTileRows; ++r) row[r] = part + r * kTileColumns<Acc>;
    const bool add = tile.add;
    tile.add = false;
    multiply(tile, straight, row);
    for (int r = 0; r < rows; ++r) store_row(row[r], add, c + plan_.c_m.at(m + r), n, columns, contiguous);
  }

  // Sums that are added to never pass through a narrower type (`apart`).
  void store_row(const Acc* from, bool add, R* row, std::int64_t n, int columns, bool contiguous) const {
    if (contiguous && !add) return narrow_run(from, row + plan_.c_n.at(n), columns);
    for (int j = 0; j < columns; ++j) {
      R& to = row[plan_.c_n.at(n + j)];
      if constexpr (std::is_same_v<R, Acc>) {
        to = add ? static_cast<R>(from[j] + to) : from[j];
      } else {
        to = narrowed<R>(from[j]);
      }
    }
  }

  // Rows [i0, i1) of sums_, which begins at row m0.
  void store_sums(R* c, std::int64_t m0, std::int64_t i0, std::int64_t i1, std::int64_t n0,
                  std::int64_t n1) const {
    const int columns = static_cast<int>(n1 - n0);
    const bool contiguous = plan_.c_n.contiguous(n0, columns);
    for (std::int64_t m = i0; m < i1; ++m)
      store_row(sums_ + (m - m0) * blocks_.nc, false, c + plan_.c_m.at(m), n0, columns, contiguous);
  }

  const GemmPlan& plan_;
  const GemmBlocks& blocks_;
  Acc *b_pack_, *sums_;
  bool alone_;
};

// i32 is summed as u32, so that overflow wraps.
void run_range(const GemmPlan& plan, const GemmBlocks& blocks, void* workspace, const void* a,
               std::int64_t a_at, const void* b, std::int64_t b_at, void* c, std::int64_t c_at,
               const GemmRange& range, bool alone) {
  const auto go = [&]<class T, class R, class Acc>(T, R, Acc) {
    BlockedProduct<T, R, Acc>(plan, blocks, workspace, alone)
        .run(static_cast<const T*>(a) + a_at, static_cast<const T*>(b) + b_at, static_cast<R*>(c) + c_at,
             range);
  };
  switch (plan.dtype) {
    case DType::F32:
      return go(float(), float(), float());
    case DType::F64:
      return go(double(), double(), double());
    case DType::I32:
      return go(std::uint32_t(), std::uint32_t(), std::uint32_t());
    default:
      return plan.result == DType::F32 ? go(bf16(), float(), float()) : go(bf16(), bf16(), float());
  }
}

}  // namespace

void gemm_range(const GemmPlan& plan, const GemmBlocks& blocks, void* workspace, const void* a,
                std::int64_t a_at, const void* b, std::int64_t b_at, void* c, std::int64_t c_at,
                const GemmRange& range, bool alone) {
  run_range(plan, blocks, workspace, a, a_at, b, b_at, c, c_at, range, alone);
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace tessera {

HWY_EXPORT(gemm_range);

GemmIndex::GemmIndex(std::vector<std::int64_t> offsets) : count_(static_cast<std::int64_t>(offsets.size())) {
  if (offsets.size() < 2) return;
  stride_ = offsets[1] - offsets[0];
  bool even = offsets[0] == 0;
  for (std::size_t i = 1; i < offsets.size(); ++i) even = even && offsets[i] - offsets[i - 1] == stride_;
  if (even) return;
  offsets_ = std::move(offsets);
  runs_.assign(offsets_.size(), 1);
  for (std::size_t i = offsets_.size() - 1; i-- > 0;) {
    if (offsets_[i + 1] == offsets_[i] + 1) runs_[i] = runs_[i + 1] + 1;
  }
}

void* gemm_panel() {
  alignas(64) thread_local std::byte panel[GemmBlocks::kPanelBytes];
  return panel;
}

std::int64_t gemm_workspace(DType dtype, DType result, std::int64_t m, std::int64_t n, std::int64_t k,
                            int threads) {
  return threads * GemmBlocks(dtype, result, m, n, k, threads).bytes();
}

void gemm(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace) {
  constexpr double kWorthSharing = 1 << 24;  // multiplications: some tenths of a millisecond
  const std::int64_t m = plan.c_m.count(), n = plan.c_n.count(), k = plan.a_k.count();
  const GemmBlocks blocks(plan.dtype, plan.result, m, n, k, plan.threads);
  std::int64_t batches = 1;
  for (const GemmBatch& dim : plan.batch) batches *= dim.count;
  const auto product = [&](std::int64_t item, const GemmRange& range, void* scratch, bool alone) {
    std::int64_t at[3] = {0, 0, 0};
    for (std::size_t d = plan.batch.size(); d-- > 0;) {
      const GemmBatch& dim = plan.batch[d];
      const std::int64_t i = item % dim.count;
      item /= dim.count;
      at[0] += i * dim.a, at[1] += i * dim.b, at[2] += i * dim.c;
    }
    if (range.empty()) return;
    HWY_DYNAMIC_DISPATCH(gemm_range)(plan, blocks, scratch, a, at[0], b, at[1], c, at[2], range, alone);
  };
  // Blocks of a large product are shared. Else threads do whole products when there are enough of them, or
  // parts of the longer side.
  if (m > blocks.mc &&
      static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) >= kWorthSharing) {
    for (std::int64_t item = 0; item < batches; ++item) product(item, {0, m, 0, n}, workspace, false);
    return;
  }
  const int parts = batches >= plan.threads ? 1 : plan.threads;
  const std::int64_t items = batches * parts;
  for_each_part(plan.threads, [&](int part) {
    char* scratch = static_cast<char*>(workspace) + part * blocks.bytes();
    for (std::int64_t i = items * part / plan.threads; i < items * (part + 1) / plan.threads; ++i)
      product(i / parts, GemmRange::part(m, n, i % parts, parts), scratch, true);
  });
}

}  // namespace tessera
#endif
