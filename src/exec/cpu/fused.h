// Component-wise loops: scalar code over the elements of one shape, in cache-sized blocks of vectors.
//
// The bits of an element depend only on the values of its inputs: not on its position, the number of threads, or where a shard
// ends (DESIGN 4.15). f32 and bf16 are computed in f32, f64 in f64; an instruction whose type is bf16 is not rounded unless
// it is a Cast; values round once when they are stored.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "tessera/op.h"

namespace tessera::cpu {

class FusedLoop {
 public:
  // All outputs have the dimensions of out[0], in its order; an input has some of them, in any order, and is broadcast.
  FusedLoop(const ScalarCode& code, std::span<const Type> in, std::span<const Type> out, int threads);
  ~FusedLoop();
  FusedLoop(FusedLoop&&) noexcept;
  FusedLoop& operator=(FusedLoop&&) noexcept;

  // Scratch bytes that run needs. Depends on the code and the thread count only.
  static std::int64_t workspace(const ScalarCode& code, std::span<const Type> in, std::span<const Type> out, int threads);

  // An output may be the very buffer of an input of the same type and dimensions in the same order (fused_in_place).
  void run(std::span<const void* const> in, std::span<void* const> out, void* workspace) const;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

// True when output and input have one layout, so that the loop may write the one over the other.
bool fused_in_place(const Type& in, const Type& out);

}  // namespace tessera::cpu
