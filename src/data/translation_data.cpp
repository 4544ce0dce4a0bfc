// Pairs of sentences in length buckets.
#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "data/batches.h"
#include "data/buckets.h"
#include "data/data_error.h"
#include "data/examples.h"

namespace tessera {
namespace {

using namespace data;

// What the constructor of the base class needs, made first.
struct Plan {
  std::vector<BatchShape> shapes;
  std::vector<std::vector<std::int64_t>> items;
  DataStats stats;
};

PairLength length_of(const TokenCache& cache, std::int64_t example) {
  return {static_cast<std::int32_t>(cache.tokens(example, 0).size() + 1),
          static_cast<std::int32_t>(cache.tokens(example, 1).size() + 1)};
}

Plan plan_translation(const TokenCache& cache, const TranslationOptions& options) {
  Plan plan;
  plan.stats = cache.stats();
  std::vector<PairLength> lengths;
  std::vector<std::int64_t> examples;
  for (std::int64_t i = 0; i < cache.examples(); ++i) {
    PairLength length = length_of(cache, i);
    if (length.source > options.max_source || length.target > options.max_target) {
      ++plan.stats.too_long;
      if (options.too_long == TooLong::Drop) continue;
      if (options.too_long == TooLong::Error) {
        bad_data(
            "data: example {} has {} source and {} target tokens, more than max_source = {} and max_target = "
            "{}; raise them "
            "or choose too_long = drop or cut",
            i, length.source, length.target, options.max_source, options.max_target);
      }
      length = {static_cast<std::int32_t>(std::min<std::int64_t>(length.source, options.max_source)),
                static_cast<std::int32_t>(std::min<std::int64_t>(length.target, options.max_target))};
    }
    lengths.push_back(length);
    examples.push_back(i);
    plan.stats.source_tokens += length.source;
    plan.stats.target_tokens += length.target;
    plan.stats.words += cache.words(i);
    plan.stats.bytes += cache.bytes(i);
  }
  plan.shapes = plan_shapes(lengths, options);
  if (examples.empty()) {
    bad_data("data: all {} examples are longer than max_source = {} and max_target = {} tokens; raise them",
             cache.examples(), options.max_source, options.max_target);
  }
  plan.items.resize(plan.shapes.size());
  for (std::size_t i = 0; i < examples.size(); ++i)
    plan.items[shape_of(lengths[i], plan.shapes)].push_back(examples[i]);
  for (std::size_t g = 0; g < plan.shapes.size();
       ++g) {  // examples may have gone to smaller shapes than planned
    if (options.sentences_per_batch > 0 || plan.items[g].empty()) continue;
    plan.shapes[g].sentences =
        std::min(plan.shapes[g].sentences, static_cast<std::int64_t>(plan.items[g].size()));
  }
  plan.stats.examples = static_cast<std::int64_t>(examples.size());
  return plan;
}

class TranslationData : public BatchedDataset {
 public:
  TranslationData(TokenCache cache, Plan plan, const TranslationOptions& options, const std::string& text)
      : BatchedDataset(std::move(cache), plan.shapes, std::move(plan.items), options.seed, text),
        options_(options) {
    stats_ = plan.stats;
  }

 private:
  void prepare(Batch& batch) const override {
    const BatchShape& shape = shapes()[batch.shape];
    batch.inputs.emplace(
        "source", padding(options_.batch_dim, shape.sentences, options_.source_dim, shape.source_length));
    batch.inputs.emplace(
        "target", padding(options_.batch_dim, shape.sentences, options_.target_dim, shape.target_length));
  }

  // Returns the tokens written. A sentence that was cut has no end.
  static std::int64_t write_side(Array& array, std::int64_t row, std::span<const std::int32_t> tokens,
                                 std::int64_t most) {
    const std::int64_t width = array.type.shape[1].size;
    const auto n = std::min<std::int64_t>(static_cast<std::int64_t>(tokens.size()), most);
    std::int32_t* out = array.as<std::int32_t>() + row * width;
    std::copy_n(tokens.begin(), n, out);
    if (n == most) return n;
    out[n] = kEosId;
    return n + 1;
  }

  void write_row(Batch& batch, std::int64_t row, std::int64_t item) const override {
    batch.source_tokens +=
        write_side(batch.inputs.at("source"), row, cache_.tokens(item, 0), options_.max_source);
    batch.tokens += write_side(batch.inputs.at("target"), row, cache_.tokens(item, 1), options_.max_target);
    batch.words += cache_.words(item);
    batch.bytes += cache_.bytes(item);
  }

  TranslationOptions options_;
};

}  // namespace

std::unique_ptr<Dataset> open_translation_data(const DataSource& source, const Tokenizer& tokenizer,
                                               const TranslationOptions& options,
                                               const std::string& cache_folder) {
  if (!ExampleReader(source).has_target()) {
    bad_data("data: translation needs two sides, but '{}' has only one; use parallel, TSV or JSON files",
             printable(source.files.front()));
  }
  plan_shapes({}, options);  // wrong options fail before the data is read
  TokenCache cache = TokenCache::open(source, tokenizer, cache_folder);
  Plan plan = plan_translation(cache, options);
  const std::string text =
      fmt::format("translation tokens={} buckets={} sentences={} source={} target={} long={}",
                  options.tokens_per_batch, options.buckets, options.sentences_per_batch, options.max_source,
                  options.max_target, to_string(options.too_long));
  return std::make_unique<TranslationData>(std::move(cache), std::move(plan), options, text);
}

}  // namespace tessera
