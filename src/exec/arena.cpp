// Arenas by mmap; free memory from /proc and the control group.
#include "exec/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/huge_pages.h"

namespace tessera {
namespace {

// The number after `key` in a file of "key value" lines, or -1.
std::int64_t number_after(const char* path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    std::int64_t value = 0;
    if (word == key && file >> value) return value;
  }
  return -1;
}

// The one number in a file; -1 when there is no file or no number ("max").
std::int64_t number_in(const char* path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  return file >> value ? value : -1;
}

// What the control group leaves: its limit less what is used, file pages not counted because they can be
// dropped.
std::int64_t left_in_group(const char* limit, const char* used, const char* stat) {
  const std::int64_t most = number_in(limit), current = number_in(used);
  if (most < 0 || current < 0) return std::numeric_limits<std::int64_t>::max();
  const std::int64_t pages = std::max<std::int64_t>(0, number_after(stat, "inactive_file")) +
                             std::max<std::int64_t>(0, number_after(stat, "active_file"));
  return most - std::max<std::int64_t>(0, current - pages);
}

}  // namespace

Arena::Arena(std::int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  mapped_ = static_cast<std::size_t>(bytes) + kHugePage;
  mapping_ =
      mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) {
    mapping_ = nullptr;
    throw SystemError(fmt::format("cannot allocate an arena of {} bytes", bytes), ExitCode::Memory);
  }
  const auto start = reinterpret_cast<std::uintptr_t>(mapping_);
  data_ = reinterpret_cast<std::byte*>((start + kHugePage - 1) / kHugePage * kHugePage);
  prefer_huge_pages(data_, static_cast<std::size_t>(bytes));
}

Arena::~Arena() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_);
}

Arena::Arena(Arena&& other) noexcept {
  *this = std::move(other);
}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_, other.mapped_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void Arena::touch() {
  constexpr std::int64_t kPage = 4096;
  for (std::int64_t at = 0; at < bytes_; at += kPage) {
    volatile std::byte* page = data_ + at;
    *page = std::byte{0};
  }
}

std::int64_t available_memory() {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  const std::int64_t kilobytes = number_after("/proc/meminfo", "MemAvailable:");
  if (kilobytes >= 0) least = kilobytes * 1024;
  least = std::min(least, left_in_group("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current",
                                        "/sys/fs/cgroup/memory.stat"));
  return std::min(least, left_in_group("/sys/fs/cgroup/memory/memory.limit_in_bytes",
                                       "/sys/fs/cgroup/memory/memory.usage_in_bytes",
                                       "/sys/fs/cgroup/memory/memory.stat"));
}

}  // namespace tessera
