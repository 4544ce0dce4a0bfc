// tessera eval: loss and perplexity of a split, BLEU of its translations beside two baselines.
#include <fmt/format.h>

#include "command.h"
#include "tessera/decode.h"
#include "tessera/error.h"

namespace tessera::command {
namespace {

const SplitConfig& split_of(const Config& config, const std::string& name) {
  if (name == "train") return config.data.train;
  if (name == "dev") return config.data.dev;
  if (name == "test") return config.data.test;
  throw UserError(fmt::format("there is no split '{}'; use train, dev or test", name));
}

void print_loss(Model& model, const Dataset& data, const Eval& options, bool shuffled) {
  EvaluateOptions evaluate_options;
  evaluate_options.batches = options.batches;
  evaluate_options.shuffle_sources = shuffled;
  Evaluation result = evaluate(model, data, evaluate_options);
  fmt::print("{} loss {:.4f} nats per token{}, accuracy {:.4f}, {}\n", options.split, result.loss(),
             shuffled ? " with the sources shuffled between sentences" : "", result.accuracy,
             to_string(result.perplexity));
}

void print_bleu(const char* what, const std::vector<std::string>& hypotheses,
                const std::vector<std::string>& references) {
  fmt::print("{}: {}\n", what, corpus_bleu(hypotheses, references).line());
}

void bleu(Model& model, const Eval& options) {
  const Config& config = model.config();
  std::vector<TextExample> examples =
      read_examples(data_source(config.data, split_of(config, options.split), config.model.kind));
  if (options.sentences > 0 && static_cast<std::size_t>(options.sentences) < examples.size()) {
    // Evenly spaced, so that every document kind is there.
    std::vector<TextExample> some;
    for (std::int64_t i = 0; i < options.sentences; ++i) {
      some.push_back(examples[static_cast<std::size_t>(i) * examples.size() /
                              static_cast<std::size_t>(options.sentences)]);
    }
    examples = std::move(some);
  }
  std::vector<std::string> sources, references, hypotheses;
  for (const TextExample& e : examples) {
    sources.push_back(e.source);
    references.push_back(e.target);
  }
  for (Decoded& d :
       tessera::translate(model, sources, config.decode, static_cast<std::uint64_t>(config.train.seed))) {
    hypotheses.push_back(std::move(d.text));
  }
  fmt::print("{} sentences of {}, {} decoding\n", sources.size(), options.split, config.decode.method);
  print_bleu("model", hypotheses, references);
  if (options.baselines) {
    print_bleu("baseline, copying the source", copy_baseline(sources), references);
    std::vector<TextExample> train =
        read_examples(data_source(config.data, config.data.train, config.model.kind));
    print_bleu("baseline, nearest source in train by word overlap", retrieval_baseline(train, sources),
               references);
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(options.show) && i < sources.size(); ++i) {
    std::size_t k = i * sources.size() / static_cast<std::size_t>(options.show);
    fmt::print("\nsource     {}\nreference  {}\nmodel      {}\n", sources[k], references[k], hypotheses[k]);
  }
  if (!options.out.empty()) write_lines(options.out, hypotheses);
}

}  // namespace

int eval(const Eval& options) {
  Model model = Model::open(options.common.source, {options.common.overrides(), options.checkpoint});
  std::unique_ptr<Dataset> data = open_split(model, split_of(model.config(), options.split));
  print_loss(model, *data, options, false);
  if (options.shuffle) print_loss(model, *data, options, true);
  if (options.bleu || options.baselines) bleu(model, options);
  return 0;
}

}  // namespace tessera::command
