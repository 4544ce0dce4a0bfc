// Elements of whole tensors in host memory.
#include "tessera/array.h"

#include "base/check.h"
#include "lang/reference.h"

namespace tessera {

double Array::get(std::int64_t index) const {
  TESSERA_ASSERT(index >= 0 && index < elements(), "element {} of {}", index, to_string(type));
  return load(data.data(), type.dtype, index);
}

void Array::set(std::int64_t index, double value) {
  TESSERA_ASSERT(index >= 0 && index < elements(), "element {} of {}", index, to_string(type));
  store(data.data(), type.dtype, index, value);
}

Array::Array(const Type& t, const std::vector<double>& values) : Array(t) {
  TESSERA_CHECK(static_cast<std::int64_t>(values.size()) == elements(), "{} values for {}, which has {}",
                values.size(), to_string(t), elements());
  for (std::size_t i = 0; i < values.size(); ++i) set(static_cast<std::int64_t>(i), values[i]);
}

std::vector<double> Array::values() const {
  std::vector<double> result;
  result.reserve(static_cast<std::size_t>(elements()));
  for (std::int64_t i = 0; i < elements(); ++i) result.push_back(get(i));
  return result;
}

}  // namespace tessera
