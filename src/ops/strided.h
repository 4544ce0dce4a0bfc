// Loops over several strided tensors at once, and dispatch over element types: what the naive kernels of this
// folder share. A Nest joins dimensions that lie behind each other in memory, so that the innermost row is as
// long as possible.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "tessera/op.h"

namespace tessera {

// Calls f.template operator()<T>() with the element type; bool is stored in one byte.
template <class F>
void with_type(DType type, F f) {
  switch (type) {
    case DType::F32:
      return f.template operator()<float>();
    case DType::BF16:
      return f.template operator()<bf16>();
    case DType::F64:
      return f.template operator()<double>();
    case DType::I32:
      return f.template operator()<std::int32_t>();
    case DType::Bool:
      return f.template operator()<bool>();
  }
}

// The same for numbers; REQUIRES a type that is not bool.
template <class F>
void with_number(DType type, F f) {
  if (type == DType::F32) f.template operator()<float>();
  if (type == DType::BF16) f.template operator()<bf16>();
  if (type == DType::F64) f.template operator()<double>();
  if (type == DType::I32) f.template operator()<std::int32_t>();
}

// Calls f with an unsigned type as wide as an element: for kernels that only move values.
template <class F>
void with_width(DType type, F f) {
  switch (size_of(type)) {
    case 1:
      return f.template operator()<std::uint8_t>();
    case 2:
      return f.template operator()<std::uint16_t>();
    case 4:
      return f.template operator()<std::uint32_t>();
    default:
      return f.template operator()<std::uint64_t>();
  }
}

// A number as an element: floats round once, bf16 through f32, bool is "not zero".
template <class T>
T element_from(double value) {
  if constexpr (std::is_same_v<T, bf16>) {
    return bf16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else {
    return static_cast<T>(value);
  }
}

// The type in which values of T are summed: f32 for bf16 and f32; unsigned for i32, so that overflow wraps.
template <class T>
using SumOf = std::conditional_t<std::is_same_v<T, double>, double,
                                 std::conditional_t<std::is_same_v<T, std::int32_t>, std::uint32_t, float>>;

// Elements between neighbours along a dimension, 0 when the tensor lacks it.
inline std::int64_t stride_of(const View& view, std::string_view dim) {
  const int d = view.shape.find(dim);
  return d < 0 ? 0 : view.stride[static_cast<std::size_t>(d)];
}

// Global offset of a shard along a dimension that it has.
inline std::int64_t start_of(const View& view, std::string_view dim) {
  return view.start[static_cast<std::size_t>(view.shape.find(dim))];
}

// Loops, outermost first, each with the step of N offsets.
template <std::size_t N>
class Nest {
 public:
  using Steps = std::array<std::int64_t, N>;

  void add(std::int64_t extent, const Steps& step) {
    if (extent == 1) return;
    if (!loops_.empty()) {
      Loop& outer = loops_.back();
      bool joins = extent > 0;
      for (std::size_t i = 0; i < N; ++i) joins = joins && outer.step[i] == step[i] * extent;
      if (joins) {
        outer = {outer.extent * extent, step};
        return;
      }
    }
    loops_.push_back({extent, step});
  }

  // Calls f(offsets, count, steps) once for each innermost row, in order; never for an empty nest of loops.
  template <class F>
  void rows(const Steps& start, F f) const {
    for (const Loop& loop : loops_) {
      if (loop.extent == 0) return;
    }
    if (loops_.empty()) return f(start, std::int64_t{1}, Steps{});
    walk(0, start, f);
  }

 private:
  struct Loop {
    std::int64_t extent = 0;
    Steps step{};
  };

  template <class F>
  void walk(std::size_t depth, Steps offset, F& f) const {
    const Loop& loop = loops_[depth];
    if (depth + 1 == loops_.size()) return f(offset, loop.extent, loop.step);
    for (std::int64_t i = 0; i < loop.extent; ++i) {
      walk(depth + 1, offset, f);
      for (std::size_t n = 0; n < N; ++n) offset[n] += loop.step[n];
    }
  }

  std::vector<Loop> loops_;
};

// A nest over all dimensions of `shape`, with the steps of the given views (0 where a view lacks the
// dimension).
template <class... Views>
Nest<sizeof...(Views)> nest_over(const Shape& shape, const Views&... views) {
  Nest<sizeof...(Views)> nest;
  for (const Dim& dim : shape) nest.add(dim.size, {stride_of(views, dim.name)...});
  return nest;
}

// Copies a row of `count` elements; source and target do not overlap.
template <class T>
void copy_row(T* to, std::int64_t to_step, const T* from, std::int64_t from_step, std::int64_t count) {
  if (to_step == 1 && from_step == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(T));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) to[i * to_step] = from[i * from_step];
}

// Fills a shard.
template <class T>
void fill_view(const View& view, T value) {
  nest_over(view.shape, view).rows({0}, [&](auto at, std::int64_t count, auto step) {
    for (std::int64_t i = 0; i < count; ++i) view.as<T>()[at[0] + i * step[0]] = value;
  });
}

}  // namespace tessera
