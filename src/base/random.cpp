// Random numbers as pure functions of (key, index). Transcendental functions run in double and are rounded
// once to float, and the build forbids contraction here, so that a value does not depend on the caller's
// loop.
#include "tessera/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "base/check.h"
#include "base/philox.h"
#include "base/random_runs.h"

namespace tessera {
namespace {

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15ull;

std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325ull;
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001B3ull;
  return hash;
}

double polynomial(std::span<const double> coefficients, double x) {
  double value = 0;
  for (double c : coefficients) value = value * x + c;
  return value;
}

// Quantile of the standard normal: Wichura, "Algorithm AS 241", Applied Statistics 37 (1988), routine PPND16.
// Only its central region and its near tail: |q| stays below 0.4773 where |x| <= 2.
double normal_quantile_within_2(double p) {
  constexpr double kA[] = {2509.0809287301226727, 33430.575583588128105, 67265.770927008700853,
                           45921.953931549871457, 13731.693765509461125, 1971.5909503065514427,
                           133.14166789178437745, 3.387132872796366608};
  constexpr double kB[] = {
      5226.495278852545925,  28729.085735721942674, 39307.89580009271061,  21213.794301586595867,
      5394.1960214247511077, 687.1870074920579083,  42.313330701600911252, 1.0};
  constexpr double kC[] = {7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177,
                           1.27045825245236838258,   3.64784832476320460504,   5.7694972214606914055,
                           4.6303378461565452959,    1.42343711074968357734};
  constexpr double kD[] = {
      1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
      0.68976733498510000455,    1.6763848301838038494,   2.05319162663775882187,   1.0};
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * polynomial(kA, r) / polynomial(kB, r);
  }
  const double r = std::sqrt(-std::log(q < 0 ? p : 1 - p)) - 1.6;
  return std::copysign(polynomial(kC, r) / polynomial(kD, r), q);
}

// Word 0 of a block of counters, all rounds of all counters side by side: loops without branches or
// dependences from one counter to the next.
constexpr std::size_t kBlock = 64;
struct WordBlock {
  WordBlock(RandomKey key, std::uint64_t first) {
    std::array<std::uint32_t, kBlock> one, second{}, third{};
    for (std::size_t i = 0; i < kBlock; ++i) {
      zero[i] = static_cast<std::uint32_t>(first + i);
      one[i] = static_cast<std::uint32_t>((first + i) >> 32);
    }
    auto key0 = static_cast<std::uint32_t>(key.value), key1 = static_cast<std::uint32_t>(key.value >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      for (std::size_t i = 0; i < kBlock; ++i) {
        const std::uint64_t p0 = std::uint64_t{kPhiloxMultiplier0} * zero[i];
        const std::uint64_t p1 = std::uint64_t{kPhiloxMultiplier1} * second[i];
        zero[i] = static_cast<std::uint32_t>(p1 >> 32) ^ one[i] ^ key0;
        second[i] = static_cast<std::uint32_t>(p0 >> 32) ^ third[i] ^ key1;
        one[i] = static_cast<std::uint32_t>(p1);
        third[i] = static_cast<std::uint32_t>(p0);
      }
      key0 += kPhiloxWeyl0;
      key1 += kPhiloxWeyl1;
    }
  }
  std::array<std::uint32_t, kBlock> zero;
};

float truncated_normal_of(std::uint32_t word) {
  constexpr double kBelow = 0.022750131948179207200;  // distribution function of the standard normal at -2
  const double u = (word + 0.5) * 0x1p-32;
  const double x = normal_quantile_within_2(kBelow + u * (1 - 2 * kBelow));
  return static_cast<float>(std::clamp(x, -2.0, 2.0));
}

}  // namespace

RandomKey random_key(std::uint64_t seed, std::string_view name, std::int64_t step) {
  std::uint64_t hash = mix64(seed + kGolden);
  hash = mix64((hash ^ fnv1a(name)) + kGolden);
  hash = mix64((hash ^ static_cast<std::uint64_t>(step)) + kGolden);
  return {hash};
}

std::array<std::uint32_t, 4> philox(RandomKey key, std::uint64_t counter) {
  return philox4x32(key.value, counter);
}

float random_uniform_at(RandomKey key, std::uint64_t index) {
  return uniform_from_word(philox(key, index / 4)[index % 4]);
}

float random_truncated_normal_at(RandomKey key, std::uint64_t index) {
  return truncated_normal_of(philox(key, index)[0]);
}

std::uint16_t random_half_at(RandomKey key, std::uint64_t index) {
  return half_of_words(philox(key, index / 8), index % 8);
}

DropoutRate::DropoutRate(double rate) {
  TESSERA_ASSERT(rate >= 0 && rate < 1, "the dropout rate {} is not in [0, 1)", rate);
  dropped = static_cast<std::uint16_t>(std::min(std::round(rate * 65536), 65535.0));
}

void random_uniform_run(RandomKey key, std::uint64_t first, std::span<float> out) {
  std::array<std::uint32_t, 4> words{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t index = first + i;
    if (i == 0 || index % 4 == 0) words = philox4x32(key.value, index / 4);
    out[i] = uniform_from_word(words[index % 4]);
  }
}

void random_truncated_normal_run(RandomKey key, std::uint64_t first, std::span<float> out) {
  for (std::size_t at = 0; at < out.size(); at += kBlock) {
    const WordBlock words(key, first + at);
    const std::size_t n = std::min(kBlock, out.size() - at);
    for (std::size_t i = 0; i < n; ++i) out[at + i] = truncated_normal_of(words.zero[i]);
  }
}

std::uint64_t random_permutation_at(RandomKey key, std::uint64_t index, std::uint64_t size) {
  TESSERA_ASSERT(index < size, "permutation index {} is not below the size {}", index, size);
  // Two halves of together just enough bits; every round adds a hash of one half to the other, which is a
  // bijection whatever the widths. Values past the end walk on along their cycle: less than 2 walks on
  // average. With halves of one or two bits, fewer than 16 rounds leave a measurable preference for some
  // orders.
  const int bits = std::bit_width(size - 1);
  const int low_bits = (bits + 1) / 2;
  const std::uint64_t low_mask = (std::uint64_t{1} << low_bits) - 1;
  const std::uint64_t high_mask = (std::uint64_t{1} << (bits - low_bits)) - 1;
  do {
    std::uint64_t low = index & low_mask, high = index >> low_bits;
    for (std::uint64_t round = 0; round < 24; round += 2) {
      low ^= mix64(key.value + kGolden * (2 * high + 1) + round) & low_mask;
      high ^= mix64(key.value + kGolden * (2 * low + 1) + round + 1) & high_mask;
    }
    index = high << low_bits | low;
  } while (index >= size);
  return index;
}

}  // namespace tessera
