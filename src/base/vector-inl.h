// Vector helpers shared by the kernels: loads and stores that convert bf16, sums over lanes in a fixed order.
// Included once per vector target (Highway's convention for such headers).
#if defined(TESSERA_BASE_VECTOR_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_BASE_VECTOR_INL_H
#undef TESSERA_BASE_VECTOR_INL_H
#else
#define TESSERA_BASE_VECTOR_INL_H
#endif

#include <hwy/highway.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tessera/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {

// One element in the type that kernels compute in, and back (rounded once).
template <class Acc, class T>
HWY_INLINE Acc widened(T x) {
  if constexpr (std::is_same_v<T, bf16>) {
    return static_cast<Acc>(std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16));
  } else {
    return static_cast<Acc>(x);
  }
}

template <class T, class Acc>
HWY_INLINE T narrowed(Acc x) {
  if constexpr (std::is_same_v<T, bf16>) {
    return bf16(static_cast<float>(x));
  } else {
    return static_cast<T>(x);
  }
}

// A vector of lanes of D from memory of T: the lane type itself, or bf16 for lanes of f32.
template <class D, class T>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> load(D d, const T* from) {
  namespace hn = hwy::HWY_NAMESPACE;
  if constexpr (std::is_same_v<T, bf16>) {
    const hn::Rebind<std::uint16_t, D> narrow;
    const hn::Rebind<std::uint32_t, D> wide;
    const auto bits = hn::LoadU(narrow, reinterpret_cast<const std::uint16_t*>(from));
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(wide, bits)));
  } else {
    return hn::LoadU(d, from);
  }
}

// Rounds lanes of f32 to the nearest bf16, ties to even, NaN stays NaN; the result keeps the upper half of
// each lane.
template <class D, class V>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<hwy::HWY_NAMESPACE::Rebind<std::uint32_t, D>> bf16_bits(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Rebind<std::uint32_t, D> u;
  const auto bits = hn::BitCast(u, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(u, 0x7fffu)));
  const auto quiet = hn::Or(bits, hn::Set(u, 0x400000u));
  const auto nan = hn::RebindMask(u, hn::Not(hn::Eq(x, x)));
  (void)d;
  return hn::IfThenElse(nan, quiet, rounded);
}

template <class D, class V, class T>
HWY_INLINE void store(D d, V x, T* to) {
  namespace hn = hwy::HWY_NAMESPACE;
  if constexpr (std::is_same_v<T, bf16>) {
    const hn::Rebind<std::uint16_t, D> narrow;
    const hn::Rebind<std::int32_t, D> wide;
    // 0 .. 0xffff fits an i32, and the demotion saturates only beyond that.
    const auto upper = hn::BitCast(wide, hn::ShiftRight<16>(bf16_bits(d, x)));
    hn::StoreU(hn::DemoteTo(narrow, upper), narrow, reinterpret_cast<std::uint16_t*>(to));
  } else {
    hn::StoreU(x, d, to);
  }
}

// Always in the same order.
template <class D, class V>
HWY_INLINE hwy::HWY_NAMESPACE::TFromD<D> sum_lanes(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  return hn::GetLane(hn::SumOfLanes(d, x));
}

// to[i] = from[i] in the type that kernels compute in.
template <class Acc, class T>
HWY_INLINE void widen_run(const T* from, Acc* to, std::int64_t n) {
  namespace hn = hwy::HWY_NAMESPACE;
  if constexpr (std::is_same_v<T, bf16>) {
    const hn::ScalableTag<Acc> d;
    const auto count = static_cast<std::size_t>(n), whole = count - count % HWY_LANES(Acc);
    for (std::size_t i = 0; i < whole; i += HWY_LANES(Acc)) hn::StoreU(load(d, from + i), d, to + i);
    for (std::size_t i = whole; i < count; ++i) to[i] = widened<Acc>(from[i]);
  } else {
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
  }
}

// The way back.
template <class T, class Acc>
HWY_INLINE void narrow_run(const Acc* from, T* to, std::int64_t n) {
  namespace hn = hwy::HWY_NAMESPACE;
  if constexpr (std::is_same_v<T, bf16>) {
    const hn::ScalableTag<Acc> d;
    const auto count = static_cast<std::size_t>(n), whole = count - count % HWY_LANES(Acc);
    for (std::size_t i = 0; i < whole; i += HWY_LANES(Acc)) store(d, hn::LoadU(d, from + i), to + i);
    for (std::size_t i = whole; i < count; ++i) to[i] = narrowed<T>(from[i]);
  } else {
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#endif
