// Philox on vectors: whole runs of the words that tessera/random.h defines one by one. Included once per
// vector target.
#if defined(TESSERA_BASE_PHILOX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_BASE_PHILOX_INL_H
#undef TESSERA_BASE_PHILOX_INL_H
#else
#define TESSERA_BASE_PHILOX_INL_H
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "base/philox.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
constexpr std::size_t kCounters = 1;

inline void philox_block(std::uint64_t key, std::uint64_t counter, std::uint32_t* words) {
  const auto four = philox4x32(key, counter);
  for (std::size_t w = 0; w < 4; ++w) words[w] = four[w];
}
#else
// Counters that are worked on at once: two vectors, to hide the latency of the multiplications.
constexpr std::size_t kCounters = 2 * HWY_LANES(std::uint64_t);

// words[4 * i + w] = word w of counter + i. Lanes of 64 bits hold one 32-bit word each; even lanes take the
// first half of a vector's counters and odd ones the second, so that two interleavings put the words in
// order.
inline void philox_block(std::uint64_t key, std::uint64_t counter, std::uint32_t* words) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<std::uint64_t> d;
  const hn::ScalableTag<std::uint32_t> half;
  constexpr std::size_t kLanes = HWY_LANES(std::uint64_t);
  using V = hn::Vec<decltype(d)>;
  alignas(64) std::uint64_t order[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) order[i] = i % 2 * (kLanes / 2) + i / 2;
  const V low = hn::Set(d, 0xffffffffull);
  const V multiplier0 = hn::Set(d, kPhiloxMultiplier0), multiplier1 = hn::Set(d, kPhiloxMultiplier1);
  V c0[2], c1[2], c2[2], c3[2];
#pragma GCC unroll 2
  for (std::size_t k = 0; k < 2; ++k) {
    const V index = hn::Add(hn::Load(d, order), hn::Set(d, counter + k * kLanes));
    c0[k] = hn::And(index, low);
    c1[k] = hn::ShiftRight<32>(index);
    c2[k] = c3[k] = hn::Zero(d);
  }
  auto key0 = static_cast<std::uint32_t>(key), key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const V k0 = hn::Set(d, key0), k1 = hn::Set(d, key1);
#pragma GCC unroll 2
    for (std::size_t k = 0; k < 2; ++k) {
      const V p0 = hn::MulEven(hn::BitCast(half, c0[k]), hn::BitCast(half, multiplier0));
      const V p1 = hn::MulEven(hn::BitCast(half, c2[k]), hn::BitCast(half, multiplier1));
      c0[k] = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1[k]), k0);
      c2[k] = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3[k]), k1);
      c1[k] = hn::And(p1, low);
      c3[k] = hn::And(p0, low);
    }
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  auto* to = reinterpret_cast<std::uint64_t*>(words);
#pragma GCC unroll 2
  for (std::size_t k = 0; k < 2; ++k, to += 2 * kLanes) {
    const V first = hn::Or(c0[k], hn::ShiftLeft<32>(c1[k])), second = hn::Or(c2[k], hn::ShiftLeft<32>(c3[k]));
    hn::StoreU(hn::InterleaveLower(d, first, second), d, to);
    hn::StoreU(hn::InterleaveUpper(d, first, second), d, to + kLanes);
  }
}
#endif

// Words of the elements [first, first + n), n <= kWordRun; the first one at words[result].
constexpr std::size_t kWordRun = 1024;
constexpr std::size_t kWordRoom = kWordRun + 4 + 4 * kCounters;
inline std::size_t philox_words(std::uint64_t key, std::uint64_t first, std::size_t n, std::uint32_t* words) {
  const std::size_t skip = first % 4, needed = skip + n;
  for (std::size_t done = 0; done < needed; done += 4 * kCounters) {
    philox_block(key, first / 4 + done / 4, words + done);
  }
  return skip;
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#endif
