// Beam search as host logic (Mesh-TensorFlow's rules: 2 * beams candidates, finished ones kept apart, early
// stop).
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "tessera/decode.h"

namespace tessera {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// A continuation of one of the rows of a sentence.
struct Extension {
  std::size_t beam = 0;
  std::int32_t token = 0;
  double log_probability = 0;
};

}  // namespace

BeamSearch::BeamSearch(Options options) : options_(std::move(options)) {
  TESSERA_CHECK(options_.beams >= 1, "beam search: {} beams; at least 1 is needed", options_.beams);
  const auto beams = static_cast<std::size_t>(options_.beams);
  sentences_.resize(options_.limits.size());
  for (std::size_t s = 0; s < sentences_.size(); ++s) {
    sentences_[s].alive.resize(beams);
    // Only one row counts at first: all others would repeat it.
    for (std::size_t b = 1; b < beams; ++b) sentences_[s].alive[b].log_probability = kNever;
    sentences_[s].done = options_.limits[s] < 1;
  }
  tokens_.assign(sentences_.size() * beams, options_.start);
  rows_.resize(tokens_.size());
  for (std::size_t row = 0; row < rows_.size(); ++row) rows_[row] = static_cast<std::int32_t>(row);
}

std::int64_t BeamSearch::row_count() const {
  return static_cast<std::int64_t>(tokens_.size());
}

bool BeamSearch::reordered() const {
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    if (rows_[row] != static_cast<std::int32_t>(row)) return true;
  }
  return false;
}

bool BeamSearch::done() const {
  return std::all_of(sentences_.begin(), sentences_.end(), [](const Sentence& s) { return s.done; });
}

double BeamSearch::penalty(std::int64_t length) const {
  return std::pow((5.0 + static_cast<double>(length)) / 6.0, options_.length_penalty);
}

void BeamSearch::advance(const std::vector<std::vector<Candidate>>& candidates) {
  TESSERA_CHECK(candidates.size() == tokens_.size(), "beam search: candidates of {} rows, but there are {}",
                candidates.size(), tokens_.size());
  ++length_;
  for (std::size_t row = 0; row < rows_.size(); ++row) rows_[row] = static_cast<std::int32_t>(row);
  for (std::size_t s = 0; s < sentences_.size(); ++s) {
    if (!sentences_[s].done) advance_sentence(s, candidates);
  }
}

void BeamSearch::advance_sentence(std::size_t s, const std::vector<std::vector<Candidate>>& candidates) {
  Sentence& sentence = sentences_[s];
  const auto beams = static_cast<std::size_t>(options_.beams);
  std::vector<Extension> extensions;
  for (std::size_t beam = 0; beam < beams; ++beam) {
    const double so_far = sentence.alive[beam].log_probability;
    if (so_far == kNever) continue;
    for (const Candidate& c : candidates[s * beams + beam])
      extensions.push_back({beam, c.token, so_far + c.log_probability});
  }
  const auto better = [](const Extension& a, const Extension& b) {
    return a.log_probability > b.log_probability;
  };
  std::stable_sort(extensions.begin(), extensions.end(), better);
  if (extensions.size() > 2 * beams) extensions.resize(2 * beams);

  std::vector<Hypothesis> alive;
  std::vector<std::size_t> origin;
  for (const Extension& e : extensions) {
    Hypothesis h = sentence.alive[e.beam];
    h.log_probability = e.log_probability;
    h.score = e.log_probability / penalty(length_);
    if (e.token == options_.end) {
      h.finished = true;
      sentence.finished.push_back(std::move(h));
    } else if (alive.size() < beams) {
      h.tokens.push_back(e.token);
      alive.push_back(std::move(h));
      origin.push_back(e.beam);
    }
  }
  std::stable_sort(sentence.finished.begin(), sentence.finished.end(),
                   [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
  if (sentence.finished.size() > beams) sentence.finished.resize(beams);
  for (std::size_t beam = 0; beam < beams; ++beam) {
    const std::size_t row = s * beams + beam;
    if (beam >= alive.size()) {
      alive.push_back({.tokens = {}, .log_probability = kNever});
      tokens_[row] = options_.end;
      continue;
    }
    tokens_[row] = alive[beam].tokens.back();
    rows_[row] = static_cast<std::int32_t>(s * beams + origin[beam]);
  }
  sentence.alive = std::move(alive);
  sentence.done = settled(sentence, options_.limits[s]);
}

// Nothing alive can still enter the finished ones: log probabilities only fall, and the penalty is at most
// the limit's.
bool BeamSearch::settled(const Sentence& sentence, std::int64_t limit) const {
  const double best_alive = sentence.alive.front().log_probability;
  if (length_ >= limit || best_alive == kNever) return true;
  if (!options_.stop_early || sentence.finished.size() < static_cast<std::size_t>(options_.beams))
    return false;
  return sentence.finished.back().score >= best_alive / penalty(limit);
}

BeamSearch::Hypothesis BeamSearch::best(std::int64_t sentence) const {
  const Sentence& s = sentences_.at(static_cast<std::size_t>(sentence));
  return s.finished.empty() ? s.alive.front() : s.finished.front();
}

}  // namespace tessera
