// Combining elements of several buffers: sums of floating-point numbers in vectors, the rest one by one.
#include <cmath>

#include "base/simd.h"
#include "comm/pieces.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "comm/combine.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Four vectors at a time, then one, then elements; each adds the sources in their order.
template <class T, class Lane>
void sum_run(std::span<const void* const> from, std::int64_t offset, T* to, std::int64_t count) {
  const hn::ScalableTag<Lane> d;
  constexpr auto kLanes = static_cast<std::int64_t>(HWY_LANES(Lane));
  const auto source = [&](std::size_t s) { return static_cast<const T*>(from[s]) + offset; };
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    const T* first = source(0) + i;
    auto s0 = load(d, first), s1 = load(d, first + kLanes), s2 = load(d, first + 2 * kLanes),
         s3 = load(d, first + 3 * kLanes);
    for (std::size_t s = 1; s < from.size(); ++s) {
      const T* next = source(s) + i;
      s0 = hn::Add(s0, load(d, next));
      s1 = hn::Add(s1, load(d, next + kLanes));
      s2 = hn::Add(s2, load(d, next + 2 * kLanes));
      s3 = hn::Add(s3, load(d, next + 3 * kLanes));
    }
    store(d, s0, to + i);
    store(d, s1, to + i + kLanes);
    store(d, s2, to + i + 2 * kLanes);
    store(d, s3, to + i + 3 * kLanes);
  }
  for (; i < count; ++i) {
    auto sum = widened<Lane>(source(0)[i]);
    for (std::size_t s = 1; s < from.size(); ++s) sum += widened<Lane>(source(s)[i]);
    to[i] = narrowed<T>(sum);
  }
}

}  // namespace

void sum_floats(DType dtype, std::span<const void* const> from, std::int64_t offset, void* to,
                std::int64_t to_offset, std::int64_t count) {
  if (dtype == DType::F32)
    return sum_run<float, float>(from, offset, static_cast<float*>(to) + to_offset, count);
  if (dtype == DType::BF16)
    return sum_run<bf16, float>(from, offset, static_cast<bf16*>(to) + to_offset, count);
  sum_run<double, double>(from, offset, static_cast<double*>(to) + to_offset, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {

HWY_EXPORT(sum_floats);

namespace {

// The larger or smaller one, NaN where one is NaN.
template <class T>
T extreme(Combine combine, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
  }
  return combine == Combine::Max ? std::max(a, b) : std::min(a, b);
}

template <class T, class Wide>
void combine_each(Combine combine, std::span<const void* const> from, std::int64_t offset, void* to,
                  std::int64_t to_offset, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = [&](std::size_t s) {
      return static_cast<Wide>(static_cast<const T*>(from[s])[offset + i]);
    };
    Wide result = at(0);
    for (std::size_t s = 1; s < from.size(); ++s)
      result = combine == Combine::Sum ? static_cast<Wide>(result + at(s)) : extreme(combine, result, at(s));
    static_cast<T*>(to)[to_offset + i] = static_cast<T>(result);
  }
}

}  // namespace

void combine_run(Combine combine, DType dtype, std::span<const void* const> from, std::int64_t offset,
                 void* to, std::int64_t to_offset, std::int64_t count) {
  if (combine == Combine::Sum && is_floating(dtype))
    return HWY_DYNAMIC_DISPATCH(sum_floats)(dtype, from, offset, to, to_offset, count);
  switch (dtype) {
    case DType::F32:
      return combine_each<float, float>(combine, from, offset, to, to_offset, count);
    case DType::BF16:
      return combine_each<bf16, float>(combine, from, offset, to, to_offset, count);
    case DType::F64:
      return combine_each<double, double>(combine, from, offset, to, to_offset, count);
    case DType::I32:  // sums wrap around, as the processor's do; signed overflow is undefined
      if (combine == Combine::Sum)
        return combine_each<std::uint32_t, std::uint32_t>(combine, from, offset, to, to_offset, count);
      return combine_each<std::int32_t, std::int32_t>(combine, from, offset, to, to_offset, count);
    case DType::Bool:
      return combine_each<std::uint8_t, std::uint8_t>(combine == Combine::Sum ? Combine::Max : combine, from,
                                                      offset, to, to_offset, count);
  }
}

}  // namespace tessera
#endif
