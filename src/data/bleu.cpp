// BLEU (Papineni et al., 2002) with the choices of sacreBLEU 2.6 (Post, 2018), sum by sum, so that scores are
// equal to the last digits. Its n-gram keys are pieces of the tokenised text: words hold no space, so orders
// cannot collide.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <unordered_map>

#include "base/check.h"
#include "data/utf8.h"
#include "tessera/metrics.h"

namespace tessera {
namespace {

constexpr const char* kVersion = "tessera-0.1.0";

struct Named {
  const char* name;
  int value;
};
constexpr Named kTokenizers[] = {{"13a", int(BleuTokenizer::V13a)},
                                 {"intl", int(BleuTokenizer::Intl)},
                                 {"none", int(BleuTokenizer::None)},
                                 {"char", int(BleuTokenizer::Char)}};
constexpr Named kSmoothings[] = {{"exp", int(BleuSmoothing::Exp)},
                                 {"floor", int(BleuSmoothing::Floor)},
                                 {"add-k", int(BleuSmoothing::AddK)},
                                 {"none", int(BleuSmoothing::None)}};

template <std::size_t N>
int parse_name(const Named (&names)[N], std::string_view text, const char* what) {
  std::string known;
  for (const Named& named : names) {
    if (text == named.name) return named.value;
    known += known.empty() ? named.name : std::string(", ") + named.name;
  }
  throw UserError(fmt::format("bleu: unknown {} '{}'; use one of: {}", what, text, known));
}

using NgramCounts = std::unordered_map<std::string_view, std::int64_t>;

// Counts the n-grams of orders 1..max_order of a text whose words are joined by single spaces.
std::int64_t count_ngrams(std::string_view text, int max_order, std::vector<NgramCounts>& counts) {
  const std::vector<std::string_view> words = data::split_words(text);
  const auto n = static_cast<std::int64_t>(words.size());
  counts.assign(static_cast<std::size_t>(max_order), {});
  for (std::int64_t i = 0; i < n; ++i) {
    for (int order = 1; order <= max_order && i + order <= n; ++order) {
      const std::string_view last = words[i + order - 1];
      const std::string_view ngram(words[i].data(), last.data() + last.size() - words[i].data());
      ++counts[order - 1][ngram];
    }
  }
  return n;
}

std::string prepared(std::string_view segment, const BleuOptions& options) {
  const std::string lower = options.lowercase ? data::to_lower(segment) : std::string(segment);
  return bleu_tokenize(data::strip_right(lower), options.tokenizer);
}

double smoothing_value(const BleuOptions& options) {
  return options.smoothing_value.value_or(options.smoothing == BleuSmoothing::Floor ? 0.1 : 1.0);
}

void check_options(const BleuOptions& options) {
  TESSERA_CHECK(options.max_order >= 1, "bleu: max_order is {}, but n-grams have at least 1 word",
                options.max_order);
}

// log with a floor that makes the exponential of a mean 0 without an infinity on the way.
double safe_log(double x) {
  return x == 0 ? -9999999999.0 : std::log(x);
}

// Fills the precisions and returns how many orders the mean runs over.
int smoothed_precisions(const BleuCounts& counts, const BleuOptions& options,
                        std::vector<double>& precisions) {
  double halving = 1;
  int orders = options.max_order;
  for (int n = 1; n <= options.max_order; ++n) {
    const double extra = options.smoothing == BleuSmoothing::AddK && n > 1 ? smoothing_value(options) : 0;
    const double correct = static_cast<double>(counts.correct[n - 1]) + extra;
    const double total = static_cast<double>(counts.total[n - 1]) + extra;
    if (total == 0) break;
    if (options.effective_order) orders = n;
    if (correct != 0) {
      precisions[n - 1] = 100. * correct / total;
    } else if (options.smoothing == BleuSmoothing::Exp) {
      halving *= 2;
      precisions[n - 1] = 100. / (halving * total);
    } else if (options.smoothing == BleuSmoothing::Floor) {
      precisions[n - 1] = 100. * smoothing_value(options) / total;
    }
  }
  return orders;
}

}  // namespace

const char* to_string(BleuTokenizer tokenizer) {
  return kTokenizers[static_cast<int>(tokenizer)].name;
}
const char* to_string(BleuSmoothing smoothing) {
  return kSmoothings[static_cast<int>(smoothing)].name;
}

BleuTokenizer parse_bleu_tokenizer(std::string_view text) {
  return static_cast<BleuTokenizer>(parse_name(kTokenizers, text, "tokenizer"));
}
BleuSmoothing parse_bleu_smoothing(std::string_view text) {
  return static_cast<BleuSmoothing>(parse_name(kSmoothings, text, "smoothing"));
}

BleuCounts& BleuCounts::operator+=(const BleuCounts& other) {
  hypothesis_length += other.hypothesis_length;
  reference_length += other.reference_length;
  correct.resize(std::max(correct.size(), other.correct.size()));
  total.resize(correct.size());
  for (std::size_t n = 0; n < other.correct.size(); ++n) {
    correct[n] += other.correct[n];
    total[n] += other.total[n];
  }
  return *this;
}

double BleuScore::ratio() const {
  return counts.reference_length == 0
             ? 0
             : static_cast<double>(counts.hypothesis_length) / static_cast<double>(counts.reference_length);
}

std::string BleuScore::line() const {
  std::string parts;
  for (const double p : precisions) parts += fmt::format("{}{:.1f}", parts.empty() ? "" : "/", p);
  return fmt::format("BLEU|{} = {:.2f} {} (BP = {:.3f} ratio = {:.3f} hyp_len = {} ref_len = {})", signature,
                     score, parts, brevity_penalty, ratio(), counts.hypothesis_length,
                     counts.reference_length);
}

BleuCounts bleu_counts(std::string_view hypothesis, const std::vector<std::string>& references,
                       const BleuOptions& options) {
  check_options(options);
  TESSERA_CHECK(!references.empty(), "bleu: the segment '{}' has no reference", hypothesis);
  const std::string text = prepared(hypothesis, options);
  std::vector<NgramCounts> own, best(static_cast<std::size_t>(options.max_order));
  BleuCounts counts;
  counts.hypothesis_length = count_ngrams(text, options.max_order, own);
  counts.reference_length = -1;
  std::vector<std::string> prepared_references;  // the keys of `best` point into these
  prepared_references.reserve(references.size());
  for (const std::string& reference : references) {
    std::vector<NgramCounts> theirs;
    prepared_references.push_back(prepared(reference, options));
    const std::int64_t length = count_ngrams(prepared_references.back(), options.max_order, theirs);
    const std::int64_t gap = std::abs(length - counts.hypothesis_length);
    const std::int64_t best_gap = std::abs(counts.reference_length - counts.hypothesis_length);
    if (counts.reference_length < 0 || gap < best_gap ||
        (gap == best_gap && length < counts.reference_length)) {
      counts.reference_length = length;
    }
    for (std::size_t n = 0; n < best.size(); ++n) {
      for (const auto& [ngram, count] : theirs[n]) best[n][ngram] = std::max(best[n][ngram], count);
    }
  }
  counts.correct.assign(best.size(), 0);
  counts.total.assign(best.size(), 0);
  for (std::size_t n = 0; n < best.size(); ++n) {
    for (const auto& [ngram, count] : own[n]) {
      counts.total[n] += count;
      if (const auto hit = best[n].find(ngram); hit != best[n].end())
        counts.correct[n] += std::min(count, hit->second);
    }
  }
  return counts;
}

BleuScore bleu_from_counts(const BleuCounts& counts, const BleuOptions& options, int reference_count) {
  check_options(options);
  BleuScore result;
  result.counts = counts;
  result.counts.correct.resize(static_cast<std::size_t>(options.max_order));
  result.counts.total.resize(static_cast<std::size_t>(options.max_order));
  result.signature = bleu_signature(options, reference_count);
  result.precisions.assign(static_cast<std::size_t>(options.max_order), 0);
  const auto own = static_cast<double>(counts.hypothesis_length);
  const auto theirs = static_cast<double>(counts.reference_length);
  result.brevity_penalty = own >= theirs ? 1 : own > 0 ? std::exp(1 - theirs / own) : 0;
  const std::vector<std::int64_t>& correct = result.counts.correct;
  if (std::all_of(correct.begin(), correct.end(), [](std::int64_t c) { return c == 0; })) return result;
  const int orders = smoothed_precisions(result.counts, options, result.precisions);
  double sum = 0;
  for (int n = 0; n < orders; ++n) sum += safe_log(result.precisions[n]);
  result.score = result.brevity_penalty * std::exp(sum / orders);
  return result;
}

BleuScore corpus_bleu(const std::vector<std::string>& hypotheses,
                      const std::vector<std::vector<std::string>>& references, const BleuOptions& options) {
  TESSERA_CHECK(!hypotheses.empty(), "bleu: no hypotheses; at least one segment is needed");
  TESSERA_CHECK(hypotheses.size() == references.size(),
                "bleu: {} hypotheses but {} segments of references; they must match line by line",
                hypotheses.size(), references.size());
  BleuCounts sum;
  int count = static_cast<int>(references[0].size());
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    sum += bleu_counts(hypotheses[i], references[i], options);
    if (static_cast<int>(references[i].size()) != count) count = -1;
  }
  return bleu_from_counts(sum, options, count);
}

BleuScore corpus_bleu(const std::vector<std::string>& hypotheses, const std::vector<std::string>& references,
                      const BleuOptions& options) {
  std::vector<std::vector<std::string>> lists;
  for (const std::string& reference : references) lists.push_back({reference});
  return corpus_bleu(hypotheses, lists, options);
}

BleuScore sentence_bleu(std::string_view hypothesis, const std::vector<std::string>& references,
                        const BleuOptions& options) {
  BleuOptions effective = options;
  effective.effective_order = true;
  return bleu_from_counts(bleu_counts(hypothesis, references, effective), effective,
                          static_cast<int>(references.size()));
}

std::string bleu_signature(const BleuOptions& options, int reference_count) {
  std::string smooth = to_string(options.smoothing);
  if (options.smoothing == BleuSmoothing::Floor || options.smoothing == BleuSmoothing::AddK) {
    smooth += fmt::format("[{:.2f}]", smoothing_value(options));
  }
  return fmt::format("nrefs:{}|case:{}|eff:{}|tok:{}|smooth:{}|version:{}",
                     reference_count < 0 ? std::string("var") : std::to_string(reference_count),
                     options.lowercase ? "lc" : "mixed", options.effective_order ? "yes" : "no",
                     to_string(options.tokenizer), smooth, kVersion);
}

}  // namespace tessera
