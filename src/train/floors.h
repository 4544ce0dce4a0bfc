// The least time that steps can take on this machine: their matrix products alone by oneDNN, else the bytes
// of their inputs and outputs at the rate of plain copies. Measured on all ranks at once.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "exec/bare_products.h"
#include "exec/copy_bandwidth.h"
#include "tessera/program.h"

namespace tessera {

// Bytes that a step must read and write, on the rank with the largest parts: each input and output once; of
// what is copied or looked up only that; of a loop over variables that ranks share, a rank's slice.
double least_bytes(const Program& program, const MemoryPlan& plan, const Step& step);

class Floors {
 public:
  explicit Floors(int ranks);

  void add(int id, const Program& program, const MemoryPlan& plan);  // before the first measure()
  // Measures products and copies once more; what follows are medians.
  void measure();
  std::map<int, std::vector<double>> seconds() const;  // by program: of every step
  double flops_per_second() const;                     // of the products, a rank's
  double bytes_per_second() const;                     // read and written, a rank's

 private:
  struct Least {
    std::vector<std::size_t> products;  // of products_
    double bytes = 0;
  };

  std::vector<double> product_seconds() const;

  int ranks_;
  std::map<int, std::vector<Least>> steps_;  // by program
  std::vector<Product> products_;            // distinct
  std::map<Product, std::size_t> index_;
  std::unique_ptr<BareProducts> alone_;
  CopyBandwidth copies_;
  std::vector<std::vector<double>> product_times_;  // by product, then round
  std::vector<double> rates_;
};

}  // namespace tessera
