// Counter-based random numbers: the published test vectors, fixed values, distributions and permutations.
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/philox.h"
#include "base/random_runs.h"
#include "tessera/error.h"
#include "tessera/random.h"

namespace tessera {
namespace {

using Words = std::array<std::uint32_t, 4>;

// The file kat_vectors of the authors' Random123 distribution.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32(Words{}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32(Words{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32(Words{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  EXPECT_EQ(philox(RandomKey{0}, 0), philox4x32(Words{}, {0, 0}));
  const std::uint64_t k = 0x0123456789abcdefull, c = 0xfedcba9876543210ull;
  EXPECT_EQ(philox(RandomKey{k}, c),
            philox4x32(Words{0x76543210, 0xfedcba98, 0, 0}, {0x89abcdef, 0x01234567}));
}

// Checkpoints and runs of older versions depend on these bits.
TEST(Random, ValuesAreFrozen) {
  const RandomKey key = random_key(42, "encoder/layer_0/dropout", 7);
  EXPECT_EQ(key.value, 0x92e57d4cad4ef7edull);
  EXPECT_EQ(random_uniform_at(key, 5), 0x1.91c53ap-1f);
  EXPECT_EQ(random_normal_at(key, 5), 0x1.a481bep-2f);
  EXPECT_EQ(random_truncated_normal_at(key, 5), 0x1.fac49ap-2f);
  EXPECT_EQ(random_permutation_at(key, 5, 1000), 878u);
}

// Against the libraries' functions, whose last bits differ from machine to machine.
TEST(Random, NormalsAreThoseOfBoxAndMuller) {
  const RandomKey key = random_key(std::random_device()(), "normals", 0);
  std::vector<float> normals(1000003);
  random_normal_run(key, 5, normals);
  int rounded_otherwise = 0;
  for (std::size_t i = 0; i < normals.size(); ++i) {
    const auto words = philox(key, i + 5);
    const double radius = std::sqrt(-2 * std::log((words[0] + 1.0) * 0x1p-32));
    const auto want = static_cast<float>(radius * std::cos(2 * std::numbers::pi * (words[1] * 0x1p-32)));
    if (normals[i] == want) continue;
    ++rounded_otherwise;
    ASSERT_NEAR(normals[i], want, 1.2e-7 * std::abs(want) + 1e-15) << key.value << " at " << i;
  }
  EXPECT_LE(rounded_otherwise, 20) << key.value;
}

TEST(Random, NormalsDoNotDependOnTheProcessor) {
  const RandomKey key = random_key(3, "normals", 0);
  std::vector<float> normals(100), others(100);
  random_normal_run(key, 1000, normals);
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    random_normal_run(key, 1000, others);
    EXPECT_EQ(others, normals) << hwy::TargetName(target);
    for (std::size_t i = 0; i < others.size(); ++i) EXPECT_EQ(random_normal_at(key, 1000 + i), normals[i]);
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(Random, KeysOfNeighboursDiffer) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    for (const char* name : {"", "a", "b", "ab", "ba", "layer_1/w", "layer_2/w"}) {
      for (std::int64_t step = -1; step < 10; ++step) keys.insert(random_key(seed, name, step).value);
    }
  }
  EXPECT_EQ(keys.size(), 10u * 7 * 11);
}

struct Moments {
  double mean = 0, variance = 0, skew = 0, lag = 0, min = 1e9, max = -1e9;
};

template <typename F>
Moments moments(F value, std::uint64_t n) {
  std::vector<double> x(n);
  for (std::uint64_t i = 0; i < n; ++i) x[i] = value(i);
  Moments m;
  for (double v : x) m.mean += v / static_cast<double>(n);
  for (std::uint64_t i = 0; i < n; ++i) {
    const double d = x[i] - m.mean;
    m.variance += d * d / static_cast<double>(n);
    m.skew += d * d * d / static_cast<double>(n);
    if (i > 0) m.lag += d * (x[i - 1] - m.mean) / static_cast<double>(n);
    m.min = std::min(m.min, x[i]);
    m.max = std::max(m.max, x[i]);
  }
  return m;
}

constexpr std::uint64_t kCount = 400'000;  // standard error of a mean: 0.0016 sigma; bounds are 5 of them

TEST(Random, Uniform) {
  const RandomKey key = random_key(1, "u", 0);
  const Moments m = moments([&](auto i) { return random_uniform_at(key, i); }, kCount);
  EXPECT_NEAR(m.mean, 0.5, 0.008 / std::sqrt(12.0));
  EXPECT_NEAR(m.variance, 1 / 12.0, 0.001);
  EXPECT_NEAR(m.lag, 0, 0.008 / 12);
  EXPECT_GE(m.min, 0);
  EXPECT_LT(m.max, 1);
  EXPECT_EQ(random_uniform_at(key, 6), uniform_from_word(philox(key, 1)[2]));
  EXPECT_EQ(uniform_from_word(~0u), 1 - 0x1p-24f);
}

TEST(Random, Normal) {
  const RandomKey key = random_key(1, "n", 0);
  const Moments m = moments([&](auto i) { return random_normal_at(key, i); }, kCount);
  EXPECT_NEAR(m.mean, 0, 0.008);
  EXPECT_NEAR(m.variance, 1, 0.012);
  EXPECT_NEAR(m.skew, 0, 0.03);
  EXPECT_NEAR(m.lag, 0, 0.008);
  EXPECT_LT(m.min, -4);
  EXPECT_GT(m.max, 4);
}

double truncated_distribution(double x) {
  const double below = std::erfc(std::sqrt(2.0)) / 2;
  return (std::erfc(-x / std::sqrt(2.0)) / 2 - below) / (1 - 2 * below);
}

// Exact to the rounding of the uniform and of float: the distribution function of the value is the uniform it
// came from.
TEST(Random, TruncatedNormalInvertsItsDistribution) {
  const RandomKey key = random_key(1, "t", 0);
  float least = 0, greatest = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const float x = random_truncated_normal_at(key, i);
    least = std::min(least, x);
    greatest = std::max(greatest, x);
    ASSERT_NEAR(truncated_distribution(x), (philox(key, i)[0] + 0.5) * 0x1p-32, 4e-8) << i;
  }
  EXPECT_GE(least, -2.0f);
  EXPECT_LE(greatest, 2.0f);
  EXPECT_LT(least, -1.99f);
  EXPECT_GT(greatest, 1.99f);
}

TEST(Random, SameBitsFromEveryThread) {
  const RandomKey key = random_key(9, "x", 3);
  std::vector<float> forward(4000), threads(4000);
  for (std::uint64_t i = 0; i < 4000; ++i) forward[i] = random_normal_at(key, i);
  std::vector<std::thread> pool;
  for (std::uint64_t t = 0; t < 3; ++t) {
    pool.emplace_back([&, t] {
      for (std::uint64_t i = 4000; i-- > 0;) {
        if (i % 3 == t) threads[i] = random_normal_at(key, i);
      }
    });
  }
  for (auto& t : pool) t.join();
  EXPECT_EQ(forward, threads);
}

TEST(Permutation, IsABijectionOfEverySize) {
  for (std::uint64_t size : {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 100, 255, 256, 257, 1000, 65537, 138864}) {
    for (std::uint64_t k = 0; k < 3; ++k) {
      std::vector<bool> seen(size, false);
      for (std::uint64_t i = 0; i < size; ++i) {
        const std::uint64_t p = random_permutation_at(random_key(k, "p", 0), i, size);
        ASSERT_LT(p, size);
        ASSERT_FALSE(seen[p]) << size;
        seen[p] = true;
      }
    }
  }
  EXPECT_THROW(random_permutation_at(RandomKey{1}, 3, 3), InternalError);
}

TEST(Permutation, HugeSizesStayBelow) {
  for (std::uint64_t size : {(std::uint64_t{1} << 63) + 1, ~std::uint64_t{0}}) {
    for (std::uint64_t i : {std::uint64_t{0}, std::uint64_t{1}, size - 1}) {
      EXPECT_LT(random_permutation_at(RandomKey{5}, i, size), size);
    }
  }
}

// Over many keys every item comes to every place about equally often, and neighbours do not stay together.
// Tiny sizes are the hard ones: their halves have one or two bits.
TEST(Permutation, IsEven) {
  constexpr std::uint64_t kKeys = 50'000;
  for (std::uint64_t size : {3, 5, 6, 8}) {
    std::vector<std::vector<double>> count(size, std::vector<double>(size, 0));
    double neighbours = 0;
    for (std::uint64_t k = 0; k < kKeys; ++k) {
      const RandomKey key = random_key(k, "even", 0);
      for (std::uint64_t i = 0; i < size; ++i) ++count[i][random_permutation_at(key, i, size)];
      neighbours += random_permutation_at(key, 1, size) == random_permutation_at(key, 0, size) + 1;
    }
    const double expected = static_cast<double>(kKeys) / static_cast<double>(size);
    for (const auto& row : count) {
      for (double c : row) EXPECT_NEAR(c, expected, 5 * std::sqrt(expected)) << size;
    }
    EXPECT_NEAR(neighbours, expected, 5 * std::sqrt(expected)) << size;
  }
}

}  // namespace
}  // namespace tessera
