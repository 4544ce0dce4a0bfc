// A contraction of two tensors as a matrix product: its dimensions sorted into those of the batch, of the
// rows, of the columns and of the sum, neighbours merged where memory allows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exec/cpu/gemm.h"
#include "tessera/op.h"

namespace tessera {

// A dimension with its strides in both inputs and in the output; 0 where a tensor does not have it.
struct ContractionDim {
  std::int64_t count = 1, a = 0, b = 0, c = 0;
};

using ContractionDims = std::vector<ContractionDim>;  // outermost first

std::int64_t size_of(const ContractionDims& dims);

// c[batch, m, n] = sum over k of a[batch, m, k] * b[batch, k, n]. A dimension that one input has alone and
// that is summed counts to k with stride 0 in the other one.
struct Contraction {
  DType dtype = DType::F32;   // of a and b
  DType result = DType::F32;  // of c: the same, or F32 for BF16
  bool accumulate = false;    // c += the product; not for a BF16 result
  ContractionDims batch, m, n, k;
  bool swapped = false;  // a is the second input, so that the output's last dimension belongs to n
};

// Of tensors with these strides; or dense row-major ones of these types.
Contraction plan_contraction(const View& a, const View& b, const View& c);
Contraction plan_contraction(const Type& a, const Type& b, const Type& c);

// The offsets of a group of dimensions in one tensor.
GemmIndex index_of(const ContractionDims& dims, std::int64_t ContractionDim::*stride);

// The products with a single row or column, and those whose batch dimensions lie innermost: nothing in them
// is used twice, so packing would cost more than it gains.
class RowProduct {
 public:
  RowProduct(const Contraction& contraction, int threads);
  void run(const void* a, const void* b, void* c) const;

  struct Plan {
    DType dtype = DType::F32;
    ContractionDims out,
        sum;           // loops over the output and over k; the inner one is the last of `sum` or of `out`
    bool dot = false;  // the inner loop is the last of `sum`
    std::int64_t rows = 1;  // passes of all loops over the output but the inner one
  };

 private:
  Plan plan_;
  int threads_ = 1;
};

}  // namespace tessera
