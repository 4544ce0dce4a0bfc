// A row of logits whose classes lie on several shards (Role::Joint): what each tells the others of its part,
// and what follows for the whole row. Shared by the reference and the fast kernels, which may meet in one
// call.
//
// The statistics are those of the online softmax (Milakov and Gimelshein, "Online normalizer calculation for
// softmax", arXiv 1805.02867). Pure functions: any thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tessera/op.h"

namespace tessera {

// Rows in blocks of nearly equal size: the first `longer` have one row more.
struct RowBlocks {
  // Long enough that a matrix product of a block runs at full speed, short enough that its logits are a small
  // part of what a step holds.
  static constexpr std::int64_t kRowsAtOnce = 512;

  explicit RowBlocks(std::int64_t rows)
      : count((rows + kRowsAtOnce - 1) / kRowsAtOnce),
        size(count == 0 ? 0 : rows / count),
        longer(count == 0 ? 0 : rows % count) {}
  std::int64_t rows_of(std::int64_t block) const { return size + (block < longer ? 1 : 0); }
  std::int64_t largest() const { return size + (longer > 0 ? 1 : 0); }

  std::int64_t count, size, longer;
};

// A shard's classes of one row; T is the type of the row's statistics.
template <class T>
struct RowPart {
  T max = std::numeric_limits<T>::lowest();  // of the logits; may be NaN where one of them is
  T sum = 0;                                 // of exp(logit - max); NaN where a logit is
  std::int32_t best = std::numeric_limits<std::int32_t>::max();  // global index of the first largest logit
};

struct WholeRow {
  double max = 0, sum = 0;
  std::int32_t best = 0;
  double log_z() const { return std::log(sum) + max; }
};

// `part` is the first shard's; the next one's lies `pitch` parts behind it. The same bits on every shard.
template <class T>
WholeRow whole_row(const RowPart<T>* part, int shards, std::int64_t pitch) {
  WholeRow row{static_cast<double>(part->max), 0, part->best};
  for (int s = 1; s < shards; ++s) {
    const RowPart<T>& other = part[s * pitch];
    const auto max = static_cast<double>(other.max);
    const bool level = max == row.max || (std::isnan(max) && std::isnan(row.max));
    if (level ? other.best < row.best : max > row.max || (std::isnan(max) && !std::isnan(row.max)))
      row.best = other.best;
    if (max > row.max || std::isnan(max)) row.max = max;
  }
  for (int s = 0; s < shards; ++s)
    row.sum += static_cast<double>(part[s * pitch].sum) *
               std::exp(static_cast<double>(part[s * pitch].max) - row.max);
  return row;
}

// What a call over that many rows tells (Op::exchange).
template <class T>
Exchange exchange_of_rows(std::int64_t rows) {
  const RowBlocks blocks(rows);
  return {blocks.largest() * static_cast<std::int64_t>(sizeof(RowPart<T>)), blocks.count};
}

}  // namespace tessera
