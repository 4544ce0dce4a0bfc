// BLEU against values that sacreBLEU 2.6.0 produced, to the last digits of a double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tessera/error.h"
#include "tessera/metrics.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using Strings = std::vector<std::string>;

const Strings kHypotheses = {"The dog bit the man.", "It wasn't surprising.", "The man had just bitten him."};
const std::vector<Strings> kTwoReferences = {{"The dog bit the man.", "The dog had bit the man."},
                                             {"It was not unexpected.", "No one was surprised."},
                                             {"The man bit him first.", "The man had bitten the dog."}};

void expect_score(double score, double expected) {
  EXPECT_NEAR(score, expected, 1e-12 * std::abs(expected));
}

double score_with(const BleuOptions& options) {
  return corpus_bleu(kHypotheses, kTwoReferences, options).score;
}

TEST(Bleu, DefaultOnTwoReferences) {
  const BleuScore s = corpus_bleu(kHypotheses, kTwoReferences);
  expect_score(s.score, 48.530827009929865);
  EXPECT_THAT(s.counts.correct, ElementsAre(14, 7, 5, 3));
  EXPECT_THAT(s.counts.total, ElementsAre(17, 14, 11, 8));
  EXPECT_EQ(
      s.line(),
      "BLEU|nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp|version:tessera-0.1.0 = 48.53 82.4/50.0/45.5/37.5 "
      "(BP = 0.943 ratio = 0.944 hyp_len = 17 ref_len = 18)");
}

TEST(Bleu, OtherTokenizers) {
  BleuOptions options;
  options.tokenizer = BleuTokenizer::None;
  const BleuScore none = corpus_bleu(kHypotheses, kTwoReferences, options);
  expect_score(none.score, 49.19195660047277);
  EXPECT_EQ(none.counts.hypothesis_length, 14);
  EXPECT_EQ(none.counts.reference_length, 15);
  options.tokenizer = BleuTokenizer::Intl;
  const BleuScore intl = corpus_bleu(kHypotheses, kTwoReferences, options);
  expect_score(intl.score, 43.91623493336995);
  EXPECT_EQ(intl.counts.hypothesis_length, 19);
  EXPECT_EQ(intl.counts.reference_length, 18);
  options.tokenizer = BleuTokenizer::Char;
  const BleuScore chars = corpus_bleu(kHypotheses, kTwoReferences, options);
  expect_score(chars.score, 72.61064153440596);
  EXPECT_EQ(chars.counts.hypothesis_length, 58);
  EXPECT_EQ(chars.counts.reference_length, 57);
}

TEST(Bleu, SmoothingsAndOrders) {
  BleuOptions options;
  options.smoothing = BleuSmoothing::AddK;
  expect_score(score_with(options), 52.70109002482467);
  EXPECT_EQ(bleu_signature(options, 2),
            "nrefs:2|case:mixed|eff:no|tok:13a|smooth:add-k[1.00]|version:tessera-0.1.0");
  options = {};
  const std::vector<std::pair<int, double>> orders = {
      {1, 77.65}, {2, 60.50}, {3, 53.93}, {5, 46.14}, {6, 43.28}};
  for (const auto& [order, expected] : orders) {
    options.max_order = order;
    EXPECT_NEAR(score_with(options), expected, 0.005) << order;
  }
}

TEST(Bleu, EmptyHypothesesScoreZero) {
  const BleuScore s = corpus_bleu({"", "", ""}, kTwoReferences);
  EXPECT_EQ(s.score, 0);
  EXPECT_EQ(s.brevity_penalty, 0);
  EXPECT_EQ(s.counts.hypothesis_length, 0);
}

TEST(Bleu, PerfectMatchIsTheDoubleThatUpstreamPrints) {
  EXPECT_EQ(corpus_bleu({"a b c d e"}, Strings{"a b c d e"}).score, 100.00000000000004);
}

TEST(Bleu, SentenceLevelUsesTheEffectiveOrder) {
  expect_score(sentence_bleu("the cat sat", {"the cat sat on the mat"}).score, 36.78794411714425);
  const BleuScore s = sentence_bleu("Le chat est sur le tapis .", {"Le chat est assis sur le tapis."});
  expect_score(s.score, 51.54486831107658);
  EXPECT_THAT(s.counts.correct, ElementsAre(5 + 2, 5, 3, 1));
  EXPECT_THAT(s.counts.total, ElementsAre(7, 6, 5, 4));
  EXPECT_EQ(sentence_bleu("", {"a b"}).score, 0);
  EXPECT_EQ(s.signature, "nrefs:1|case:mixed|eff:yes|tok:13a|smooth:exp|version:tessera-0.1.0");
}

TEST(Bleu, RawStatisticsWithAFloor) {
  BleuOptions options;
  options.tokenizer = BleuTokenizer::None;
  options.smoothing = BleuSmoothing::Floor;
  options.smoothing_value = 0.01;
  expect_score(corpus_bleu({"this is a fest"}, Strings{"this is a test"}, options).score / 100,
               0.223606797749979);
  EXPECT_EQ(bleu_signature(options),
            "nrefs:1|case:mixed|eff:no|tok:none|smooth:floor[0.01]|version:tessera-0.1.0");
  const BleuScore s = bleu_from_counts({11, 11, {9, 7, 5, 3}, {10, 8, 6, 4}});
  EXPECT_NEAR(s.score / 100, 0.8375922397, 5e-11);
}

TEST(Bleu, Tokenizer13a) {
  const std::vector<std::pair<std::string, std::string>> vectors = {
      {"Hello, world! It's 3.14, no?", "Hello , world ! It's 3.14 , no ?"},
      {"U.S.-based firm's 1,000-2,000 (approx.) \"test\"",
       "U . S . -based firm's 1,000 - 2,000 ( approx . ) \" test \""},
      {"Qu’est-ce que c’est\u00a0? « Bonjour\u202f»\u00a0: 3,5\u00a0%",
       "Qu’est-ce que c’est ? « Bonjour » : 3,5 %"},
      {"a.,b ..,, 1.a .5 5. 5.,6 -7 7-8 7--8 a-b",
       "a . , b . . , , 1 . a . 5 5 . 5 . , 6 -7 7 - 8 7 - -8 a-b"},
      {"naïve café—déjà…vu “quoted” 10€", "naïve café—déjà…vu “quoted” 10€"},
      {"&amp;lt; <skipped>x&quot;", "< x \""},
      {"one-\ntwo\nthree", "onetwo three"},
      {"\u200b\u3000x\u0085y\x1cz", "\u200b x y z"},
      {"", ""}};
  for (const auto& [text, expected] : vectors)
    EXPECT_EQ(bleu_tokenize(text, BleuTokenizer::V13a), expected) << text;
}

TEST(Bleu, VariableReferencesAreNamedInTheSignature) {
  const BleuScore s =
      corpus_bleu({"a b c d", "e f g h"}, std::vector<Strings>{{"a b c d", "a"}, {"e f g h"}});
  EXPECT_EQ(s.signature, "nrefs:var|case:mixed|eff:no|tok:13a|smooth:exp|version:tessera-0.1.0");
  EXPECT_NEAR(s.score, 100, 1e-10);
}

// tests/data/bleu_vectors.json holds random real and synthetic segments with what sacreBLEU 2.6.0 gave for
// every tokenizer and smoothing; tests/data/make_bleu_vectors.py wrote it.
TEST(Bleu, MatchesSacrebleuOnStoredVectors) {
  std::ifstream file(TESSERA_SOURCE_DIR "/tests/data/bleu_vectors.json");
  const nlohmann::json all = nlohmann::json::parse(file);
  ASSERT_GE(all.at("corpora").size(), 5u);
  for (const auto& [name, tokenized] : all.at("tokenized").items()) {
    for (const auto& pair : tokenized) {
      EXPECT_EQ(bleu_tokenize(pair[0].get<std::string>(), parse_bleu_tokenizer(name)),
                pair[1].get<std::string>());
    }
  }
  for (const auto& corpus : all.at("corpora")) {
    const auto hypotheses = corpus.at("hypotheses").get<Strings>();
    const auto references = corpus.at("references").get<std::vector<Strings>>();
    for (const auto& run : corpus.at("runs")) {
      BleuOptions options;
      options.tokenizer = parse_bleu_tokenizer(run.at("tokenizer").get<std::string>());
      options.smoothing = parse_bleu_smoothing(run.at("smoothing").get<std::string>());
      options.lowercase = run.at("lowercase");
      options.max_order = run.at("max_order");
      options.effective_order = run.at("effective_order");
      const BleuScore s = corpus_bleu(hypotheses, references, options);
      expect_score(s.score, run.at("score").get<double>());
      EXPECT_EQ(s.counts.hypothesis_length, run.at("hypothesis_length"));
      EXPECT_EQ(s.counts.reference_length, run.at("reference_length"));
      EXPECT_EQ(s.signature, run.at("signature").get<std::string>());
    }
  }
}

template <class Call>
std::string bleu_message_of(Call call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Bleu, SaysWhatIsWrong) {
  EXPECT_EQ(bleu_message_of([] { corpus_bleu(Strings{}, Strings{}); }),
            "bleu: no hypotheses; at least one segment is needed");
  EXPECT_EQ(bleu_message_of([] {
              corpus_bleu({"a", "b"}, Strings{"a"});
            }),
            "bleu: 2 hypotheses but 1 segments of references; they must match line by line");
  EXPECT_EQ(bleu_message_of([] { corpus_bleu({"a"}, std::vector<Strings>{{}}); }),
            "bleu: the segment 'a' has no reference");
  EXPECT_EQ(bleu_message_of([] { parse_bleu_tokenizer("zh"); }),
            "bleu: unknown tokenizer 'zh'; use one of: 13a, intl, none, char");
  EXPECT_EQ(bleu_message_of([] { parse_bleu_smoothing("k"); }),
            "bleu: unknown smoothing 'k'; use one of: exp, floor, add-k, none");
}

TEST(Perplexity, PublishedFigures) {
  // T2T's lmx_base on LM1B: 3.40 nats per token, 176,884 tokens, 159,658 words -> 43.2 per word.
  Perplexity p{3.40 * 176884, 176884, 159658, 0};
  EXPECT_NEAR(p.per_word(), 43.2, 0.1);
  EXPECT_NEAR(p.per_token(), std::exp(3.40), 1e-9);
  // A word perplexity of 24.0 is a token perplexity of 17.6.
  p.nats = std::log(24.0) * 159658;
  EXPECT_NEAR(p.per_token(), 17.6, 0.05);
  EXPECT_TRUE(std::isnan(p.bits_per_byte()));
}

TEST(Perplexity, CountsTextAndAddsUp) {
  Perplexity p;
  p.count_text("Qu’est-ce\u00a0? oui");  // the no-break space separates words
  EXPECT_EQ(p.words, 4);
  EXPECT_EQ(p.bytes, 19);
  p.nats = std::log(2.0) * 38;
  EXPECT_NEAR(p.bits_per_byte(), 2.0, 1e-12);
  Perplexity sum = p;
  sum += p;
  EXPECT_EQ(sum.words, 8);
  EXPECT_NEAR(sum.bits_per_byte(), 2.0, 1e-12);
}

}  // namespace
}  // namespace tessera
