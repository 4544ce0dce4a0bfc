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

Array Array::of(const Type& type, const std::vector<double>& values) {
  Array array(type);
  TESSERA_CHECK(static_cast<std::int64_t>(values.size()) == array.elements(),
                "{} values for {}, which has {}", values.size(), to_string(type), array.elements());
  for (std::size_t i = 0; i < values.size(); ++i) array.set(static_cast<std::int64_t>(i), values[i]);
  return array;
}

}  // namespace tessera
