// One vectorised loop per instruction and lane type. f64 calls the C library for elementary functions: it is
// there for tests, which want accuracy.
#include "exec/cpu/fused_code.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/fused_code.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/vector-inl.h"
#include "exec/cpu/fused_elements-inl.h"
#include "exec/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// --- vector loops: kF is a functor of (tag, vectors...)
// ----------------------------------------------------------------

// A loop over all operands' elements is unrolled to a lane group. Where all operands are uniform it covers
// one group, so that only binary loops tell them apart.
template <class T, class F>
HWY_INLINE void in_groups(std::size_t n, F f) {
  constexpr std::size_t kStep = HWY_LANES(T);
  for (std::size_t i = 0; i < n; i += kLaneGroup) {
#pragma GCC unroll 16
    for (std::size_t k = 0; k < kLaneGroup; k += kStep) f(i + k);
  }
}

template <class T, class F>
void unary_loop(const BlockOperand* in, void* result, std::size_t n) {
  const hn::ScalableTag<T> d;
  const T* a = data<T>(in[0]);
  T* out = static_cast<T*>(result);
  in_groups<T>(n, [&](std::size_t i) HWY_ATTR { hn::StoreU(F()(d, hn::LoadU(d, a + i)), d, out + i); });
}

// store(x op y, i)
template <class T, class F, class Store>
HWY_INLINE void binary(const BlockOperand* in, std::size_t n, Store store) {
  const hn::ScalableTag<T> d;
  const T *a = data<T>(in[0]), *b = data<T>(in[1]);
  const bool many_a = in[0].mask + 1 == 0, many_b = in[1].mask + 1 == 0;
  const auto first_a = hn::LoadU(d, a), first_b = hn::LoadU(d, b);
  if (many_a && !many_b)
    return in_groups<T>(n, [&](std::size_t i) HWY_ATTR { store(F()(d, hn::LoadU(d, a + i), first_b), i); });
  if (many_b && !many_a)
    return in_groups<T>(n, [&](std::size_t i) HWY_ATTR { store(F()(d, first_a, hn::LoadU(d, b + i)), i); });
  in_groups<T>(n,
               [&](std::size_t i) HWY_ATTR { store(F()(d, hn::LoadU(d, a + i), hn::LoadU(d, b + i)), i); });
}

template <class T, class F>
void binary_loop(const BlockOperand* in, void* result, std::size_t n) {
  const hn::ScalableTag<T> d;
  T* out = static_cast<T*>(result);
  binary<T, F>(in, n, [&](auto x, std::size_t i) HWY_ATTR { hn::StoreU(x, d, out + i); });
}

template <class F>
void compare_loop(const BlockOperand* in, void* result, std::size_t n) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<std::int32_t, decltype(d)> di;
  std::int32_t* out = static_cast<std::int32_t*>(result);
  binary<float, F>(in, n, [&](auto mask, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::IfThenElseZero(hn::RebindMask(di, mask), hn::Set(di, 1)), di, out + i);
  });
}

template <class T>
void select_loop(const BlockOperand* in, void* result, std::size_t n) {
  const hn::ScalableTag<T> d;
  const hn::Rebind<std::int32_t, decltype(d)> di;
  const std::int32_t* condition = data<std::int32_t>(in[0]);
  const T *a = data<T>(in[1]), *b = data<T>(in[2]);
  T* out = static_cast<T*>(result);
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    const auto yes = hn::RebindMask(d, hn::Ne(hn::LoadU(di, condition + (i & in[0].mask)), hn::Zero(di)));
    const auto x = hn::LoadU(d, a + (i & in[1].mask)), y = hn::LoadU(d, b + (i & in[2].mask));
    hn::StoreU(hn::IfThenElse(yes, x, y), d, out + i);
  }
}

#define TESSERA_UNARY(Name, ...)              \
  struct Name {                               \
    template <class D, class V>               \
    HWY_INLINE V operator()(D d, V a) const { \
      (void)d;                                \
      return __VA_ARGS__;                     \
    }                                         \
  };
#define TESSERA_BINARY(Name, ...)                     \
  struct Name {                                       \
    template <class D, class V>                       \
    HWY_INLINE auto operator()(D d, V a, V b) const { \
      (void)d;                                        \
      return __VA_ARGS__;                             \
    }                                                 \
  };

TESSERA_UNARY(Neg, hn::Neg(a))
TESSERA_UNARY(Abs, hn::Abs(a))
TESSERA_UNARY(Sign, keep_nan<D>(a, hn::IfThenElse(hn::Eq(a, hn::Zero(d)), hn::Zero(d),
                                                  hn::CopySign(hn::Set(d, 1), a))))
TESSERA_UNARY(Sqrt, hn::Sqrt(a))
TESSERA_UNARY(Rsqrt, hn::Div(hn::Set(d, 1), hn::Sqrt(a)))
TESSERA_UNARY(Reciprocal, hn::Div(hn::Set(d, 1), a))
TESSERA_UNARY(Floor, hn::Floor(a))
TESSERA_UNARY(Exp, vector_exp(d, a))
TESSERA_UNARY(Expm1, vector_expm1(d, a))
TESSERA_UNARY(Log, vector_log(d, a))
TESSERA_UNARY(Log1p, vector_log1p(d, a))
TESSERA_UNARY(Tanh, vector_tanh(d, a))
TESSERA_UNARY(Sigmoid, vector_sigmoid(d, a))
TESSERA_UNARY(Erf, vector_erf(d, a))
TESSERA_UNARY(Sin, vector_sin(d, a))
TESSERA_UNARY(Cos, vector_cos(d, a))
TESSERA_BINARY(Add, hn::Add(a, b))
TESSERA_BINARY(Sub, hn::Sub(a, b))
TESSERA_BINARY(Mul, hn::Mul(a, b))
TESSERA_BINARY(Div, hn::Div(a, b))
TESSERA_BINARY(Min, keep_nan<D>(a, keep_nan<D>(b, hn::Min(a, b))))
TESSERA_BINARY(Max, keep_nan<D>(a, keep_nan<D>(b, hn::Max(a, b))))
TESSERA_BINARY(Less, hn::Lt(a, b))
TESSERA_BINARY(LessEqual, hn::Le(a, b))
TESSERA_BINARY(Equal, hn::Eq(a, b))
TESSERA_BINARY(NotEqual, hn::Not(hn::Eq(a, b)))  // Ne is false for NaN on x86

#undef TESSERA_UNARY
#undef TESSERA_BINARY

// --- element loops: i32, comparisons of f64, and functions that only the C library has
// --------------------------------------

#define TESSERA_ELEMENT1(To, From, ...)                                     \
  [](const BlockOperand* in, void* result, std::size_t n) {                 \
    elements1<To, From>(in, result, n, [](From a) { return __VA_ARGS__; }); \
  }
#define TESSERA_ELEMENT2(To, From, ...)                                             \
  [](const BlockOperand* in, void* result, std::size_t n) {                         \
    elements2<To, From>(in, result, n, [](From a, From b) { return __VA_ARGS__; }); \
  }

HWY_INLINE double floor_mod(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

HWY_INLINE double sigmoid(double a) {
  return a >= 0 ? 1 / (1 + std::exp(-a)) : std::exp(a) / (1 + std::exp(a));
}

using u32 = std::uint32_t;
using i32 = std::int32_t;

BlockInstruction f32_instruction(Scalar op) {
  switch (op) {
    case Scalar::Neg:
      return unary_loop<float, Neg>;
    case Scalar::Abs:
      return unary_loop<float, Abs>;
    case Scalar::Sign:
      return unary_loop<float, Sign>;
    case Scalar::Sqrt:
      return unary_loop<float, Sqrt>;
    case Scalar::Rsqrt:
      return unary_loop<float, Rsqrt>;
    case Scalar::Reciprocal:
      return unary_loop<float, Reciprocal>;
    case Scalar::Exp:
      return unary_loop<float, Exp>;
    case Scalar::Expm1:
      return unary_loop<float, Expm1>;
    case Scalar::Log:
      return unary_loop<float, Log>;
    case Scalar::Log1p:
      return unary_loop<float, Log1p>;
    case Scalar::Tanh:
      return unary_loop<float, Tanh>;
    case Scalar::Sigmoid:
      return unary_loop<float, Sigmoid>;
    case Scalar::Erf:
      return unary_loop<float, Erf>;
    case Scalar::Floor:
      return unary_loop<float, Floor>;
    case Scalar::Sin:
      return unary_loop<float, Sin>;
    case Scalar::Cos:
      return unary_loop<float, Cos>;
    case Scalar::Add:
      return binary_loop<float, Add>;
    case Scalar::Sub:
      return binary_loop<float, Sub>;
    case Scalar::Mul:
      return binary_loop<float, Mul>;
    case Scalar::Div:
      return binary_loop<float, Div>;
    case Scalar::Min:
      return binary_loop<float, Min>;
    case Scalar::Max:
      return binary_loop<float, Max>;
    case Scalar::Pow:
      return TESSERA_ELEMENT2(float, float, std::pow(static_cast<double>(a), static_cast<double>(b)));
    // The quotient of two floats in double is exact enough for its floor.
    case Scalar::FloorDiv:
      return TESSERA_ELEMENT2(float, float, std::floor(static_cast<double>(a) / static_cast<double>(b)));
    case Scalar::Mod:
      return TESSERA_ELEMENT2(float, float, floor_mod(a, b));
    case Scalar::Less:
      return compare_loop<Less>;
    case Scalar::LessEqual:
      return compare_loop<LessEqual>;
    case Scalar::Equal:
      return compare_loop<Equal>;
    case Scalar::NotEqual:
      return compare_loop<NotEqual>;
    case Scalar::Select:
      return select_loop<float>;
    default:
      return nullptr;
  }
}

BlockInstruction f64_instruction(Scalar op) {
  switch (op) {
    case Scalar::Neg:
      return unary_loop<double, Neg>;
    case Scalar::Abs:
      return unary_loop<double, Abs>;
    case Scalar::Sign:
      return unary_loop<double, Sign>;
    case Scalar::Sqrt:
      return unary_loop<double, Sqrt>;
    case Scalar::Rsqrt:
      return unary_loop<double, Rsqrt>;
    case Scalar::Reciprocal:
      return unary_loop<double, Reciprocal>;
    case Scalar::Exp:
      return TESSERA_ELEMENT1(double, double, std::exp(a));
    case Scalar::Expm1:
      return TESSERA_ELEMENT1(double, double, std::expm1(a));
    case Scalar::Log:
      return TESSERA_ELEMENT1(double, double, std::log(a));
    case Scalar::Log1p:
      return TESSERA_ELEMENT1(double, double, std::log1p(a));
    case Scalar::Tanh:
      return TESSERA_ELEMENT1(double, double, std::tanh(a));
    case Scalar::Sigmoid:
      return TESSERA_ELEMENT1(double, double, sigmoid(a));
    case Scalar::Erf:
      return TESSERA_ELEMENT1(double, double, std::erf(a));
    case Scalar::Floor:
      return unary_loop<double, Floor>;
    case Scalar::Sin:
      return TESSERA_ELEMENT1(double, double, std::sin(a));
    case Scalar::Cos:
      return TESSERA_ELEMENT1(double, double, std::cos(a));
    case Scalar::Add:
      return binary_loop<double, Add>;
    case Scalar::Sub:
      return binary_loop<double, Sub>;
    case Scalar::Mul:
      return binary_loop<double, Mul>;
    case Scalar::Div:
      return binary_loop<double, Div>;
    case Scalar::Min:
      return binary_loop<double, Min>;
    case Scalar::Max:
      return binary_loop<double, Max>;
    case Scalar::Pow:
      return TESSERA_ELEMENT2(double, double, std::pow(a, b));
    case Scalar::FloorDiv:
      return TESSERA_ELEMENT2(double, double, std::floor(a / b));
    case Scalar::Mod:
      return TESSERA_ELEMENT2(double, double, floor_mod(a, b));
    case Scalar::Less:
      return TESSERA_ELEMENT2(i32, double, a < b);
    case Scalar::LessEqual:
      return TESSERA_ELEMENT2(i32, double, a <= b);
    case Scalar::Equal:
      return TESSERA_ELEMENT2(i32, double, a == b);
    case Scalar::NotEqual:
      return TESSERA_ELEMENT2(i32, double, a != b);
    case Scalar::Select:
      return [](const BlockOperand* in, void* result, std::size_t n) {
        const i32* condition = data<i32>(in[0]);
        const double *a = data<double>(in[1]), *b = data<double>(in[2]);
        double* out = static_cast<double*>(result);
        for (std::size_t i = 0; i < n; ++i) {
          out[i] = condition[i & in[0].mask] != 0 ? a[i & in[1].mask] : b[i & in[2].mask];
        }
      };
    default:
      return nullptr;
  }
}

// Sums and products wrap; division by zero gives 0 for FloorDiv and Mod.
BlockInstruction i32_instruction(Scalar op) {
  switch (op) {
    case Scalar::Neg:
      return TESSERA_ELEMENT1(u32, u32, 0u - a);
    case Scalar::Abs:
      return TESSERA_ELEMENT1(u32, u32, static_cast<i32>(a) < 0 ? 0u - a : a);
    case Scalar::Sign:
      return TESSERA_ELEMENT1(i32, i32, (a > 0) - (a < 0));
    case Scalar::Floor:
      return TESSERA_ELEMENT1(i32, i32, a);
    case Scalar::Add:
      return TESSERA_ELEMENT2(u32, u32, a + b);
    case Scalar::Sub:
      return TESSERA_ELEMENT2(u32, u32, a - b);
    case Scalar::Mul:
      return TESSERA_ELEMENT2(u32, u32, a * b);
    case Scalar::Div:
      return TESSERA_ELEMENT2(i32, i32, to_i32(static_cast<double>(a) / b));
    case Scalar::FloorDiv:
      return TESSERA_ELEMENT2(i32, i32, b == 0 ? 0 : to_i32(std::floor(static_cast<double>(a) / b)));
    case Scalar::Mod:
      return TESSERA_ELEMENT2(i32, i32, b == 0 ? 0 : to_i32(floor_mod(a, b)));
    case Scalar::Min:
      return TESSERA_ELEMENT2(i32, i32, std::min(a, b));
    case Scalar::Max:
      return TESSERA_ELEMENT2(i32, i32, std::max(a, b));
    case Scalar::Pow:
      return TESSERA_ELEMENT2(i32, i32, to_i32(std::pow(static_cast<double>(a), static_cast<double>(b))));
    case Scalar::Less:
      return TESSERA_ELEMENT2(i32, i32, a < b);
    case Scalar::LessEqual:
      return TESSERA_ELEMENT2(i32, i32, a <= b);
    case Scalar::Equal:
      return TESSERA_ELEMENT2(i32, i32, a == b);
    case Scalar::NotEqual:
      return TESSERA_ELEMENT2(i32, i32, a != b);
    case Scalar::And:
      return TESSERA_ELEMENT2(i32, i32, a != 0 && b != 0);
    case Scalar::Or:
      return TESSERA_ELEMENT2(i32, i32, a != 0 || b != 0);
    case Scalar::Not:
      return TESSERA_ELEMENT1(i32, i32, a == 0);
    case Scalar::Select:
      return select_loop<std::int32_t>;
    default:
      return nullptr;
  }
}

#undef TESSERA_ELEMENT1
#undef TESSERA_ELEMENT2

}  // namespace

BlockInstruction pick_instruction(Scalar op, Lane lane) {
  return lane == Lane::F32   ? f32_instruction(op)
         : lane == Lane::F64 ? f64_instruction(op)
                             : i32_instruction(op);
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {

HWY_EXPORT(pick_instruction);

BlockInstruction block_instruction(Scalar op, Lane lane) {
  return HWY_DYNAMIC_DISPATCH(pick_instruction)(op, lane);
}

}  // namespace tessera
#endif
