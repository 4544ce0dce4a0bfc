// The elements of a box as runs that are contiguous in two row-major buffers at once. Everything that moves a
// part of a tensor between memory and memory, or memory and file, is a loop over these runs.
#pragma once

#include <cstddef>
#include <vector>

#include "tessera/box.h"

namespace tessera {

// Offsets and lengths in elements. REQUIRES that `part` lies in both boxes.
class BoxRuns {
 public:
  BoxRuns(const Box& from_box, const Box& to_box, const Box& part);

  std::int64_t length() const { return length_; }  // elements of one run; 0 if the part is empty

  // f(from offset, to offset) once for each run, in row-major order.
  template <typename F>
  void for_each(F&& f) const {
    for_each_row([&](std::int64_t from, std::int64_t to) {
      for (std::int64_t i = 0; i < row_count(); ++i)
        f(from + i * row_from_stride(), to + i * row_to_stride());
    });
  }

  // f(from offset, to offset) once for each row: row_count() runs at fixed strides.
  template <typename F>
  void for_each_row(F&& f) const {
    if (length_ == 0) return;
    std::int64_t from = from_offset_, to = to_offset_;
    std::vector<std::int64_t> index(outer_.size(), 0);
    while (true) {
      f(from, to);
      std::size_t d = index.size();
      for (; d > 0; --d) {
        const Dimension& outer = outer_[d - 1];
        from += outer.from_stride;
        to += outer.to_stride;
        if (++index[d - 1] < outer.count) break;
        index[d - 1] = 0;
        from -= outer.from_stride * outer.count;
        to -= outer.to_stride * outer.count;
      }
      if (d == 0) return;
    }
  }
  std::int64_t row_count() const { return row_.count; }
  std::int64_t row_from_stride() const { return row_.from_stride; }
  std::int64_t row_to_stride() const { return row_.to_stride; }

 private:
  struct Dimension {
    std::int64_t count = 1, from_stride = 0, to_stride = 0;
  };
  std::int64_t length_ = 0, from_offset_ = 0, to_offset_ = 0;
  Dimension row_;                 // the innermost dimension outside the runs
  std::vector<Dimension> outer_;  // those before it
};

}  // namespace tessera
