// Loops over the elements of a block's registers, one by one. Included once per vector target.
#if defined(TESSERA_EXEC_CPU_FUSED_ELEMENTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_EXEC_CPU_FUSED_ELEMENTS_INL_H
#undef TESSERA_EXEC_CPU_FUSED_ELEMENTS_INL_H
#else
#define TESSERA_EXEC_CPU_FUSED_ELEMENTS_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "exec/cpu/fused_code.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {

template <class T>
HWY_INLINE const T* data(const BlockOperand& operand) {
  return static_cast<const T*>(operand.data);
}

template <class To, class From, class F>
HWY_INLINE void elements1(const BlockOperand* in, void* result, std::size_t n, F f) {
  const From* a = data<From>(in[0]);
  To* out = static_cast<To*>(result);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<To>(f(a[i & in[0].mask]));
}

template <class To, class From, class F>
HWY_INLINE void elements2(const BlockOperand* in, void* result, std::size_t n, F f) {
  const From *a = data<From>(in[0]), *b = data<From>(in[1]);
  To* out = static_cast<To*>(result);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<To>(f(a[i & in[0].mask], b[i & in[1].mask]));
}

HWY_INLINE std::int32_t to_i32(double x) {
  if (std::isnan(x)) return 0;
  constexpr double kLow = std::numeric_limits<std::int32_t>::min(),
                   kHigh = std::numeric_limits<std::int32_t>::max();
  return static_cast<std::int32_t>(std::clamp(x, kLow, kHigh));
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#endif
