#include "exec_allocations.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

namespace {

std::atomic<bool> watching{false};
std::atomic<long> largest{0};

}  // namespace

namespace tessera::testing {

void start_watching() {
  largest = 0;
  watching = true;
}

long largest_allocation() {
  watching = false;
  return largest;
}

}  // namespace tessera::testing

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

bool tessera::testing::counts_allocations() {
  return false;
}

#else

bool tessera::testing::counts_allocations() {
  return true;
}

namespace {

void note(std::size_t bytes) {
  if (!watching.load(std::memory_order_relaxed)) return;
  const long size = static_cast<long>(bytes);
  long seen = largest.load();
  while (seen < size && !largest.compare_exchange_weak(seen, size)) {
  }
}

}  // namespace

// NOLINTBEGIN: names of the C library
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t bytes) {
  note(bytes);
  return __libc_malloc(bytes);
}

void* calloc(std::size_t count, std::size_t bytes) {
  note(count * bytes);
  return __libc_calloc(count, bytes);
}

void* realloc(void* memory, std::size_t bytes) {
  note(bytes);
  return __libc_realloc(memory, bytes);
}

void* memalign(std::size_t alignment, std::size_t bytes) {
  note(bytes);
  return __libc_memalign(alignment, bytes);
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return memalign(alignment, bytes);
}

int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  *memory = memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
}
// NOLINTEND

#endif
