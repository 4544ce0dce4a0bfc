// The Philox4x32-10 block function, inline so that kernels can draw whole blocks of elements in one loop. The
// functions of tessera/random.h are defined in terms of it.
#pragma once

#include <array>
#include <cstdint>

namespace tessera {

constexpr int kPhiloxRounds = 10;
constexpr std::uint32_t kPhiloxMultiplier0 = 0xD2511F53u, kPhiloxMultiplier1 = 0xCD9E8D57u;
constexpr std::uint32_t kPhiloxWeyl0 = 0x9E3779B9u, kPhiloxWeyl1 = 0xBB67AE85u;

inline std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                               std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t p0 = std::uint64_t{kPhiloxMultiplier0} * counter[0];
    const std::uint64_t p1 = std::uint64_t{kPhiloxMultiplier1} * counter[2];
    counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
               static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key[0] += kPhiloxWeyl0;
    key[1] += kPhiloxWeyl1;
  }
  return counter;
}

inline std::array<std::uint32_t, 4> philox4x32(std::uint64_t key, std::uint64_t counter) {
  return philox4x32(std::array<std::uint32_t, 4>{static_cast<std::uint32_t>(counter),
                                                 static_cast<std::uint32_t>(counter >> 32), 0u, 0u},
                    {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
}

// Uniform in [0, 1) from the upper 24 bits, so that every value is exact in float.
inline float uniform_from_word(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

// Half-word `half` of a counter's words, in the order of tessera/random.h.
inline std::uint16_t half_of_words(const std::array<std::uint32_t, 4>& words, std::uint64_t half) {
  return static_cast<std::uint16_t>(words[half / 2] >> half % 2 * 16);
}

// The finaliser of SplitMix64: a bijection in which every input bit changes every output bit.
inline std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

}  // namespace tessera
