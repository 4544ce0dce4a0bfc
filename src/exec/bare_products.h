// How fast this machine's matrix products are with nothing else to do: the denominator of every "share of the
// step".
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/program.h"

namespace tessera {

// c[batch, m, n] = a[batch, m, k] b[batch, k, n], all dense.
struct BareProduct {
  DType dtype = DType::F32;
  std::int64_t batch = 1, m = 1, n = 1, k = 1;
  auto operator<=>(const BareProduct&) const = default;
};

// The product of a contraction with the sizes of these local types.
BareProduct bare_product(const Type& a, const Type& b, const Type& c);

// A list of products by oneDNN on dense operands. Where oneDNN has no bf16 product on this processor, f32
// stands for it.
class BareProducts {
 public:
  // Tries each distinct product as it is and with the second operand packed beforehand, and keeps the faster
  // form. REQUIRES every size >= 1.
  BareProducts(const std::vector<BareProduct>& products, int ranks, int threads_per_rank);
  ~BareProducts();

  // Runs the whole list on every rank at the same time. Seconds, mean over the ranks.
  double run();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
