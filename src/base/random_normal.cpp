// Standard normals by Box and Muller, several at a time. Their logarithm and cosine are series in double,
// made of additions and multiplications that no vector target contracts: every processor and every number of
// lanes gives the same bits, which the libraries' functions do not promise.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numbers>

#include "base/random_runs.h"
#include "base/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/random_normal.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Doubles = hn::ScalableTag<double>;
using Longs = hn::Rebind<std::uint64_t, Doubles>;  // a word of 32 bits in each
constexpr std::size_t kLanes = HWY_LANES(double);

// A whole number below 2^52: the lowest bits of 2^52 take it.
HWY_INLINE hn::Vec<Doubles> number_of(hn::Vec<Longs> x) {
  const Doubles d;
  const auto magic = hn::Set(d, 0x1p52);
  return hn::Sub(hn::BitCast(d, hn::Or(x, hn::BitCast(Longs(), magic))), magic);
}

// The sum of coefficients[i] x^i.
template <std::size_t kCount>
HWY_INLINE hn::Vec<Doubles> polynomial(const double (&coefficients)[kCount], hn::Vec<Doubles> x) {
  const Doubles d;
  auto sum = hn::Set(d, coefficients[kCount - 1]);
  for (std::size_t i = kCount - 1; i-- > 0;) sum = hn::Add(hn::Mul(sum, x), hn::Set(d, coefficients[i]));
  return sum;
}

// log((word + 1) / 2^32) = e log 2 + log m with m in (sqrt(1/2), sqrt(2)], and log m = 2 artanh((m - 1) / (m
// + 1)).
HWY_INLINE hn::Vec<Doubles> log_of(hn::Vec<Longs> word) {
  const Doubles d;
  const Longs u;
  constexpr double kTerms[] = {2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11,
                               2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
  // log 2 in two parts: the first has so few digits that its multiples by e are exact.
  constexpr double kHigh = 0x1.62e42fee00000p-1, kLow = 0x1.a39ef35793c76p-33;
  const auto n = hn::Add(number_of(word), hn::Set(d, 1.0));
  const auto bits = hn::BitCast(u, n);
  const auto fraction = hn::And(bits, hn::Set(u, 0x000fffffffffffffULL));
  const auto above = hn::Gt(hn::BitCast(d, hn::Or(fraction, hn::Set(u, 0x3ff0000000000000ULL))),
                            hn::Set(d, std::numbers::sqrt2));
  const auto m = hn::BitCast(
      d, hn::Or(fraction, hn::IfThenElse(hn::RebindMask(u, above), hn::Set(u, 0x3fe0000000000000ULL),
                                         hn::Set(u, 0x3ff0000000000000ULL))));
  const auto exponent = hn::Sub(number_of(hn::ShiftRight<52>(bits)), hn::Set(d, 1023.0 + 32));
  const auto e = hn::Add(exponent, hn::IfThenElseZero(above, hn::Set(d, 1.0)));
  const auto f = hn::Sub(m, hn::Set(d, 1.0));
  const auto s = hn::Div(f, hn::Add(m, hn::Set(d, 1.0))), z = hn::Mul(s, s);
  const auto rest = hn::Add(hn::Mul(hn::Mul(s, z), polynomial(kTerms, z)), hn::Mul(e, hn::Set(d, kLow)));
  return hn::Add(hn::Mul(e, hn::Set(d, kHigh)), hn::Add(hn::Add(s, s), rest));
}

// cos(2 pi word / 2^32): the nearest quarter of the turn, and a series of what is left of it.
HWY_INLINE hn::Vec<Doubles> cosine_of(hn::Vec<Longs> word) {
  const Doubles d;
  const Longs u;
  constexpr double kSine[] = {1,
                              -1.0 / 6,
                              1.0 / 120,
                              -1.0 / 5040,
                              1.0 / 362880,
                              -1.0 / 39916800,
                              1.0 / 6227020800,
                              -1.0 / 1307674368000};
  constexpr double kCosine[] = {1,
                                -1.0 / 2,
                                1.0 / 24,
                                -1.0 / 720,
                                1.0 / 40320,
                                -1.0 / 3628800,
                                1.0 / 479001600,
                                -1.0 / 87178291200,
                                1.0 / 20922789888000};
  const auto quarters = hn::ShiftRight<30>(hn::Add(word, hn::Set(u, 1U << 29)));
  const auto left = hn::Sub(number_of(word), number_of(hn::ShiftLeft<30>(quarters)));
  const auto x = hn::Mul(left, hn::Set(d, 2 * std::numbers::pi * 0x1p-32));
  const auto z = hn::Mul(x, x);
  const auto has = [&](auto value, std::uint64_t bit) HWY_ATTR {
    return hn::RebindMask(d, hn::Eq(hn::And(value, hn::Set(u, bit)), hn::Set(u, bit)));
  };
  const auto result =
      hn::IfThenElse(has(quarters, 1), hn::Mul(x, polynomial(kSine, z)), polynomial(kCosine, z));
  return hn::IfThenElse(has(hn::Add(quarters, hn::Set(u, 1)), 2), hn::Neg(result), result);
}

}  // namespace

// The functions one after the other, so that the processor works on several values at once.
void normals_of(RandomKey key, std::uint64_t first, float* out) {
  static_assert(kNormalsAtOnce % kCounters == 0 && kNormalsAtOnce % kLanes == 0);
  const Doubles d;
  const Longs u;
  const hn::Rebind<float, Doubles> single;
  alignas(64) std::uint32_t words[4 * kCounters];
  alignas(64) std::uint64_t zero[kNormalsAtOnce], one[kNormalsAtOnce];
  alignas(64) double radius[kNormalsAtOnce];
  const PhiloxKeys keys(key.value);
  for (std::size_t at = 0; at < kNormalsAtOnce; at += kCounters) {
    philox_block(keys, first + at, words);
    for (std::size_t i = 0; i < kCounters; ++i) zero[at + i] = words[4 * i], one[at + i] = words[4 * i + 1];
  }
  for (std::size_t i = 0; i < kNormalsAtOnce; i += kLanes)
    hn::Store(hn::Sqrt(hn::Mul(hn::Set(d, -2.0), log_of(hn::Load(u, zero + i)))), d, radius + i);
  for (std::size_t i = 0; i < kNormalsAtOnce; i += kLanes) {
    const auto normal = hn::Mul(hn::Load(d, radius + i), cosine_of(hn::Load(u, one + i)));
    hn::StoreU(hn::DemoteTo(single, normal), single, out + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {

HWY_EXPORT(normals_of);

void random_normal_run(RandomKey key, std::uint64_t first, std::span<float> out) {
  std::array<float, kNormalsAtOnce> normals;
  for (std::size_t at = 0; at < out.size(); at += normals.size()) {
    HWY_DYNAMIC_DISPATCH(normals_of)(key, first + at, normals.data());
    std::copy_n(normals.begin(), std::min(normals.size(), out.size() - at),
                out.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

float random_normal_at(RandomKey key, std::uint64_t index) {
  float normal = 0;
  random_normal_run(key, index, {&normal, 1});
  return normal;
}

}  // namespace tessera
#endif
