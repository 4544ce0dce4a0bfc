// Decoding: greedy, sampling and beam search over a cache of keys and values. Layer train.
//
//   std::vector<Decoded> out = translate(model, {"A small house."}, model.config().decode);
//
// Results come in the order of the inputs. Mesh, layout and batch size change nothing but rounding; a sampled
// choice that a difference of 1e-5 in a probability would turn is marked (near_tie).
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tessera/train.h"

namespace tessera {

struct Decoded {
  std::vector<std::int32_t> tokens;  // without the end
  std::string text;
  double log_probability = 0;  // of the tokens, and of the end when it was reached
  double score = 0;            // beam: with length penalty; else the log probability
  bool finished = false;       // the end was reached within the length limit
  bool near_tie = false;       // sampling: some choice was within 1e-5 of going the other way
};

struct DecodeProgress {
  std::int64_t done = 0, total = 0;  // sentences
};
using DecodeReport = std::function<void(const DecodeProgress&)>;

// Translations by an encoder-decoder. Sources beyond data.max_source_length tokens are cut, empty ones give
// "". Sampling draws from (seed, index of the sentence, position).
std::vector<Decoded> translate(Model& model, const std::vector<std::string>& sources,
                               const DecodeConfig& options, std::uint64_t seed = 1,
                               const DecodeReport& report = {});

// Continuations of prompts by a language model: `text` is the continuation alone; at most options.max_length
// tokens. Throws UserError when a prompt has as many tokens as the model has learned positions, or more.
std::vector<Decoded> generate(Model& model, const std::vector<std::string>& prompts,
                              const DecodeConfig& options, std::uint64_t seed = 1,
                              const DecodeReport& report = {});

// Beam search over any model, as host logic: the caller computes log probabilities and keeps the state of
// each row.
//
//   BeamSearch search({.beams = 4, .end = kEosId, .limits = {40, 32}});
//   while (!search.done()) {
//     ... log probabilities of search.tokens() in each row; the best 2 * beams (token, value) of each row ...
//     search.advance(candidates);       // then re-order the state: row i becomes the old row
//     search.rows()[i]
//   }
class BeamSearch {
 public:
  struct Options {
    std::int64_t beams = 4;
    double length_penalty = 0.6;  // score = log p / ((5 + length) / 6)^penalty, length with the end
    std::int32_t start = 0, end = 1;
    std::vector<std::int64_t> limits;  // per sentence: most tokens, end included
    bool stop_early = true;  // a sentence is done when no unfinished beam can beat its worst finished one
  };
  struct Candidate {
    std::int32_t token = 0;
    double log_probability = 0;  // of this token given the row so far
  };
  struct Hypothesis {
    std::vector<std::int32_t> tokens;  // without start and end
    double log_probability = 0, score = -std::numeric_limits<double>::infinity();
    bool finished = false;
  };

  explicit BeamSearch(Options options);
  std::int64_t row_count() const;  // sentences * beams; row = sentence * beams + beam
  const std::vector<std::int32_t>& tokens() const { return tokens_; }  // the last token of each row
  const std::vector<std::int32_t>& rows() const { return rows_; }      // where each row's state lies
  bool reordered() const;                                              // some row's state must move
  bool done() const;
  // Per row its most probable tokens, at least min(2 * beams, vocabulary), in falling order.
  void advance(const std::vector<std::vector<Candidate>>& candidates);
  Hypothesis best(std::int64_t sentence) const;  // finished if any is, else the best unfinished one

 private:
  struct Sentence {
    std::vector<Hypothesis> alive, finished;
    bool done = false;
  };
  void advance_sentence(std::size_t sentence, const std::vector<std::vector<Candidate>>& candidates);
  bool settled(const Sentence& sentence, std::int64_t limit) const;
  double penalty(std::int64_t length) const;

  Options options_;
  std::int64_t length_ = 0;
  std::vector<Sentence> sentences_;
  std::vector<std::int32_t> tokens_, rows_;
};

}  // namespace tessera
