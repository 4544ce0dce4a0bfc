// Beam search against an enumeration of all outputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tessera/decode.h"

namespace tessera {
namespace {

constexpr std::int32_t kWords = 6;
constexpr std::int32_t kEnd = 1;

using Tokens = std::vector<std::int32_t>;

// Log probabilities of the next word, made up from the whole prefix and the sentence.
std::vector<double> next(std::int64_t sentence, const Tokens& prefix) {
  double state = 1.0 + static_cast<double>(sentence);
  for (const std::int32_t token : prefix) state = std::fmod(state * 7.31 + 1.7 * token + 0.3, 19.0);
  std::vector<double> logits, result;
  double total = 0;
  for (std::int32_t w = 0; w < kWords; ++w) {
    logits.push_back(2.5 * std::sin(state * (w + 1)));
    total += std::exp(logits.back());
  }
  for (const double logit : logits) result.push_back(logit - std::log(total));
  return result;
}

double penalty(std::size_t length, double alpha) {
  return std::pow((5.0 + static_cast<double>(length)) / 6, alpha);
}

struct Best {
  Tokens tokens;
  double score = -INFINITY;
};

// The best of all finished outputs of at most `limit` tokens, the end included.
Best brute_force(std::int64_t sentence, std::int64_t limit, double alpha) {
  Best best;
  const std::function<void(Tokens&, double)> visit = [&](Tokens& prefix, double so_far) {
    const std::vector<double> p = next(sentence, prefix);
    const double score = (so_far + p[kEnd]) / penalty(prefix.size() + 1, alpha);
    if (score > best.score) best = {prefix, score};
    if (static_cast<std::int64_t>(prefix.size()) + 1 >= limit) return;
    for (std::int32_t w = 0; w < kWords; ++w) {
      if (w == kEnd) continue;
      prefix.push_back(w);
      visit(prefix, so_far + p[static_cast<std::size_t>(w)]);
      prefix.pop_back();
    }
  };
  Tokens prefix;
  visit(prefix, 0);
  return best;
}

// Runs the search, keeping each row's prefix as its state. Returns the number of steps.
int run(BeamSearch& search, std::int64_t sentences, std::int64_t beams) {
  std::vector<Tokens> prefix(static_cast<std::size_t>(sentences * beams));
  int steps = 0;
  for (; !search.done(); ++steps) {
    std::vector<std::vector<BeamSearch::Candidate>> candidates;
    for (std::size_t row = 0; row < prefix.size(); ++row) {
      if (steps > 0) prefix[row].push_back(search.tokens()[row]);
      const std::vector<double> p = next(static_cast<std::int64_t>(row) / beams, prefix[row]);
      std::vector<BeamSearch::Candidate> best;
      for (std::int32_t w = 0; w < kWords; ++w) best.push_back({w, p[static_cast<std::size_t>(w)]});
      std::stable_sort(best.begin(), best.end(),
                       [](const auto& a, const auto& b) { return a.log_probability > b.log_probability; });
      best.resize(static_cast<std::size_t>(std::min<std::int64_t>(2 * beams, kWords)));
      candidates.push_back(best);
    }
    search.advance(candidates);
    const std::vector<Tokens> old = prefix;
    for (std::size_t row = 0; row < prefix.size(); ++row)
      prefix[row] = old[static_cast<std::size_t>(search.rows()[row])];
  }
  return steps;
}

TEST(BeamSearch, WideBeamsEqualBruteForce) {
  for (const double alpha : {0.0, 0.6, 1.0}) {
    for (const bool early : {true, false}) {
      const std::vector<std::int64_t> limits{5, 3, 4, 1};
      const std::int64_t beams = 800;  // more than there are prefixes: the search is exhaustive
      BeamSearch search(
          {.beams = beams, .length_penalty = alpha, .end = kEnd, .limits = limits, .stop_early = early});
      run(search, 4, beams);
      for (std::int64_t s = 0; s < 4; ++s) {
        const Best expected = brute_force(s, limits[static_cast<std::size_t>(s)], alpha);
        const BeamSearch::Hypothesis found = search.best(s);
        EXPECT_TRUE(found.finished);
        EXPECT_EQ(found.tokens, expected.tokens) << "sentence " << s << ", alpha " << alpha;
        EXPECT_NEAR(found.score, expected.score, 1e-12);
      }
    }
  }
}

TEST(BeamSearch, StoppingEarlyChangesNoResult) {
  for (const std::int64_t beams : {1, 2, 3, 4}) {
    const std::vector<std::int64_t> limits(8, 12);
    BeamSearch early({.beams = beams, .end = kEnd, .limits = limits, .stop_early = true});
    BeamSearch late({.beams = beams, .end = kEnd, .limits = limits, .stop_early = false});
    const int early_steps = run(early, 8, beams), late_steps = run(late, 8, beams);
    EXPECT_LE(early_steps, late_steps);
    EXPECT_EQ(late_steps, 12);
    for (std::int64_t s = 0; s < 8; ++s)
      EXPECT_EQ(early.best(s).tokens, late.best(s).tokens) << beams << " " << s;
  }
}

TEST(BeamSearch, BeamOfOneIsGreedyUntilTheEnd) {
  BeamSearch search({.beams = 1, .length_penalty = 0, .end = kEnd, .limits = {10}});
  run(search, 1, 1);
  Tokens greedy;
  double sum = 0;
  while (true) {
    const std::vector<double> p = next(0, greedy);
    const auto best = static_cast<std::int32_t>(std::max_element(p.begin(), p.end()) - p.begin());
    sum += p[static_cast<std::size_t>(best)];
    if (best == kEnd || greedy.size() == 9) break;
    greedy.push_back(best);
  }
  EXPECT_GE(search.best(0).score, sum - 1e-12);
}

}  // namespace
}  // namespace tessera
