// A contraction whose inputs lie in parts on several ranks: c is the sum of the products of the parts, each
// read where it lies. Sums in f32 (f64 for f64), rounded once to bf16; in the order of the parts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exec/cpu/product.h"
#include "tessera/op.h"

namespace tessera {

class PartedProduct {
 public:
  // What is taken of one rank's inputs: views with their strides, `data` null, and where they begin in the
  // rank's buffers, in elements.
  struct Part {
    View a, b;
    std::int64_t a_begin = 0, b_begin = 0;
  };

  // Scratch bytes for parts and a result of these types, and for every smaller ones.
  static std::int64_t workspace(const Type& a, const Type& b, const Type& c, int threads);

  // Parts may be empty; the result is not. REQUIRES floating-point types.
  PartedProduct(const std::vector<Part>& parts, const View& c, int threads);

  // inputs[i]: the addresses of the buffers of part i's rank, a's and b's. From one thread at a time.
  void run(std::span<const void* const> inputs, void* c, void* scratch) const;

 private:
  struct Term {
    std::size_t part;
    bool swapped;
    std::int64_t a_begin, b_begin;  // bytes
    MatrixProduct product;
  };

  DType dtype_;
  std::int64_t elements_;  // of c
  std::vector<Term> terms_;
};

}  // namespace tessera
