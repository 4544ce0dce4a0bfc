// Names and sizes of the element types.
#include "tessera/dtype.h"

#include "base/check.h"

namespace tessera {

std::size_t size_of(DType type) {
  switch (type) {
    case DType::F32:
    case DType::I32:
      return 4;
    case DType::BF16:
      return 2;
    case DType::F64:
      return 8;
    case DType::Bool:
      return 1;
  }
  TESSERA_ASSERT(false, "element type {} has no size", static_cast<int>(type));
}

const char* to_string(DType type) {
  switch (type) {
    case DType::F32:
      return "f32";
    case DType::BF16:
      return "bf16";
    case DType::F64:
      return "f64";
    case DType::I32:
      return "i32";
    case DType::Bool:
      return "bool";
  }
  TESSERA_ASSERT(false, "element type {} has no name", static_cast<int>(type));
}

DType parse_dtype(std::string_view text) {
  for (DType type : {DType::F32, DType::BF16, DType::F64, DType::I32, DType::Bool}) {
    if (text == to_string(type)) return type;
  }
  throw UserError(fmt::format("'{}' is no element type; use one of f32, bf16, f64, i32, bool", text));
}

}  // namespace tessera
