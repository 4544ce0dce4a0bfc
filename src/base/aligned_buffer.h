// Memory aligned to cache lines (and to the widest vectors), for arenas, staging and tensors.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace tessera {

// Owns `size` bytes at a multiple of 64. Moves, does not copy. Throws SystemError (Memory) when there is
// none.
class AlignedBuffer {
 public:
  static constexpr std::size_t kAlignment = 64;
  enum class Fill { None, Zero };

  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t size, Fill fill = Fill::None);

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }

  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_.get());
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace tessera
