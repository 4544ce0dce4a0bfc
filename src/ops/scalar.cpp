// Emission of scalar code.
#include "ops/scalar.h"

#include "base/check.h"

namespace tessera {
namespace {

DType working_type(DType type) {
  return type == DType::BF16 ? DType::F32 : type;
}

// Type in which the result is handed over, known before `infer` has run only for ops that keep their input's
// type.
DType output_type(const Call& call) {
  TESSERA_ASSERT(!call.out.empty(), "{}: scalar code needs the output's type", call.name);
  return call.out[0].dtype;
}

}  // namespace

Value Code::input(int i) {
  return {this, i, working_type(call.in[static_cast<std::size_t>(i)].dtype)};
}

Value Code::emit(Scalar op, DType type, int a, int b, int c, double value) {
  code_.code.push_back({op, a, b, c, value, type});
  return {this, code_.inputs + static_cast<int>(code_.code.size()) - 1, type};
}

Value Code::cast(Value v, DType type) {
  return emit(Scalar::Cast, type, v.reg);
}

ScalarCode Code::finish(Value result) {
  const DType type = output_type(call);
  const bool last =
      result.reg == code_.inputs + static_cast<int>(code_.code.size()) - 1 && result.reg >= code_.inputs;
  if (last && working_type(type) == result.type) {
    code_.code.back().type = type;
  } else {
    result = cast(result, type);
  }
  code_.results = {result.reg};
  return std::move(code_);
}

Value unary(Scalar op, Value a) {
  return a.code->emit(op, a.type, a.reg);
}

Value binary(Scalar op, Value a, Value b) {
  return a.code->emit(op, a.type, a.reg, b.reg);
}

Value compare(Scalar op, Value a, Value b) {
  return a.code->emit(op, DType::Bool, a.reg, b.reg);
}

Value choose(Value condition, Value a, Value b) {
  return a.code->emit(Scalar::Select, a.type, condition.reg, a.reg, b.reg);
}

}  // namespace tessera
