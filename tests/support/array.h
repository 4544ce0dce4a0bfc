// A dense tensor value for tests: row-major, with typed access through doubles.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lang/reference.h"
#include "tessera/box.h"
#include "tessera/dim.h"

namespace tessera::testing {

struct Array {
  Type type;
  std::vector<std::byte> bytes;

  Array() = default;
  explicit Array(const Type& t) : type(t), bytes(static_cast<std::size_t>(t.bytes())) {}
  // Values in row-major order, rounded to the type.
  Array(const Type& t, const std::vector<double>& values);

  std::int64_t size() const { return type.shape.elements(); }
  double at(std::int64_t i) const { return load(bytes.data(), type.dtype, i); }
  void set(std::int64_t i, double value) { store(bytes.data(), type.dtype, i, value); }
  std::vector<double> values() const;
  View view() const { return make_view(const_cast<std::byte*>(bytes.data()), type); }
};

Array converted(const Array& array, DType type);
Array part_of(const Array& array, const Box& box);              // the elements of the box
void put_part(Array& into, const Array& part, const Box& box);  // and back
Box whole_box(const Shape& shape);
bool same_bits(const Array& a, const Array& b);  // types and bytes; NaNs count as equal to NaNs

// "" when |a - b| <= absolute + relative * |b| everywhere (NaN equals NaN), else the first difference.
std::string difference(const Array& a, const Array& b, double relative, double absolute);

}  // namespace tessera::testing
