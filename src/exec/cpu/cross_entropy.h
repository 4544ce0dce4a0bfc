// The data of cross-entropy rows, shared by all vector targets.
#pragma once

#include <cstdint>

#include "tessera/dtype.h"

namespace tessera {

struct CrossEntropyPlan {
  DType dtype = DType::F32;
  std::int64_t length = 0, classes = 0;  // of a local row; over all shards
  double on = 1, off = 0;                // weight of the target beyond the others', and of every class
  double z_loss = 0;
};

// `gradient` is null forward.
struct CrossEntropyRows {
  const void* logits = nullptr;
  const std::int32_t* targets = nullptr;
  const float *log_z = nullptr, *dloss = nullptr;
  float *loss = nullptr, *log_z_out = nullptr;
  void* gradient = nullptr;
  std::int64_t start = 0;  // global index of the first local class
};

}  // namespace tessera
