// Changes of type between a block's registers, and between registers and memory.
#include <cstdint>
#include <type_traits>

#include "base/simd.h"
#include "exec/cpu/fused_code.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/fused_convert.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/vector-inl.h"
#include "exec/cpu/fused_elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using i32 = std::int32_t;

void round_to_bf16(const BlockOperand* in, void* result, std::size_t n) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<std::uint32_t, decltype(d)> u;
  const float* a = data<float>(in[0]);
  std::uint32_t* out = static_cast<std::uint32_t*>(result);
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    const auto bits = bf16_bits(d, hn::LoadU(d, a + (i & in[0].mask)));
    hn::StoreU(hn::And(bits, hn::Set(u, 0xffff0000u)), u, out + i);
  }
}

template <class From, class To, class F>
BlockInstruction converting(F) {
  return [](const BlockOperand* in, void* result, std::size_t n) { elements1<To, From>(in, result, n, F()); };
}

template <class From>
BlockInstruction cast_from(DType type) {
  switch (type) {
    case DType::F32:
      return converting<From, float>([](From a) { return a; });
    case DType::BF16:
      if constexpr (std::is_same_v<From, float>) return round_to_bf16;
      return converting<From, float>([](From a) { return static_cast<float>(bf16(static_cast<float>(a))); });
    case DType::F64:
      return converting<From, double>([](From a) { return a; });
    case DType::I32:
      if constexpr (std::is_same_v<From, i32>) return converting<i32, i32>([](i32 a) { return a; });
      return converting<From, i32>([](From a) { return to_i32(a); });
    case DType::Bool:
      return converting<From, i32>([](From a) { return a != 0; });
  }
  return nullptr;
}

template <class To, class From>
HWY_INLINE void load_elements(const void* from, std::int64_t stride, void* to, std::size_t n) {
  const From* a = static_cast<const From*>(from);
  To* out = static_cast<To*>(to);
  if (stride == 0) {
    std::fill_n(out, n, widened<To>(*a));
    return;
  }
  if constexpr (!std::is_same_v<From, bool>) {
    if (stride == 1) return widen_run(a, out, static_cast<std::int64_t>(n));
  }
  for (std::size_t i = 0; i < n; ++i, a += stride) out[i] = widened<To>(*a);
}

template <class To, class From>
HWY_INLINE void store_elements(const void* from, void* to, std::int64_t stride, std::size_t n) {
  const From* a = static_cast<const From*>(from);
  To* out = static_cast<To*>(to);
  if constexpr (!std::is_same_v<To, bool>) {
    if (stride == 1) return narrow_run(a, out, static_cast<std::int64_t>(n));
  }
  for (std::size_t i = 0; i < n; ++i, out += stride) *out = narrowed<To>(a[i]);
}

}  // namespace

BlockInstruction pick_cast(Lane from, DType type) {
  return from == Lane::F32   ? cast_from<float>(type)
         : from == Lane::F64 ? cast_from<double>(type)
                             : cast_from<i32>(type);
}

void load_elements_of(DType type, const void* from, std::int64_t stride, void* to, std::size_t n) {
  switch (type) {
    case DType::F32:
      return load_elements<float, float>(from, stride, to, n);
    case DType::BF16:
      return load_elements<float, bf16>(from, stride, to, n);
    case DType::F64:
      return load_elements<double, double>(from, stride, to, n);
    case DType::I32:
      return load_elements<i32, i32>(from, stride, to, n);
    case DType::Bool:
      return load_elements<i32, bool>(from, stride, to, n);
  }
}

void store_elements_of(DType type, const void* from, void* to, std::int64_t stride, std::size_t n) {
  switch (type) {
    case DType::F32:
      return store_elements<float, float>(from, to, stride, n);
    case DType::BF16:
      return store_elements<bf16, float>(from, to, stride, n);
    case DType::F64:
      return store_elements<double, double>(from, to, stride, n);
    case DType::I32:
      return store_elements<i32, i32>(from, to, stride, n);
    case DType::Bool:
      return store_elements<bool, i32>(from, to, stride, n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {

HWY_EXPORT(pick_cast);
HWY_EXPORT(load_elements_of);
HWY_EXPORT(store_elements_of);

BlockInstruction block_cast(Lane from, DType type) {
  return HWY_DYNAMIC_DISPATCH(pick_cast)(from, type);
}

void load_block(DType type, const void* from, std::int64_t stride, void* to, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(load_elements_of)(type, from, stride, to, n);
}

void store_block(DType type, const void* from, void* to, std::int64_t stride, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(store_elements_of)(type, from, to, stride, n);
}

}  // namespace tessera
#endif
