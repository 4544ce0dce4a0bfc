// What all that look at or change the steps of a program need.
#pragma once

#include <cstddef>
#include <vector>

#include "tessera/program.h"

namespace tessera {

// The value whose bytes `id` views, itself if none.
int base_of(const Program& program, int id);

// Keeps the steps with these indices, in this order. REQUIRES a Start before each Wait.
void arrange(Program& program, const std::vector<std::size_t>& order);

}  // namespace tessera
