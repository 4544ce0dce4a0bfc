// Helpers around pieces_for (tessera/program.h).
#pragma once

#include "tessera/program.h"

namespace tessera {

// The move that copies every element of a shape to itself: a plain reshard.
Move identity_move(const Shape& shape);

}  // namespace tessera
