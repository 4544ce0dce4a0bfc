// Pages of 2 MiB for what is large: fewer faults, and fewer misses of the translation buffer.
#pragma once

#include <sys/mman.h>

#include <cstddef>

namespace tessera {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Advice only: a refusal changes speed. REQUIRES memory that begins at a multiple of kHugePage; what is no
// whole page at its end stays on small ones.
inline void prefer_huge_pages(void* memory, std::size_t bytes) {
  madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
}

}  // namespace tessera
