// Matrix products of this project's own: any strides, any element type, without copies of whole operands.
// Operands are packed block by block, which is where bf16 becomes f32. The threads of a team, and ranks that
// wait for the caller's, share the packed blocks of b of a large product and take blocks of rows of it.
//
// oneDNN is used where it has better instructions (product.h); this serves f64 and i32, machines without
// AVX-512 and operands whose strides oneDNN does not take.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/dtype.h"

namespace tessera {

// The offsets of a group of dimensions that is walked as one, in elements: `count` values, in order.
class GemmIndex {
 public:
  GemmIndex() = default;
  GemmIndex(std::int64_t count, std::int64_t stride) : count_(count), stride_(stride) {}
  explicit GemmIndex(std::vector<std::int64_t> offsets);  // an evenly spaced list becomes a stride

  std::int64_t count() const { return count_; }
  std::int64_t at(std::int64_t i) const {
    return offsets_.empty() ? i * stride_ : offsets_[static_cast<std::size_t>(i)];
  }
  bool even() const { return offsets_.empty(); }  // at(i) == i * at(1)
  // How many of the elements from `first` on lie behind each other in memory.
  std::int64_t run(std::int64_t first) const {
    if (!offsets_.empty()) return runs_[static_cast<std::size_t>(first)];
    return stride_ == 1 ? count_ - first : 1;
  }
  bool contiguous(std::int64_t first, std::int64_t n) const { return n <= 1 || run(first) >= n; }

 private:
  std::int64_t count_ = 0, stride_ = 0;
  std::vector<std::int64_t> offsets_;
  std::vector<std::int32_t> runs_;  // how many elements from here on are neighbours
};

struct GemmBatch {
  std::int64_t count, a, b, c;  // extent and strides
};

// c[i, m, n] = sum over k of a[i, m, k] * b[i, k, n] for all i of the batch.
struct GemmPlan {
  DType dtype = DType::F32;      // of a and b: F32, BF16, F64 or I32
  DType result = DType::F32;     // of c: the same, or F32 for BF16
  bool accumulate = false;       // c += the product; not for a BF16 result
  std::vector<GemmBatch> batch;  // outermost first
  GemmIndex a_m, a_k, b_k, b_n, c_m, c_n;
  int threads = 1;
};

// Scratch bytes for operands and a result of these types. The same for all strides and never more for smaller
// sizes.
std::int64_t gemm_workspace(DType dtype, DType result, std::int64_t m, std::int64_t n, std::int64_t k,
                            int threads);

// REQUIRES m, n >= 1; k may be 0 (zeros). Sums in f32 (f64 for f64, wrapping for i32); rounds once to bf16.
// Every element is summed in an order that depends on k alone.
void gemm(const GemmPlan& plan, const void* a, const void* b, void* c, void* workspace);

}  // namespace tessera
