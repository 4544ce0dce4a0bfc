// Writes scalar code as expressions:
//
//   return scalar_code(call, [](Code&, Value x, Value dy) { return dy * (1 - x * x); });
//
// Arithmetic on bf16 inputs is done in f32 and rounded once, when the result is stored.
#pragma once

#include <utility>

#include "tessera/op.h"

namespace tessera {

class Code;

// A register, with the type that further arithmetic on it has.
struct Value {
  Code* code = nullptr;
  int reg = -1;
  DType type = DType::F32;
};

class Code {
 public:
  explicit Code(const Call& c) : call(c) { code_.inputs = static_cast<int>(c.in.size()); }

  Value input(int i);
  Value constant(double value, DType type) { return emit(Scalar::Const, type, -1, -1, -1, value); }
  Value emit(Scalar op, DType type, int a, int b = -1, int c = -1, double value = 0);
  Value cast(Value v, DType type);
  ScalarCode finish(Value result);  // of the type of the call's output

  const Call& call;

 private:
  ScalarCode code_;
};

Value unary(Scalar op, Value a);
Value binary(Scalar op, Value a, Value b);
Value compare(Scalar op, Value a, Value b);  // gives a bool
inline Value number(Value like, double value) {
  return like.code->constant(value, like.type);
}

inline Value operator+(Value a, Value b) {
  return binary(Scalar::Add, a, b);
}
inline Value operator-(Value a, Value b) {
  return binary(Scalar::Sub, a, b);
}
inline Value operator*(Value a, Value b) {
  return binary(Scalar::Mul, a, b);
}
inline Value operator/(Value a, Value b) {
  return binary(Scalar::Div, a, b);
}
inline Value operator+(Value a, double b) {
  return a + number(a, b);
}
inline Value operator+(double a, Value b) {
  return number(b, a) + b;
}
inline Value operator-(double a, Value b) {
  return number(b, a) - b;
}
inline Value operator*(double a, Value b) {
  return number(b, a) * b;
}
inline Value operator<(Value a, Value b) {
  return compare(Scalar::Less, a, b);
}
inline Value operator<=(Value a, Value b) {
  return compare(Scalar::LessEqual, a, b);
}
inline Value operator>(Value a, double b) {
  return compare(Scalar::Less, number(a, b), a);
}
inline Value operator==(Value a, Value b) {
  return compare(Scalar::Equal, a, b);
}
inline Value operator==(Value a, double b) {
  return a == number(a, b);
}
Value choose(Value condition, Value a, Value b);  // condition ? a : b

// Scalar code of a call from a function of (Code&, Value...), one Value per input.
template <class F>
ScalarCode scalar_code(const Call& call, F f) {
  Code code(call);
  if constexpr (std::is_invocable_v<F, Value>) {
    return code.finish(f(code.input(0)));
  } else if constexpr (std::is_invocable_v<F, Value, Value>) {
    return code.finish(f(code.input(0), code.input(1)));
  } else {
    return code.finish(f(code.input(0), code.input(1), code.input(2)));
  }
}

// The scalar code of ops that are one instruction.
template <Scalar kOp>
ScalarCode one_unary(const Call& call) {
  return scalar_code(call, [](Value x) { return unary(kOp, x); });
}
template <Scalar kOp>
ScalarCode one_binary(const Call& call) {
  return scalar_code(call, [](Value a, Value b) { return binary(kOp, a, b); });
}
template <Scalar kOp>
ScalarCode one_compare(const Call& call) {
  return scalar_code(call, [](Value a, Value b) { return compare(kOp, a, b); });
}

}  // namespace tessera
