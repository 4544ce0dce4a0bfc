// Integer arithmetic on values that come from files: the result, or nothing when it does not fit.
#pragma once

#include <concepts>
#include <optional>

namespace tessera {

template <std::integral T>
std::optional<T> checked_add(T a, T b) {
  T result;
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

template <std::integral T>
std::optional<T> checked_multiply(T a, T b) {
  T result;
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

}  // namespace tessera
