// Elementary functions on vectors of f32, with the special values of the C library: NaN stays NaN, exp
// overflows to infinity, log(0) is -infinity. Errors are at most 4 units in the last place. Included once per
// vector target.
#if defined(TESSERA_EXEC_CPU_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_EXEC_CPU_MATH_INL_H
#undef TESSERA_EXEC_CPU_MATH_INL_H
#else
#define TESSERA_EXEC_CPU_MATH_INL_H
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {

template <class D, class V>
HWY_INLINE V keep_nan(V x, V result) {
  namespace hn = hwy::HWY_NAMESPACE;
  return hn::IfThenElse(hn::Eq(x, x), result, x);
}

// exp(x) = 2^n exp(r), |r| <= log(2) / 2, with a polynomial for exp(r) (coefficients of the Cephes library).
// 2^n is multiplied in as two halves, so that results below the normal range come out right.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V vector_exp(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Rebind<std::int32_t, D> di;
  constexpr float kPolynomial[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                   4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
  const V top = hn::Set(d, 88.72283f);  // the largest float whose exponential is finite
  const V t = hn::Max(hn::Min(x, top), hn::Set(d, -104.0f));
  const auto n = hn::NearestInt(hn::Mul(t, hn::Set(d, 1.44269504f)));
  const V m = hn::ConvertTo(d, n);
  const V r = hn::NegMulAdd(m, hn::Set(d, -2.12194440e-4f), hn::NegMulAdd(m, hn::Set(d, 0.693359375f), t));
  V p = hn::Set(d, kPolynomial[0]);
  for (int i = 1; i < 6; ++i) p = hn::MulAdd(p, r, hn::Set(d, kPolynomial[i]));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  const auto half = hn::ShiftRight<1>(n), bias = hn::Set(di, 127);
  const V a = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const V b = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(n, half), bias)));
  const V finite = hn::Mul(hn::Mul(p, a), b);
  const V infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  return keep_nan<D>(x, hn::IfThenElse(hn::Gt(x, top), infinity, finite));
}

template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V vector_expm1(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V top = hn::Set(d, 88.72283f);
  const V infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  const V finite = hn::Expm1(d, hn::Min(x, top));
  return keep_nan<D>(x, hn::IfThenElse(hn::Gt(x, top), infinity, finite));
}

template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V vector_log(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V zero = hn::Zero(d), infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  V y = hn::Log(d, x);
  y = hn::IfThenElse(hn::Eq(x, infinity), infinity, y);
  y = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity), y);
  y = hn::IfThenElse(hn::Lt(x, zero), hn::Set(d, std::numeric_limits<float>::quiet_NaN()), y);
  return keep_nan<D>(x, y);
}

// log(1 + x) is x times log(u) / (u - 1), where u is 1 + x as rounded: both factors' errors cancel.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V vector_log1p(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V one = hn::Set(d, 1.0f), infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  const V u = hn::Add(x, one);
  const V y = hn::Mul(vector_log(d, u), hn::Div(x, hn::Sub(u, one)));
  const auto small = hn::Eq(u, one);
  const auto edge = hn::Or(hn::Eq(x, infinity), hn::Le(u, hn::Zero(d)));
  return hn::IfThenElse(small, x, hn::IfThenElse(edge, vector_log(d, u), y));
}

template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V vector_tanh(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V limit = hn::Set(d, 10.0f);  // beyond, tanh rounds to 1
  return keep_nan<D>(x, hn::Tanh(d, hn::Clamp(x, hn::Neg(limit), limit)));
}

template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V vector_sigmoid(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, vector_exp(d, hn::Neg(x))));
}

// The library reduces its argument exactly enough up to here; beyond, the C library does.
constexpr float kLargestAngle = 39000.0f;

template <class D, class V, class F>
V each_lane(D d, V x, F f) {
  namespace hn = hwy::HWY_NAMESPACE;
  alignas(64) float lane[HWY_LANES(float)];
  hn::Store(x, d, lane);
  for (float& value : lane) value = static_cast<float>(f(static_cast<double>(value)));
  return hn::Load(d, lane);
}

template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V vector_sin(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  if (HWY_LIKELY(hn::AllTrue(d, hn::Le(hn::Abs(x), hn::Set(d, kLargestAngle))))) return hn::Sin(d, x);
  return each_lane(d, x, [](double angle) { return std::sin(angle); });
}

template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V vector_cos(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  if (HWY_LIKELY(hn::AllTrue(d, hn::Le(hn::Abs(x), hn::Set(d, kLargestAngle))))) return hn::Cos(d, x);
  return each_lane(d, x, [](double angle) { return std::cos(angle); });
}

// A rational function, fitted to erf on [-4, 4]; beyond, erf rounds to 1.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V vector_erf(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr float kTop[] = {-2.72614225801306e-10f, 2.77068142495902e-08f,  -2.10102402082508e-06f,
                            -5.69250639462346e-05f, -7.34990630326855e-04f, -2.95459980854025e-03f,
                            -1.60960333262415e-02f};
  constexpr float kBottom[] = {-1.45660718464996e-05f, -2.13374055278905e-04f, -1.68282697438203e-03f,
                               -7.37332916720468e-03f, -1.42647390514189e-02f};
  const V limit = hn::Set(d, 4.0f);
  const V t = hn::Clamp(x, hn::Neg(limit), limit), square = hn::Mul(t, t);
  V top = hn::Set(d, kTop[0]), bottom = hn::Set(d, kBottom[0]);
  for (int i = 1; i < 7; ++i) top = hn::MulAdd(top, square, hn::Set(d, kTop[i]));
  for (int i = 1; i < 5; ++i) bottom = hn::MulAdd(bottom, square, hn::Set(d, kBottom[i]));
  return keep_nan<D>(x, hn::Div(hn::Mul(t, top), bottom));
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#endif
