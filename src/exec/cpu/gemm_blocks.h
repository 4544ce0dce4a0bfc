// Block sizes of the matrix product and the part of the result that one thread computes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/dtype.h"

namespace tessera {

constexpr int kGemmMaxRows = 12;
constexpr int kGemmMaxColumnBytes = 128;

// A block of A (mc x kc) stays in the second-level cache, a panel of B in the first, a block of B (kc x nc)
// in the third. Every block of k goes over the result once more: there are as few as fit, of equal size.
// Blocks of rows are of equal size, too, and as many for each thread: they are what threads share.
struct GemmBlocks {
  static constexpr std::int64_t kMostRows = 144, kLeastRows = 48;
  static constexpr std::int64_t kDeepest = 320, kDeepestF64 = 240;

  int kc = 0;
  std::int64_t mc = kMostRows, nc = 2048;
  std::int64_t m_apart = 0;  // rows of a block of sums
  bool apart = false;        // sums cannot live in the result
  std::int64_t element = 4;

  GemmBlocks(DType dtype, DType result, std::int64_t m, std::int64_t n, std::int64_t k, int threads) {
    element = dtype == DType::F64 ? 8 : 4;
    apart = result == DType::BF16;
    const std::int64_t deepest = dtype == DType::F64 ? kDeepestF64 : kDeepest;
    if (dtype == DType::F64 || apart) nc = 512;
    const std::int64_t panel = kGemmMaxColumnBytes / element;
    const std::int64_t blocks = round_up((m + kMostRows - 1) / kMostRows, threads);
    mc = round_up(std::max((m + blocks - 1) / blocks, std::min(m, kLeastRows)), kGemmMaxRows);
    m_apart = kTogetherApart * mc;
    nc = std::min(nc, round_up(n, panel));
    m_ = round_up(m, kGemmMaxRows);
    k_ = std::clamp<std::int64_t>(k, 1, deepest);
    many_ = k > deepest;
    const std::int64_t count = many_ ? (k + deepest - 1) / deepest : 1;
    kc = static_cast<int>(round_up((std::max<std::int64_t>(k, 1) + count - 1) / count, 8));
  }

  // A block of A belongs to the thread that packs it.
  static constexpr std::size_t kPanelBytes =
      kMostRows * std::max<std::size_t>(kDeepest * sizeof(float), kDeepestF64 * sizeof(double));

  // Sizes in elements, multiples of a cache line.
  std::int64_t b_pack() const { return round_up(nc * k_, 16); }
  std::int64_t sums() const { return apart && many_ ? std::min(kTogetherApart * kMostRows, m_) * nc : 0; }
  std::int64_t bytes() const { return (b_pack() + sums()) * element; }

  static std::int64_t round_up(std::int64_t x, std::int64_t to) { return (x + to - 1) / to * to; }

 private:
  static constexpr std::int64_t kTogetherApart = 4;  // blocks of rows whose sums are kept at a time

  std::int64_t m_ = 0, k_ = 0;
  bool many_ = false;
};

struct GemmRange {
  std::int64_t m_begin = 0, m_end = 0, n_begin = 0, n_end = 0;

  bool empty() const { return m_begin >= m_end || n_begin >= n_end; }
  static GemmRange part(std::int64_t m, std::int64_t n, std::int64_t i, std::int64_t parts) {
    if (m >= n) {
      const std::int64_t step = GemmBlocks::round_up((m + parts - 1) / parts, kGemmMaxRows);
      return {std::min(m, i * step), std::min(m, (i + 1) * step), 0, n};
    }
    const std::int64_t step = GemmBlocks::round_up((n + parts - 1) / parts, kGemmMaxColumnBytes / 4);
    return {0, m, std::min(n, i * step), std::min(n, (i + 1) * step)};
  }
};

}  // namespace tessera
