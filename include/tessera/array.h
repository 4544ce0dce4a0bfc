// A whole tensor in host memory, row-major: what feeds, fetches and tests use. Plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/dim.h"

namespace tessera {

struct Array {
  Type type;
  std::vector<std::byte> data;

  Array() = default;
  explicit Array(Type t) : type(std::move(t)), data(static_cast<std::size_t>(type.bytes())) {}
  // Values in row-major order, each rounded to the element type. REQUIRES as many as the shape has elements.
  Array(const Type& t, const std::vector<double>& values);

  std::int64_t elements() const { return type.shape.elements(); }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data.data());
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data.data());
  }

  double get(std::int64_t index) const;        // element by row-major index, converted to double
  void set(std::int64_t index, double value);  // rounded to the element type
  std::vector<double> values() const;          // all elements, row-major
};

}  // namespace tessera
