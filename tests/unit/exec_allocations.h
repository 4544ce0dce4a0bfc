// The largest allocation of any thread between two points: the C library's allocators are replaced in this
// test program by ones that look at the size first. Not under sanitizers, which replace them too.
#pragma once

namespace tessera::testing {

bool counts_allocations();
void start_watching();
long largest_allocation();  // bytes since start_watching(); ends the watch

}  // namespace tessera::testing
