// What the kernels over rows share: rows lie behind each other in memory and are dealt out to threads in
// order.
#pragma once

#include <cstdint>

#include "exec/cpu/kernels.h"
#include "exec/team.h"

namespace tessera {

enum class RowOp : std::uint8_t { Softmax, LogSoftmax, SoftmaxGrad, LogSumExp };

// Calls f(first row, end, part) with the rows cut into one part per thread.
template <class F>
void over_rows(std::int64_t rows, int threads, F f) {
  for_each_part(threads, [&](int part) {
    const std::int64_t begin = rows * part / threads, end = rows * (part + 1) / threads;
    if (begin < end) f(begin, end, part);
  });
}

inline bool is_half_or_single(DType type) {
  return type == DType::F32 || type == DType::BF16;
}

// True when `dim` is the last dimension, so that its rows are contiguous.
inline bool is_last(const Shape& shape, std::string_view dim) {
  return shape.count() > 0 && shape[shape.count() - 1].name == dim && shape.elements() > 0;
}

// True when `part` has the dimensions of `shape` but the last one, in order.
inline bool is_statistic(const Shape& shape, const Shape& part) {
  if (part.count() + 1 != shape.count()) return false;
  for (std::size_t d = 0; d < part.count(); ++d) {
    if (part[d] != shape[d]) return false;
  }
  return true;
}

}  // namespace tessera
