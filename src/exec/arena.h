// The memory of one rank in which all temporary values live, and how much memory there is.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

// Owns `bytes` of zeroed pages, aligned to huge pages. Pages are touched by the caller of touch(), which
// should be the rank's thread. Moves, does not copy.
class Arena {
 public:
  Arena() = default;
  explicit Arena(std::int64_t bytes);  // throws SystemError (Memory) when the system refuses
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;

  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  void touch();

 private:
  std::byte* data_ = nullptr;
  void* mapping_ = nullptr;
  std::size_t mapped_ = 0;
  std::int64_t bytes_ = 0;
};

// Bytes that this process can still take: the least of what the system and its control group leave.
std::int64_t available_memory();

}  // namespace tessera
