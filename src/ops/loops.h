// Element access and row loops of the naive kernels that do arithmetic. They sum in double, i32 with
// wrap-around, so that the reference is at least as exact as any fast kernel. See strided.h for Nest.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/strided.h"

namespace tessera {

// The type in which a reference kernel computes on elements of type T.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, std::int32_t>, std::uint32_t, double>;

template <class T>
Wide<T> widen(T value) {
  return static_cast<Wide<T>>(value);
}

template <class T>
T narrow(Wide<T> value) {
  if constexpr (std::is_same_v<T, bf16>) {
    return bf16(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

// Like with_type, for ops that infer restricts to floating types; and to floating types and i32.
template <class F>
void with_floating(DType type, F f) {
  switch (type) {
    case DType::F32:
      return f.template operator()<float>();
    case DType::BF16:
      return f.template operator()<bf16>();
    case DType::F64:
      return f.template operator()<double>();
    default:
      TESSERA_ASSERT(false, "kernel called with {}", to_string(type));
  }
}
template <class F>
void with_numeric(DType type, F f) {
  if (type == DType::I32) return f.template operator()<std::int32_t>();
  with_floating(type, f);
}

// The type of statistics and losses that belong to activations of type T (wide_type in build.h).
template <class T>
using Stat = std::conditional_t<std::is_same_v<T, double>, double, float>;

// A line of elements along one dimension of a view, addressed by the offset of its first element.
template <class T>
struct Line {
  T* data = nullptr;
  std::int64_t step = 0;

  Line(const View& view, std::string_view dim) : data(view.as<T>()), step(stride_of(view, dim)) {}
  double at(std::int64_t offset, std::int64_t i) const {
    return static_cast<double>(data[offset + i * step]);
  }
  void set(std::int64_t offset, std::int64_t i, double value) const {
    data[offset + i * step] = element_from<T>(value);
  }
};

// Calls f(offsets) for every index of `shape` except along `dim`; one offset for each view.
template <class F, class... Views>
void for_each_line(const Shape& shape, std::string_view dim, F f, const Views&... views) {
  Nest<sizeof...(Views)> nest;
  for (const Dim& d : shape) {
    if (d.name != dim) nest.add(d.size, {stride_of(views, d.name)...});
  }
  nest.rows({}, [&](auto at, std::int64_t count, auto step) {
    for (std::int64_t i = 0; i < count; ++i) {
      f(at);
      for (std::size_t n = 0; n < at.size(); ++n) at[n] += step[n];
    }
  });
}

// Sum of f(i) over [0, count).
template <class F>
double sum_over(std::int64_t count, F f) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += f(i);
  return sum;
}

}  // namespace tessera
