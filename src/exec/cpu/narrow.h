// Sums in f32 become bf16.
#pragma once

#include <cstdint>

#include "tessera/dtype.h"

namespace tessera {

// to[i] = from[i], rounded, i < count.
void narrow_sums(const float* from, bf16* to, std::int64_t count);

}  // namespace tessera
