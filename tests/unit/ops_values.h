// Short forms for tests of single ops: literal tensors in, plain numbers out.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "support/evaluate.h"
#include "support/samples.h"
#include "tessera/error.h"
#include "tessera/grad.h"

namespace tessera::testing {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A literal that gradients may be taken of.
inline Tensor literal(Graph& graph, const Doubles& values, const Shape& shape, DType dtype = DType::F64) {
  return constant(graph, values, shape, dtype);
}

inline Doubles counting(std::int64_t count) {
  Doubles values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>(i));
  return values;
}

inline Doubles run(const Tensor& t) {
  return evaluate({t})[0].values();
}

// d sum(y * seed) / dx; seed is ones when absent.
inline Tensor gradient(const Tensor& y, const Tensor& x, const Tensors& seed = {}) {
  return gradients({y}, {x}, seed)[0];
}

// The message of the UserError that `f` throws, its place in this test replaced by "FILE:LINE".
template <class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const UserError& error) {
    std::string text = error.what();
    const std::size_t from = text.find("ops_");
    if (from == std::string::npos) return text;
    const std::size_t to = text.find_first_not_of("0123456789", text.find(".cpp:", from) + 5);
    return text.replace(from, to - from, "FILE:LINE");
  }
  return "no error";
}

// The same message without its place.
template <class F>
std::string bare_message_of(F f) {
  const std::string text = message_of(f);
  return text.substr(0, text.find(" (at "));
}

inline auto near(const Doubles& values, double tolerance = 1e-12) {
  return ::testing::Pointwise(::testing::DoubleNear(tolerance), values);
}

}  // namespace tessera::testing
