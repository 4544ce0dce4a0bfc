// How fast this machine's matrix products are with nothing else to do: the denominator of every "share of the
// step".
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/program.h"

namespace tessera {

// The matrix products that a program, or a step of it, consists of, on the rank with the largest parts.
std::vector<Product> products_of(const Program& program);
std::vector<Product> products_of(const Program& program, const Step& step);

// A list of products by oneDNN on dense operands. Where oneDNN has no bf16 product on this processor, f32
// stands for it.
class BareProducts {
 public:
  // Tries each distinct product as it is and with the second operand packed beforehand, and keeps the faster
  // form. Products with a size of 0 take no time. The ranks get the threads and cores of a session's.
  BareProducts(const std::vector<Product>& products, int ranks);
  ~BareProducts();

  // Runs the whole list on every rank at the same time. Seconds, mean over the ranks; of a product that is
  // computed in part, that part.
  double run();
  std::vector<double> run_each();  // the same of each product

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
