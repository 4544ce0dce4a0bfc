// Two translators that learn nothing.
#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "data/utf8.h"
#include "tessera/data.h"

namespace tessera {
namespace {

// An inverted index over the distinct lower-case words of the training sources.
class WordIndex {
 public:
  explicit WordIndex(const std::vector<TextExample>& train) : sizes_(train.size()), shared_(train.size(), 0) {
    for (std::size_t i = 0; i < train.size(); ++i) {
      const std::vector<std::string> words = distinct_words(train[i].source);
      sizes_[i] = static_cast<std::int32_t>(words.size());
      for (const std::string& word : words) places_[word].push_back(static_cast<std::int32_t>(i));
    }
  }

  // The nearest example, or -1.
  std::int64_t nearest(const std::string& source) {
    const std::vector<std::string> words = distinct_words(source);
    touched_.clear();
    for (const std::string& word : words) {
      const auto hit = places_.find(word);
      if (hit == places_.end()) continue;
      for (const std::int32_t example : hit->second) {
        if (shared_[example]++ == 0) touched_.push_back(example);
      }
    }
    std::int64_t best = -1;
    double best_score = 0;
    for (const std::int32_t example : touched_) {
      const double score = 2.0 * shared_[example] / static_cast<double>(words.size() + sizes_[example]);
      if (score > best_score || (score == best_score && example < best)) best = example, best_score = score;
      shared_[example] = 0;
    }
    return best;
  }

 private:
  static std::vector<std::string> distinct_words(const std::string& text) {
    const std::string lower = data::to_lower(text);
    std::vector<std::string> words;
    for (const std::string_view word : data::split_words(lower)) words.emplace_back(word);
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    return words;
  }

  std::unordered_map<std::string, std::vector<std::int32_t>> places_;
  std::vector<std::int32_t> sizes_;
  std::vector<std::int32_t> shared_;   // words shared with the current source; zero between calls
  std::vector<std::int32_t> touched_;  // the examples whose count is not zero
};

}  // namespace

std::vector<std::string> copy_baseline(const std::vector<std::string>& sources) {
  return sources;
}

std::vector<std::string> retrieval_baseline(const std::vector<TextExample>& train,
                                            const std::vector<std::string>& sources) {
  WordIndex index(train);
  std::vector<std::string> found;
  for (const std::string& source : sources) {
    const std::int64_t nearest = index.nearest(source);
    found.push_back(nearest < 0 ? "" : train[nearest].target);
  }
  return found;
}

}  // namespace tessera
