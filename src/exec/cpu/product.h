// One matrix product of strided operands, made ready once: by oneDNN where it has better instructions and
// takes the strides, else by the blocked product of gemm.h.
#pragma once

#include <cstdint>
#include <memory>

#include "exec/cpu/contraction.h"
#include "exec/cpu/dnnl_product.h"

namespace tessera {

class MatrixProduct {
 public:
  // Scratch bytes that a product of these sizes and types may need: enough for either orientation and, being
  // a function of sizes alone, for every smaller part.
  static std::int64_t workspace(const Contraction& contraction, int threads);

  // REQUIRES every size >= 1.
  MatrixProduct(const Contraction& contraction, int threads);

  // In the order of the contraction: a has the rows. From one thread at a time.
  void run(const void* a, const void* b, void* c, void* scratch) const;

 private:
  std::shared_ptr<DnnlProduct> dnnl_;
  std::shared_ptr<const GemmPlan> blocked_;
};

}  // namespace tessera
