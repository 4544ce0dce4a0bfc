// Interpreter of scalar code, in double: the oracle of fused loops.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "lang/reference.h"

namespace tessera {
namespace {

double wrap_i32(double value) {
  if (std::isnan(value)) return 0;
  // Sums and products of two i32 fit a double's 53 bits only when below 2^53; beyond, wrap the integer
  // product.
  return static_cast<double>(
      static_cast<std::int32_t>(static_cast<std::uint32_t>(static_cast<std::int64_t>(value))));
}

double floor_div(double a, double b, DType type) {
  if (type == DType::I32) return b == 0 ? 0 : std::floor(a / b);
  return std::floor(a / b);
}

double modulo(double a, double b, DType type) {
  if (type == DType::I32 && b == 0) return 0;
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double multiply(double a, double b, DType type) {
  if (type != DType::I32) return a * b;
  return static_cast<double>(static_cast<std::int32_t>(
      static_cast<std::uint32_t>(static_cast<std::int64_t>(a) * static_cast<std::int64_t>(b))));
}

double smaller(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? a + b : std::min(a, b);
}
double larger(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? a + b : std::max(a, b);
}

double sign(double a) {
  return std::isnan(a) ? a : static_cast<double>((a > 0) - (a < 0));
}

double sigmoid(double a) {
  return a >= 0 ? 1 / (1 + std::exp(-a)) : std::exp(a) / (1 + std::exp(a));
}

double unary(const Instruction& i, double a) {
  switch (i.op) {
    case Scalar::Neg:
      return -a;
    case Scalar::Abs:
      return std::abs(a);
    case Scalar::Sign:
      return sign(a);
    case Scalar::Sqrt:
      return std::sqrt(a);
    case Scalar::Rsqrt:
      return 1 / std::sqrt(a);
    case Scalar::Reciprocal:
      return 1 / a;
    case Scalar::Exp:
      return std::exp(a);
    case Scalar::Expm1:
      return std::expm1(a);
    case Scalar::Log:
      return std::log(a);
    case Scalar::Log1p:
      return std::log1p(a);
    case Scalar::Sin:
      return std::sin(a);
    case Scalar::Cos:
      return std::cos(a);
    case Scalar::Tanh:
      return std::tanh(a);
    case Scalar::Sigmoid:
      return sigmoid(a);
    case Scalar::Erf:
      return std::erf(a);
    case Scalar::Floor:
      return std::floor(a);
    case Scalar::Not:
      return a == 0;
    case Scalar::Cast:
      return round_to(i.type, a);
    default:
      TESSERA_ASSERT(false, "unknown scalar instruction {}", static_cast<int>(i.op));
  }
}

double binary(const Instruction& i, double a, double b) {
  switch (i.op) {
    case Scalar::Add:
      return a + b;
    case Scalar::Sub:
      return a - b;
    case Scalar::Mul:
      return multiply(a, b, i.type);
    case Scalar::Div:
      return a / b;
    case Scalar::FloorDiv:
      return floor_div(a, b, i.type);
    case Scalar::Mod:
      return modulo(a, b, i.type);
    case Scalar::Min:
      return smaller(a, b);
    case Scalar::Max:
      return larger(a, b);
    case Scalar::Pow:
      return std::pow(a, b);
    case Scalar::Less:
      return a < b;
    case Scalar::LessEqual:
      return a <= b;
    case Scalar::Equal:
      return a == b;
    case Scalar::NotEqual:
      return a != b;
    case Scalar::And:
      return a != 0 && b != 0;
    case Scalar::Or:
      return a != 0 || b != 0;
    default:
      return unary(i, a);
  }
}

double evaluate(const Instruction& i, double a, double b, double c) {
  if (i.op == Scalar::Const) return i.value;
  if (i.op == Scalar::Select) return a != 0 ? b : c;
  return binary(i, a, b);
}

bool wraps(Scalar op) {
  return op == Scalar::Add || op == Scalar::Sub || op == Scalar::Neg || op == Scalar::Abs;
}

}  // namespace

std::vector<double> interpret(const ScalarCode& code, std::span<const double> inputs) {
  TESSERA_ASSERT(static_cast<std::size_t>(code.inputs) == inputs.size(), "scalar code of {} inputs got {}",
                 code.inputs, inputs.size());
  std::vector<double> registers(inputs.begin(), inputs.end());
  const auto at = [&](int r) { return r < 0 ? 0.0 : registers[static_cast<std::size_t>(r)]; };
  for (const Instruction& i : code.code) {
    double value = evaluate(i, at(i.a), at(i.b), at(i.c));
    if (i.type == DType::I32 && wraps(i.op)) value = wrap_i32(value);
    registers.push_back(value);
  }
  std::vector<double> results;
  for (int r : code.results) results.push_back(at(r));
  return results;
}

}  // namespace tessera
