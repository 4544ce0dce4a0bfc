// More about cuts: everything here follows from cut_at (tessera/layout.h) and is tested against it, but takes
// no time that grows with the number of parts.
#pragma once

#include <cstdint>

namespace tessera {

// The part that holds element `x`: cut_at(part) <= x < cut_at(part + 1).
std::int64_t part_at(std::int64_t size, std::int64_t grain, std::int64_t parts, std::int64_t x);

// Whether cut_at(scale * size, grain, parts, i) == scale * cut_at(size, scaled_grain, parts, i) for every i.
// (Loops where the grains do not fit each other or the sizes: usually not far.)
bool cuts_agree(std::int64_t size, std::int64_t scale, std::int64_t grain, std::int64_t scaled_grain,
                std::int64_t parts);

}  // namespace tessera
