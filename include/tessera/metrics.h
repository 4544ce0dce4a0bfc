// Metrics of text: BLEU as sacreBLEU computes it, and perplexity in its three usual forms. Layer data.
//
//   BleuScore s = corpus_bleu(hypotheses, references);
//   std::puts(s.line().c_str());   // BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:tessera-0.1.0
//   = 48.53 82.4/...
//
// Text is UTF-8; bytes that are no UTF-8 count as characters of their own and never fail. Pure functions: any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// How a segment is cut into words: 13a is WMT's mteval-v13a, intl is mteval-v14 with Unicode punctuation,
// none splits on white space, char makes every character a word.
enum class BleuTokenizer { V13a, Intl, None, Char };

// What replaces the precision of an n-gram order without a match: Exp halves it again for each such order,
// Floor uses a constant count, AddK adds to both counts of the orders above 1, None leaves it 0 (and so the
// score).
enum class BleuSmoothing { Exp, Floor, AddK, None };

const char* to_string(BleuTokenizer tokenizer);        // "13a", "intl", "none", "char"
const char* to_string(BleuSmoothing smoothing);        // "exp", "floor", "add-k", "none"
BleuTokenizer parse_bleu_tokenizer(std::string_view);  // inverse; throws UserError that lists the names
BleuSmoothing parse_bleu_smoothing(std::string_view);

struct BleuOptions {
  BleuTokenizer tokenizer = BleuTokenizer::V13a;
  BleuSmoothing smoothing = BleuSmoothing::Exp;
  std::optional<double> smoothing_value;  // of Floor (default 0.1) and AddK (default 1)
  bool lowercase = false;
  int max_order = 4;             // >= 1
  bool effective_order = false;  // average only over the orders that the hypotheses reach
};

// The sufficient statistics of one segment or of many: add them up, then score once.
struct BleuCounts {
  std::int64_t hypothesis_length = 0;  // words
  std::int64_t reference_length = 0;   // of the reference closest in length, the shorter on a tie
  std::vector<std::int64_t> correct;   // [max_order], clipped matches
  std::vector<std::int64_t> total;     // [max_order], n-grams of the hypotheses

  BleuCounts& operator+=(const BleuCounts& other);
};

struct BleuScore {
  double score = 0;                // 0..100 (a perfect match is 100 within a few ulps)
  std::vector<double> precisions;  // [max_order], percent, smoothed
  double brevity_penalty = 0;
  BleuCounts counts;
  std::string signature;

  double ratio() const;      // hypothesis length / reference length, 0 without a reference
  std::string line() const;  // "BLEU|<signature> = 48.53 82.4/50.0/45.5/37.5 (BP = ... ref_len = 18)"
};

// The words of a segment, joined by single spaces.
std::string bleu_tokenize(std::string_view segment, BleuTokenizer tokenizer);

// `references` are the alternatives of this one segment; at least one.
BleuCounts bleu_counts(std::string_view hypothesis, const std::vector<std::string>& references,
                       const BleuOptions& options = {});

// `reference_count` goes into the signature: -1 where it varies between segments.
BleuScore bleu_from_counts(const BleuCounts& counts, const BleuOptions& options = {},
                           int reference_count = 1);

// One reference per hypothesis. Throws UserError when the lists differ in length or are empty.
BleuScore corpus_bleu(const std::vector<std::string>& hypotheses, const std::vector<std::string>& references,
                      const BleuOptions& options = {});

// references[i] are the alternatives of hypotheses[i]; their number may vary.
BleuScore corpus_bleu(const std::vector<std::string>& hypotheses,
                      const std::vector<std::vector<std::string>>& references,
                      const BleuOptions& options = {});

// Always with the effective order, whatever `options` says.
BleuScore sentence_bleu(std::string_view hypothesis, const std::vector<std::string>& references,
                        const BleuOptions& options = {});

// "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:tessera-0.1.0"
std::string bleu_signature(const BleuOptions& options, int reference_count = 1);

// A total of negative log-likelihood and what it was summed over. Nats of predicted tokens only: no padding,
// no label smoothing, no z-loss. `words` are units between Unicode white space plus one end per sentence;
// `bytes` are those of the UTF-8 text plus one end per sentence.
struct Perplexity {
  double nats = 0;
  std::int64_t tokens = 0;
  std::int64_t words = 0;
  std::int64_t bytes = 0;

  // Each is NaN when its count is 0.
  double nats_per_token() const;
  double per_token() const;      // exp(nats / tokens)
  double per_word() const;       // exp(nats / words) = per_token() ^ (tokens / words)
  double bits_per_byte() const;  // nats / (ln 2 * bytes)

  // Adds the text of one predicted sentence (without its line end) to words and bytes.
  void count_text(std::string_view sentence);
  Perplexity& operator+=(const Perplexity& other);
};

// All three with their counts and with what a word is, on one line.
std::string to_string(const Perplexity& perplexity);

// Units between Unicode white space, as Python's str.split() sees them.
std::int64_t count_words(std::string_view text);

}  // namespace tessera
