// Philox on vectors: whole runs of the words that tessera/random.h defines one by one. Included once per
// vector target.
#if defined(TESSERA_BASE_PHILOX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_BASE_PHILOX_INL_H
#undef TESSERA_BASE_PHILOX_INL_H
#else
#define TESSERA_BASE_PHILOX_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/philox.h"

// Half-words are stored as the words that hold them.
static_assert(std::endian::native == std::endian::little);

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {

// Half-words of a mask that are drawn side by side: two vectors of f32.
constexpr std::size_t kHalfColumns = 2 * HWY_LANES(float);

// A key as every round adds it, in lanes of 64 bits.
struct PhiloxKeys {
  explicit PhiloxKeys(std::uint64_t key) : value(key) {
    auto key0 = static_cast<std::uint32_t>(key), key1 = static_cast<std::uint32_t>(key >> 32);
    for (auto& keys : round) {
      keys[0] = key0, keys[1] = key1;
      key0 += kPhiloxWeyl0;
      key1 += kPhiloxWeyl1;
    }
  }

  std::uint64_t value;
  std::uint64_t round[kPhiloxRounds][2];
};

#if HWY_TARGET == HWY_SCALAR
constexpr std::size_t kCounters = 1;

template <class Word>
void philox_block(const PhiloxKeys& keys, std::uint64_t counter, Word* words) {
  const auto four = philox4x32(keys.value, counter);
  std::memcpy(words, four.data(), sizeof(four));
}

inline void draw_half_columns(const PhiloxKeys& keys, const std::uint64_t (&counter)[kHalfColumns],
                              std::size_t count, std::uint16_t* out) {
  for (std::size_t c = 0; c < count; ++c) {
    for (std::size_t i = 0; i < kHalfColumns; ++i) {
      const auto words = philox4x32(keys.value, counter[i] + c);
      for (std::size_t h = 0; h < 8; ++h) out[(8 * c + h) * kHalfColumns + i] = half_of_words(words, h);
    }
  }
}
#else
// Counters that are worked on at once: two vectors, to hide the latency of the multiplications.
constexpr std::size_t kCounters = HWY_LANES(std::uint32_t);

using PhiloxLanes = hwy::HWY_NAMESPACE::ScalableTag<std::uint64_t>;
using PhiloxWords = hwy::HWY_NAMESPACE::ScalableTag<std::uint32_t>;

// word[w] = word w of two vectors of counters: of `even` in the even lanes, of `odd` in the odd ones.
HWY_INLINE void philox_pair(const PhiloxKeys& keys, hwy::HWY_NAMESPACE::Vec<PhiloxLanes> even,
                            hwy::HWY_NAMESPACE::Vec<PhiloxLanes> odd,
                            hwy::HWY_NAMESPACE::Vec<PhiloxWords> (&word)[4]) {
  namespace hn = hwy::HWY_NAMESPACE;
  const PhiloxLanes d;
  const PhiloxWords narrow;
  using V = hn::Vec<PhiloxLanes>;
  // Words are the lower halves of lanes. Multiplications read nothing else, so upper halves stay as they
  // come.
  const auto multiplier0 = hn::Set(narrow, kPhiloxMultiplier0),
             multiplier1 = hn::Set(narrow, kPhiloxMultiplier1);
  V c[2][4];
#pragma GCC unroll 2
  for (std::size_t k = 0; k < 2; ++k) {  // the first round, in which words 2 and 3 are zeros
    const V counter = k == 0 ? even : odd;
    const V p0 = hn::MulEven(hn::BitCast(narrow, counter), multiplier0);
    c[k][0] = hn::Xor(hn::ShiftRight<32>(counter), hn::Set(d, keys.round[0][0]));
    c[k][1] = hn::Zero(d);
    c[k][2] = hn::Xor(hn::ShiftRight<32>(p0), hn::Set(d, keys.round[0][1]));
    c[k][3] = p0;
  }
  for (int round = 1; round < kPhiloxRounds; ++round) {
    const V key0 = hn::Set(d, keys.round[round][0]), key1 = hn::Set(d, keys.round[round][1]);
#pragma GCC unroll 2
    for (std::size_t k = 0; k < 2; ++k) {
      const V p0 = hn::MulEven(hn::BitCast(narrow, c[k][0]), multiplier0);
      const V p1 = hn::MulEven(hn::BitCast(narrow, c[k][2]), multiplier1);
      c[k][0] = hn::Xor3(hn::ShiftRight<32>(p1), c[k][1], key0);
      c[k][2] = hn::Xor3(hn::ShiftRight<32>(p0), c[k][3], key1);
      c[k][1] = p1;
      c[k][3] = p0;
    }
  }
#pragma GCC unroll 4
  for (std::size_t w = 0; w < 4; ++w) {
    word[w] = hn::OddEven(hn::BitCast(narrow, hn::ShiftLeft<32>(c[1][w])), hn::BitCast(narrow, c[0][w]));
  }
}

// The words of kCounters counters in a row, or their half-words.
template <class Word>
void philox_block(const PhiloxKeys& keys, std::uint64_t counter, Word* words) {
  namespace hn = hwy::HWY_NAMESPACE;
  const PhiloxLanes d;
  const auto lane = hn::Iota(d, 0), even = hn::Add(hn::Add(lane, lane), hn::Set(d, counter));
  hn::Vec<PhiloxWords> word[4];
  philox_pair(keys, even, hn::Add(even, hn::Set(d, 1)), word);
  hn::StoreInterleaved4(word[0], word[1], word[2], word[3], PhiloxWords(),
                        reinterpret_cast<std::uint32_t*>(words));
}

// out[8 c + h][i] = half-word h of counter[i] + c, for c in [0, count).
inline void draw_half_columns(const PhiloxKeys& keys, const std::uint64_t (&counter)[kHalfColumns],
                              std::size_t count, std::uint16_t* out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const PhiloxLanes d;
  const hn::ScalableTag<std::uint16_t> halves;
  static_assert(kHalfColumns == 4 * HWY_LANES(std::uint64_t));
  // A lane of 64 bits ends up with the half-words of four columns.
  alignas(64) std::uint64_t start[4][kHalfColumns / 4];
  for (std::size_t i = 0; i < kHalfColumns; ++i) start[i % 4][i / 4] = counter[i];
  for (std::size_t c = 0; c < count; ++c, out += 8 * kHalfColumns) {
    const auto at = [&](std::size_t i) HWY_ATTR { return hn::Add(hn::Load(d, start[i]), hn::Set(d, c)); };
    hn::Vec<PhiloxWords> first[4], second[4];
    philox_pair(keys, at(0), at(2), first);
    philox_pair(keys, at(1), at(3), second);
#pragma GCC unroll 4
    for (std::size_t w = 0; w < 4; ++w) {
      hn::Store(hn::OddEven(hn::BitCast(halves, hn::ShiftLeft<16>(second[w])), hn::BitCast(halves, first[w])),
                halves, out + 2 * w * kHalfColumns);
      hn::Store(
          hn::OddEven(hn::BitCast(halves, second[w]), hn::BitCast(halves, hn::ShiftRight<16>(first[w]))),
          halves, out + (2 * w + 1) * kHalfColumns);
    }
  }
}
#endif

// Half-words of the elements [first, first + n), n <= kHalfRun; the first one at halves[result].
constexpr std::size_t kHalfRun = 1024;
constexpr std::size_t kHalfRoom = kHalfRun + 8 + 8 * kCounters;
inline std::size_t philox_halves(const PhiloxKeys& keys, std::uint64_t first, std::size_t n,
                                 std::uint16_t* halves) {
  const std::size_t skip = first % 8, needed = skip + n;
  for (std::size_t done = 0; done < needed; done += 8 * kCounters) {
    philox_block(keys, first / 8 + done / 8, halves + done);
  }
  return skip;
}

// out[r][i] = the half-word of element first[i] + r, for r in [0, rows). `out` is aligned to 64 bytes and has
// room for a counter's eight rows more, when `rows` is rounded up to a multiple of 8.
inline void philox_half_columns(const PhiloxKeys& keys, const std::uint64_t (&first)[kHalfColumns],
                                std::size_t rows, std::uint16_t* out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<std::uint16_t> d;
  alignas(64) std::uint16_t skip[kHalfColumns];
  std::uint64_t counter[kHalfColumns];
  for (std::size_t i = 0; i < kHalfColumns; ++i) {
    skip[i] = static_cast<std::uint16_t>(first[i] % 8);
    counter[i] = first[i] / 8;
  }
  const bool aligned = std::all_of(skip, skip + kHalfColumns, [](std::uint16_t s) { return s == 0; });
  const std::size_t count = (rows + (aligned ? 0 : 7) + 7) / 8;
  draw_half_columns(keys, counter, count, out);
  if (aligned) return;
  // Columns that begin within a counter move up, by 4, 2 and 1 rows as their distance has these bits.
  std::size_t left = 8 * count;
  for (std::size_t moved = 4; moved > 0; moved /= 2) {
    left -= moved;
    for (std::size_t v = 0; v < kHalfColumns; v += HWY_LANES(std::uint16_t)) {
      const auto bit = hn::Set(d, static_cast<std::uint16_t>(moved));
      const auto moves = hn::Eq(hn::And(hn::Load(d, skip + v), bit), bit);
      for (std::size_t r = 0; r < left; ++r) {
        std::uint16_t* to = out + r * kHalfColumns + v;
        hn::Store(hn::IfThenElse(moves, hn::Load(d, to + moved * kHalfColumns), hn::Load(d, to)), d, to);
      }
    }
  }
}

// Lanes of the f32 tag `d` whose half-words are not dropped.
template <class D>
HWY_INLINE hwy::HWY_NAMESPACE::Mask<D> kept_halves(D d, const std::uint16_t* halves, std::uint16_t dropped) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Rebind<std::int32_t, D> wide;
  const auto half = hn::PromoteTo(wide, hn::LoadU(hn::Rebind<std::uint16_t, D>(), halves));
  return hn::RebindMask(d, hn::Gt(half, hn::Set(wide, dropped - 1)));
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#endif
