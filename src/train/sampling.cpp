// Sampling by the inverse of the distribution function, tokens in falling order of probability.
#include "train/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tessera/random.h"

namespace tessera {
namespace {

constexpr double kTie = 1e-5;

// The candidates that top-k and top-p leave, in falling order of probability (the lower id first on ties),
// with weights.
struct Kept {
  std::vector<std::int32_t> tokens;
  std::vector<double> weights;
  bool near_tie = false;
};

template <class T>
std::vector<std::int32_t> most_probable(std::span<const T> values, std::int64_t top_k, bool& near_tie) {
  std::vector<std::int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto before = [&](std::int32_t a, std::int32_t b) {
    const T x = values[static_cast<std::size_t>(a)], y = values[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const auto k = static_cast<std::size_t>(top_k);
  if (top_k == 0 || k >= order.size()) {
    std::sort(order.begin(), order.end(), before);
    return order;
  }
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k) + 1, order.end(), before);
  const auto value = [&](std::size_t i) {
    return static_cast<double>(values[static_cast<std::size_t>(order[i])]);
  };
  near_tie = value(k - 1) - value(k) < kTie;
  order.resize(k);
  return order;
}

template <class T>
Kept keep(std::span<const T> values, const DecodeConfig& options) {
  Kept kept;
  kept.tokens = most_probable(values, options.top_k, kept.near_tie);
  const double top = static_cast<double>(values[static_cast<std::size_t>(kept.tokens.front())]);
  double total = 0;
  for (const std::int32_t token : kept.tokens) {
    const double value = static_cast<double>(values[static_cast<std::size_t>(token)]);
    kept.weights.push_back(std::exp((value - top) / options.temperature));
    total += kept.weights.back();
  }
  if (options.top_p >= 1) return kept;
  // The fewest tokens that hold the probability top_p.
  double sum = 0;
  std::size_t count = 0;
  while (count < kept.tokens.size() && sum < options.top_p * total) sum += kept.weights[count++];
  const double margin = std::min(std::abs(sum / total - options.top_p),
                                 std::abs((sum - kept.weights[count - 1]) / total - options.top_p));
  kept.near_tie = kept.near_tie || margin < kTie;
  kept.tokens.resize(count);
  kept.weights.resize(count);
  return kept;
}

template <class T>
Sampled draw(std::span<const T> values, const DecodeConfig& options, double uniform) {
  const Kept kept = keep(values, options);
  const double total = std::accumulate(kept.weights.begin(), kept.weights.end(), 0.0);
  double sum = 0;
  std::size_t chosen = kept.tokens.size() - 1;
  double margin = 1;
  for (std::size_t i = 0; i < kept.tokens.size(); ++i) {
    const double begin = sum / total;
    sum += kept.weights[i];
    if (uniform >= sum / total && i + 1 < kept.tokens.size()) continue;
    chosen = i;
    margin = i == 0 ? 1 : uniform - begin;
    if (i + 1 < kept.tokens.size()) margin = std::min(margin, sum / total - uniform);
    break;
  }
  const std::int32_t token = kept.tokens[chosen];
  return {token, static_cast<double>(values[static_cast<std::size_t>(token)]),
          kept.near_tie || margin < kTie};
}

}  // namespace

Sampled sample(std::span<const float> log_probabilities, const DecodeConfig& options, double uniform) {
  return draw(log_probabilities, options, uniform);
}

Sampled sample(std::span<const double> log_probabilities, const DecodeConfig& options, double uniform) {
  return draw(log_probabilities, options, uniform);
}

double sampling_uniform(std::uint64_t seed, std::int64_t sentence, std::int64_t position) {
  const RandomKey key = random_key(seed, "decode/sample", sentence);
  return static_cast<double>(random_uniform_at(key, static_cast<std::uint64_t>(position)));
}

}  // namespace tessera
