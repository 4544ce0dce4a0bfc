// The data of norm rows, shared by all vector targets. Layer norm has a mean and a bias, RMS norm does not.
#pragma once

#include <cstdint>

#include "tessera/dtype.h"

namespace tessera {

struct NormRows {
  DType dtype = DType::F32;
  std::int64_t length = 0;
  double epsilon = 0;
  const void *x = nullptr, *scale = nullptr, *bias = nullptr, *dy = nullptr;
  const float *mean = nullptr, *inverse = nullptr;
  void* out = nullptr;                                // y, dx, or the gradient of the scale
  float *mean_out = nullptr, *inverse_out = nullptr;  // forward
};

}  // namespace tessera
