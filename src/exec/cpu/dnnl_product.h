// Contractions by oneDNN: the one place that knows its interface (2.6 as in Debian 12, or 3.x).
#pragma once

#include <memory>

#include "exec/cpu/contraction.h"

namespace tessera {

class DnnlProduct {
 public:
  // True where oneDNN has instructions that gemm.h lacks (bf16 dot products), or is at least as fast
  // (AVX-512). On AVX2 its own f32 product reaches 50-80 % of gemm.h.
  static bool preferred(DType dtype);

  enum class Form { Plain, Packed };  // Packed: b in the order that oneDNN likes best, weight_bytes() long

  // nullptr when oneDNN would need a copy of an operand, runs its reference loop or wants more scratch than
  // `scratch_limit`. REQUIRES every size >= 1. Threads: any; primitives are made under one lock.
  static std::unique_ptr<DnnlProduct> make(const Contraction& contraction, int threads,
                                           std::int64_t scratch_limit, Form form = Form::Plain);

  ~DnnlProduct();
  std::int64_t weight_bytes() const;
  std::int64_t scratch_bytes() const;
  void run(const void* a, const void* b, void* c, void* scratch);  // from one thread at a time

 private:
  struct Impl;
  explicit DnnlProduct(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
