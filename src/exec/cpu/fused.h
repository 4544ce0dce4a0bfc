// Fused component-wise loops: scalar code over one loop nest, vectorised, in cache-sized blocks, so that a
// chain of ops costs one pass over memory. Used for Fused steps, and for Run steps of ops that have scalar
// code and no kernel of their own.
//
// Threads: construct from one thread at a time; run() from one thread, which may use its team.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/op.h"

namespace tessera {

// The loop nest. Strides count elements, one per loop dimension, outermost first; 0 where an input does not
// have the dimension (broadcast). Outputs have every dimension but those that are sums. An output may be the
// same memory as an input of the same type and strides without zeros (in place).
struct FusedSpec {
  ScalarCode code;
  std::vector<std::int64_t> extent;  // local sizes; none of them 0
  std::vector<DType> in_types, out_types;
  std::vector<std::vector<std::int64_t>> in_strides;   // per input
  std::vector<std::vector<std::int64_t>> out_strides;  // per output
  std::vector<double> sums;  // per output, as in Step: 0, or what a sum of floats is divided by; or empty
  int threads = 1;
};

class FusedLoop {
 public:
  explicit FusedLoop(const FusedSpec& spec);
  ~FusedLoop();
  FusedLoop(FusedLoop&&) noexcept;
  FusedLoop& operator=(FusedLoop&&) noexcept;

  // One pointer per input and per output; FusedSums::workspace of each sum. Allocates nothing. Sums are added
  // up in an order that depends on the loop alone.
  void run(void* const* in, void* const* out, void* scratch) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
