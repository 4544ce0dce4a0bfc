// What layers with dropout share.
#pragma once

#include "tessera/nn.h"

namespace tessera::nn {

// The dimensions of `shape` over which a mask varies that is the same along `shared`. Throws UserError when
// none is left.
Strings dropout_noise(const Shape& shape, const Strings& shared, Where where);

}  // namespace tessera::nn
