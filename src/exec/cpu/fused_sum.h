// Sums of what a fused loop makes. The loop is cut into parts, whatever the threads; each adds up by itself
// in f64, and in the end the parts are added in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "exec/cpu/fused_code.h"

namespace tessera {

class FusedSums {
 public:
  static constexpr std::int64_t kMaxParts = 8;
  // Scratch bytes of a sum of so many elements.
  static std::int64_t workspace(std::int64_t elements);

  // Sum `index`: a buffer of f32, bf16 or f64 with so many elements.
  void add(DType type, std::int64_t elements, double divisor);
  bool empty() const { return sums_.empty(); }

  // `sums`: of one part.
  void clear(double* sums) const;
  // Adds n elements of a block to those at + i * stride; stride 0: to one.
  void add_block(std::size_t index, const void* block, std::size_t n, double* sums, std::int64_t at,
                 std::int64_t stride) const;
  double* of_part(double* scratch, std::int64_t part) const { return scratch + part * doubles_; }

  // Writes sum `index` to `out`: share number `share` of the elements.
  void finish(std::size_t index, const double* scratch, std::int64_t parts, void* out, int share,
              int shares) const;

 private:
  struct Sum {
    DType type = DType::F32;
    std::int64_t elements = 0, at = 0;
    double divisor = 1;
  };
  std::vector<Sum> sums_;
  std::int64_t doubles_ = 0;  // of a part, in whole cache lines
};

}  // namespace tessera
