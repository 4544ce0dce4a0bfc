// The shapes of translation batches: chosen so that little of a batch is padding, few so that each is
// compiled once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/data.h"

namespace tessera::data {

// Lengths of an example, with the ends.
struct PairLength {
  std::int32_t source = 0, target = 0;
};

// At most options.buckets shapes that hold every example, smallest first. Of all ways to cut the examples,
// ordered by their longer side, the one with the least padding. Empty without examples. Throws UserError
// (Usage) on impossible options.
std::vector<BatchShape> plan_shapes(std::span<const PairLength> lengths, const TranslationOptions& options);

// The first shape that holds the example. REQUIRES that one does.
std::size_t shape_of(const PairLength& length, const std::vector<BatchShape>& shapes);

}  // namespace tessera::data
