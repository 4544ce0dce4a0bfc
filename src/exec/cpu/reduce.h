// The loops of a reduction, shared by all vector targets.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/dtype.h"

namespace tessera {

enum class Fold : std::uint8_t { Sum, Max, Min };

struct ReduceLoop {
  std::int64_t count = 1, in = 0, out = 0;  // extent and strides
};

struct ReducePlan {
  Fold fold = Fold::Sum;
  DType dtype = DType::F32;
  std::vector<ReduceLoop> kept, reduced;  // outermost first, neighbours merged
  bool along = false;                     // the innermost dimension of the input is reduced
  double divisor = 0;                     // of a mean; 0: none
  std::int64_t items = 1;                 // units of work: outputs, or blocks of kReduceColumns of them
};

constexpr std::int64_t kReduceColumns = 1024;

}  // namespace tessera
