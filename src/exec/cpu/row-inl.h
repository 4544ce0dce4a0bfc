// Reading and writing rows vector by vector. The last, partial vector goes through a small buffer, so that it
// runs the same vector code as the others. Included once per vector target.
#if defined(TESSERA_EXEC_CPU_ROW_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_EXEC_CPU_ROW_INL_H
#undef TESSERA_EXEC_CPU_ROW_INL_H
#else
#define TESSERA_EXEC_CPU_ROW_INL_H
#endif

#include "base/vector-inl.h"
#include "exec/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {

// Lanes [i, i + Lanes) of a row of n elements; lanes behind its end are `pad`.
template <class D, class T>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> read(D d, const T* row, std::int64_t i, std::int64_t n,
                                           hwy::HWY_NAMESPACE::TFromD<D> pad = 0) {
  namespace hn = hwy::HWY_NAMESPACE;
  using Lane = hn::TFromD<D>;
  constexpr auto kLanes = static_cast<std::int64_t>(HWY_LANES(Lane));
  if (HWY_LIKELY(i + kLanes <= n)) return load(d, row + i);
  alignas(64) Lane part[kLanes];
  for (std::int64_t k = 0; k < kLanes; ++k) part[k] = i + k < n ? widened<Lane>(row[i + k]) : pad;
  return hn::Load(d, part);
}

template <class D, class V, class T>
HWY_INLINE void write(D d, V x, T* row, std::int64_t i, std::int64_t n) {
  namespace hn = hwy::HWY_NAMESPACE;
  using Lane = hn::TFromD<D>;
  constexpr auto kLanes = static_cast<std::int64_t>(HWY_LANES(Lane));
  if (HWY_LIKELY(i + kLanes <= n)) return store(d, x, row + i);
  alignas(64) Lane part[kLanes];
  hn::Store(x, d, part);
  for (std::int64_t k = 0; i + k < n; ++k) row[i + k] = narrowed<T>(part[k]);
}

// f(i, sums) for every vector position i of a row of n elements, with four sums in turn, which are then added
// up.
template <class D, class F>
HWY_INLINE hwy::HWY_NAMESPACE::TFromD<D> sum_row(D d, std::int64_t n, F f) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr auto kLanes = static_cast<std::int64_t>(HWY_LANES(hn::TFromD<D>));
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    s0 = hn::Add(s0, f(i));
    s1 = hn::Add(s1, f(i + kLanes));
    s2 = hn::Add(s2, f(i + 2 * kLanes));
    s3 = hn::Add(s3, f(i + 3 * kLanes));
  }
  for (; i < n; i += kLanes) s0 = hn::Add(s0, f(i));
  return sum_lanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

// The maximum of a row of f32 or bf16, at least the lowest finite float; NaN is left to whoever computes with
// the row.
template <class D, class T>
HWY_INLINE float max_row(D d, const T* row, std::int64_t n) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr auto kLanes = static_cast<std::int64_t>(HWY_LANES(float));
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  auto m0 = hn::Set(d, kLowest), m1 = m0;
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    m0 = hn::Max(load(d, row + i), m0);
    m1 = hn::Max(load(d, row + i + kLanes), m1);
  }
  for (; i < n; i += kLanes) m0 = hn::Max(read(d, row, i, n, kLowest), m0);
  alignas(64) float lane[kLanes];
  hn::Store(hn::Max(m0, m1), d, lane);
  float best = kLowest;
  for (float x : lane) best = x > best ? x : best;
  return best;
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#endif
