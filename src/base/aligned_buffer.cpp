// Memory aligned to cache lines.
#include "base/aligned_buffer.h"

#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "base/huge_pages.h"

namespace tessera {

void AlignedBuffer::Free::operator()(std::byte* p) const {
  std::free(p);
}

AlignedBuffer::AlignedBuffer(std::size_t size, Fill fill) : size_(size) {
  // More than a process can address: some allocators end the program instead of refusing that.
  constexpr std::size_t kAddressable = std::size_t{1} << 47;
  if (size == 0) return;
  void* memory = nullptr;
  const bool huge = size >= 2 * kHugePage;
  if (size >= kAddressable || posix_memalign(&memory, huge ? kHugePage : kAlignment, size) != 0) {
    throw SystemError(fmt::format("cannot allocate {} bytes of memory", size), ExitCode::Memory);
  }
  data_.reset(static_cast<std::byte*>(memory));
  if (huge) prefer_huge_pages(memory, size);
  if (fill == Fill::Zero) std::memset(memory, 0, size);
}

}  // namespace tessera
