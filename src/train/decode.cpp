// Decoding of many sentences: sorted by length, in batches, until every row has ended.
#include "tessera/decode.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "base/check.h"
#include "train/decode_programs.h"
#include "train/sampling.h"

namespace tessera {
namespace {

// One sentence to decode.
struct Job {
  std::int64_t index = 0;            // among the inputs
  std::vector<std::int32_t> source;  // with its end; empty for a language model
  std::vector<std::int32_t> prompt;  // forced first tokens
  std::int64_t limit = 0;            // most tokens to choose, the end included
  std::int64_t size() const { return static_cast<std::int64_t>(source.size() + prompt.size()); }
};

Choice choice_of(const DecodeConfig& options) {
  if (options.method == "greedy") return Choice::Greedy;
  if (options.method == "sample") return Choice::Sample;
  TESSERA_CHECK(options.method == "beam", "decode.method = \"{}\"; it is greedy, sample or beam",
                options.method);
  return Choice::Beam;
}

class Decoder {
 public:
  Decoder(Model& model, const DecodeConfig& options, std::uint64_t seed)
      : model_(model), options_(options), seed_(seed), choice_(choice_of(options)) {
    const std::int64_t vocab = model.config().model.vocab;
    if (choice_ == Choice::Beam) candidates_ = std::min(2 * options.beam, vocab);
  }

  std::vector<Decoded> run(std::vector<Job> jobs, std::size_t count, const DecodeReport& report) {
    results_.resize(count);
    std::stable_sort(jobs.begin(), jobs.end(),
                     [](const Job& a, const Job& b) { return a.size() > b.size(); });
    const std::size_t batch = sentences_at_once();
    std::int64_t done = static_cast<std::int64_t>(count - jobs.size());
    for (std::size_t begin = 0; begin < jobs.size(); begin += batch) {
      const std::size_t end = std::min(jobs.size(), begin + batch);
      decode({jobs.data() + begin, end - begin});
      done += static_cast<std::int64_t>(end - begin);
      if (report) report({done, static_cast<std::int64_t>(count)});
    }
    for (Decoded& result : results_) result.text = model_.tokenizer().decode(result.tokens);
    return std::move(results_);
  }

 private:
  // Beams of a language model begin at the end of the prompt, which must be the same place for all.
  std::size_t sentences_at_once() const {
    const bool lm = model_.config().model.kind == ModelKind::LanguageModel;
    return choice_ == Choice::Beam && lm ? 1 : static_cast<std::size_t>(options_.batch);
  }

  void decode(std::span<const Job> jobs) {
    const std::int64_t beams = choice_ == Choice::Beam ? options_.beam : 1;
    // Few sizes: 1, 4, 16, ... sentences, the rest of the rows idle.
    std::int64_t sentences = 1;
    while (sentences < static_cast<std::int64_t>(jobs.size())) sentences *= 4;
    sentences = std::min<std::int64_t>(sentences, static_cast<std::int64_t>(sentences_at_once()));
    DecodeShape shape{.batch = sentences * beams, .steps = 1};
    std::int64_t positions = 1, source = 0;
    for (const Job& job : jobs) {
      positions = std::max(positions, static_cast<std::int64_t>(job.prompt.size()) + job.limit);
      source = std::max(source, static_cast<std::int64_t>(job.source.size()));
    }
    shape.capacity = bucket_of(positions);
    shape.source_length = source == 0 ? 0 : bounded(bucket_of(source));
    DecodePrograms programs(model_, shape, choice_, candidates_);
    if (source > 0) prefill(programs, jobs, shape, beams);
    if (choice_ == Choice::Beam) {
      search(programs, jobs, shape);
    } else {
      walk(programs, jobs, shape);
    }
  }

  // Learned positions end somewhere.
  std::int64_t bounded(std::int64_t length) const {
    const TransformerConfig& model = model_.config().model;
    return model.positions == Positions::Learned ? std::min(length, model.max_length) : length;
  }

  static void prefill(DecodePrograms& programs, std::span<const Job> jobs, const DecodeShape& shape,
                      std::int64_t beams) {
    std::vector<std::int32_t> source(static_cast<std::size_t>(shape.batch * shape.source_length), kPadId);
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      for (std::int64_t b = 0; b < beams; ++b) {
        const std::int64_t row = static_cast<std::int64_t>(j) * beams + b;
        std::copy(jobs[j].source.begin(), jobs[j].source.end(), source.begin() + row * shape.source_length);
      }
    }
    programs.prefill(source);
  }

  // Greedy and sampling: one row a sentence.
  void walk(DecodePrograms& programs, std::span<const Job> jobs, const DecodeShape& shape) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(shape.batch), kPadId);
    std::size_t open = jobs.size();
    std::vector<bool> ended(jobs.size());
    for (std::int64_t position = 0; open > 0; ++position) {
      const Results step = programs.step(tokens, position);
      const Array first = step.gather(0);
      const Array second = choice_ == Choice::Greedy ? step.gather(1) : Array();
      for (std::size_t j = 0; j < jobs.size(); ++j) {
        tokens[j] = kPadId;
        if (ended[j]) continue;
        const auto forced = static_cast<std::int64_t>(jobs[j].prompt.size());
        if (position < forced) {
          tokens[j] = jobs[j].prompt[static_cast<std::size_t>(position)];
          continue;
        }
        const Sampled chosen =
            choice_ == Choice::Greedy
                ? Sampled{static_cast<std::int32_t>(first.get(static_cast<std::int64_t>(j))),
                          second.get(static_cast<std::int64_t>(j))}
                : draw(first, j, jobs[j].index, position - forced);
        tokens[j] = chosen.token;
        if (take(jobs[j], chosen)) continue;
        ended[j] = true;
        --open;
      }
    }
  }

  // Adds a chosen token to the result; false when the row has ended.
  bool take(const Job& job, const Sampled& chosen) {
    Decoded& result = results_[static_cast<std::size_t>(job.index)];
    result.log_probability += chosen.log_probability;
    result.score = result.log_probability;
    result.near_tie = result.near_tie || chosen.near_tie;
    result.finished = chosen.token == kEosId;
    if (result.finished) return false;
    result.tokens.push_back(chosen.token);
    return static_cast<std::int64_t>(result.tokens.size()) < job.limit;
  }

  Sampled draw(const Array& values, std::size_t row, std::int64_t sentence, std::int64_t position) const {
    const auto vocab = static_cast<std::size_t>(model_.config().model.vocab);
    const double uniform = sampling_uniform(seed_, sentence, position);
    if (values.type.dtype == DType::F64) {
      return sample(std::span<const double>(values.as<double>() + row * vocab, vocab), options_, uniform);
    }
    return sample(std::span<const float>(values.as<float>() + row * vocab, vocab), options_, uniform);
  }

  void search(DecodePrograms& programs, std::span<const Job> jobs, const DecodeShape& shape) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(shape.batch), kPadId);
    std::int64_t position = 0;
    for (const std::int32_t forced : jobs.front().prompt) {  // of a language model
      programs.step(tokens, position++);
      std::fill(tokens.begin(), tokens.end(), forced);
    }
    BeamSearch::Options options{.beams = options_.beam,
                                .length_penalty = options_.length_penalty,
                                .start = tokens.front(),
                                .end = kEosId,
                                .limits = {}};
    for (const Job& job : jobs) options.limits.push_back(job.limit);
    options.limits.resize(static_cast<std::size_t>(shape.batch / options_.beam), 0);
    BeamSearch beams(options);
    for (; !beams.done(); ++position) {
      const Results step = programs.step(beams.tokens(), position);
      beams.advance(candidates(step));
      if (beams.reordered() && !beams.done()) programs.reorder(beams.rows());
    }
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      const BeamSearch::Hypothesis best = beams.best(static_cast<std::int64_t>(j));
      Decoded& result = results_[static_cast<std::size_t>(jobs[j].index)];
      result.tokens = best.tokens;
      result.log_probability = best.log_probability;
      result.score = best.score;
      result.finished = best.finished;
    }
  }

  std::vector<std::vector<BeamSearch::Candidate>> candidates(const Results& step) const {
    const Array tokens = step.gather(0), values = step.gather(1);
    const std::int64_t rows = tokens.elements() / candidates_;
    std::vector<std::vector<BeamSearch::Candidate>> result(static_cast<std::size_t>(rows));
    for (std::int64_t i = 0; i < tokens.elements(); ++i) {
      result[static_cast<std::size_t>(i / candidates_)].push_back(
          {static_cast<std::int32_t>(tokens.get(i)), values.get(i)});
    }
    return result;
  }

  Model& model_;
  const DecodeConfig& options_;
  std::uint64_t seed_;
  Choice choice_;
  std::int64_t candidates_ = 0;
  std::vector<Decoded> results_;
};

// How many tokens a decoder with learned positions can read.
std::int64_t most_positions(const TransformerConfig& model) {
  return model.positions == Positions::Learned ? model.max_length : std::numeric_limits<std::int64_t>::max();
}

}  // namespace

std::vector<Decoded> translate(Model& model, const std::vector<std::string>& sources,
                               const DecodeConfig& options, std::uint64_t seed, const DecodeReport& report) {
  const TransformerConfig& sizes = model.config().model;
  TESSERA_CHECK(sizes.kind == ModelKind::EncoderDecoder,
                "translate: this is a language model, which has no source; use generate");
  const std::int64_t longest = std::min(model.config().data.max_source_length, most_positions(sizes));
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    Job job{
        .index = static_cast<std::int64_t>(i), .source = model.tokenizer().encode(sources[i]), .prompt = {}};
    if (job.source.empty()) continue;
    if (static_cast<std::int64_t>(job.source.size()) >= longest)
      job.source.resize(static_cast<std::size_t>(longest - 1));
    job.source.push_back(kEosId);
    const double allowed = options.length_factor * static_cast<double>(job.source.size()) + 10;
    job.limit = std::min({options.max_length, static_cast<std::int64_t>(allowed), most_positions(sizes)});
    jobs.push_back(std::move(job));
  }
  return Decoder(model, options, seed).run(std::move(jobs), sources.size(), report);
}

std::vector<Decoded> generate(Model& model, const std::vector<std::string>& prompts,
                              const DecodeConfig& options, std::uint64_t seed, const DecodeReport& report) {
  const TransformerConfig& sizes = model.config().model;
  TESSERA_CHECK(sizes.kind == ModelKind::LanguageModel,
                "generate: this model translates and needs sources; use translate");
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    Job job{
        .index = static_cast<std::int64_t>(i), .source = {}, .prompt = model.tokenizer().encode(prompts[i])};
    const auto length = static_cast<std::int64_t>(job.prompt.size());
    TESSERA_CHECK(length < most_positions(sizes),
                  "generate: prompt {} has {} tokens, but the model knows {} positions; shorten it", i + 1,
                  length, most_positions(sizes));
    job.limit = std::min(options.max_length, most_positions(sizes) - length);
    jobs.push_back(std::move(job));
  }
  return Decoder(model, options, seed).run(std::move(jobs), prompts.size(), report);
}

}  // namespace tessera
