// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011).
// A value is a pure function of (key, index), so shards of any mesh draw the same numbers. Pure functions:
// any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tessera {

struct RandomKey {
  std::uint64_t value = 0;
};

// The key of an op: a hash of the seed, the op's full name and the step (0 for initial values).
RandomKey random_key(std::uint64_t seed, std::string_view name, std::int64_t step);

// Four 32-bit words for one counter.
std::array<std::uint32_t, 4> philox(RandomKey key, std::uint64_t counter);

// Uniform in [0, 1) with 24 bits; element `index` of the stream: word index % 4 of counter index / 4.
float random_uniform_at(RandomKey key, std::uint64_t index);

// Standard normal (Box-Muller on the words of counter `index`).
float random_normal_at(RandomKey key, std::uint64_t index);

// Standard normal conditioned on |x| <= 2 (inverse of the distribution function).
float random_truncated_normal_at(RandomKey key, std::uint64_t index);

// The mask of dropout on a tensor: `index` is an element's row-major index within the whole tensor (counted
// over the dimensions along which the mask varies), wherever a shard begins. An element takes 16 bits,
// half-word index % 8 of counter index / 8: half-word h is the lower (h even) or the upper (h odd) half of
// word h / 2.
std::uint16_t random_half_at(RandomKey key, std::uint64_t index);

// A rate of dropout as masks have it: the nearest multiple of 2^-16, at most 1 - 2^-16. Rates below
// 2^-17 drop nothing.
struct DropoutRate {
  DropoutRate() = default;
  explicit DropoutRate(double rate);  // REQUIRES 0 <= rate < 1

  bool drops(std::uint16_t half) const { return half < dropped; }
  // Kept values are multiplied by 1 over the probability that masks keep one, not by 1 / (1 - rate), so that
  // expected values stay what they were.
  double factor() const { return 65536.0 / (65536 - dropped); }

  std::uint16_t dropped = 0;  // of the 65,536 half-words: those below it
};

// A keyed permutation of [0, size): a Feistel network with cycle walking. REQUIRES 0 <= index < size.
std::uint64_t random_permutation_at(RandomKey key, std::uint64_t index, std::uint64_t size);

}  // namespace tessera
