// Whether boxes cover a tensor exactly once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/box.h"

namespace tessera {

// "" when every element of the shape lies in exactly one of the boxes; else a sentence that says which boxes
// clash or what is missing. Boxes without elements are allowed. Time and memory grow like the number of boxes
// times 2^(number of dimensions that are cut), with a limit that only made-up data passes.
std::string tiling_fault(const std::vector<std::int64_t>& shape, const std::vector<Box>& boxes);

}  // namespace tessera
