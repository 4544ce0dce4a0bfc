#include "support/array.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

namespace tessera::testing {

View view_of(const Array& array) {
  return make_view(const_cast<std::byte*>(array.data.data()), array.type);
}

Array converted(const Array& array, DType type) {
  return Array({array.type.shape, type}, array.values());
}

Box whole_box(const Shape& shape) {
  return {std::vector<std::int64_t>(shape.count(), 0), sizes_of(shape)};
}

Array part_of(const Array& array, const Box& box) {
  std::vector<Dim> dims = array.type.shape.dims();
  for (std::size_t d = 0; d < dims.size(); ++d) dims[d].size = box.size[d];
  Array part({Shape(std::move(dims)), array.type.dtype});
  copy_box(array.data.data(), whole_box(array.type.shape), part.data.data(), box, box,
           size_of(array.type.dtype));
  return part;
}

void put_part(Array& into, const Array& part, const Box& box) {
  copy_box(part.data.data(), box, into.data.data(), whole_box(into.type.shape), box,
           size_of(into.type.dtype));
}

bool same_bits(const Array& a, const Array& b) {
  if (a.type != b.type) return false;
  if (a.data == b.data) return true;
  const std::size_t width = size_of(a.type.dtype);
  for (std::int64_t i = 0; i < a.elements(); ++i) {
    if (std::isnan(a.get(i)) && std::isnan(b.get(i))) continue;
    const std::size_t at = static_cast<std::size_t>(i) * width;
    if (std::memcmp(&a.data[at], &b.data[at], width) != 0) return false;
  }
  return true;
}

std::string difference(const Array& a, const Array& b, double relative, double absolute) {
  if (a.type != b.type) return fmt::format("{} is not {}", to_string(a.type), to_string(b.type));
  for (std::int64_t i = 0; i < a.elements(); ++i) {
    const double x = a.get(i), y = b.get(i);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    if (!(std::abs(x - y) <= absolute + relative * std::abs(y))) {
      return fmt::format("element {} of {}: {} is not {}", i, to_string(a.type), x, y);
    }
  }
  return "";
}

}  // namespace tessera::testing
