// Texts packed into rows.
#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/text.h"
#include "data/batches.h"
#include "data/data_error.h"
#include "data/examples.h"
#include "data/packing.h"

namespace tessera {
namespace {

using namespace data;

PackedRows pack_cache(const TokenCache& cache, const LanguageOptions& options) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < cache.examples(); ++i) {
    lengths.push_back(static_cast<std::int64_t>(cache.tokens(i, 0).size()) + 1);
  }
  return pack(lengths, options.length, options.packed);
}

std::vector<std::vector<std::int64_t>> all_rows(const PackedRows& rows) {
  std::vector<std::int64_t> items(static_cast<std::size_t>(rows.rows()));
  std::iota(items.begin(), items.end(), 0);
  return {items};
}

class LanguageData : public BatchedDataset {
 public:
  LanguageData(TokenCache cache, PackedRows rows, const LanguageOptions& options, const std::string& text)
      : BatchedDataset(std::move(cache), {{options.rows_per_batch, 0, options.length}}, all_rows(rows),
                       options.seed, text),
        rows_(std::move(rows)),
        options_(options) {
    stats_.examples = cache_.examples();
    for (std::int64_t i = 0; i < cache_.examples(); ++i) {
      const auto length = static_cast<std::int64_t>(cache_.tokens(i, 0).size()) + 1;
      stats_.too_long += length > options_.length;
      stats_.target_tokens += length;
      stats_.words += cache_.words(i);
      stats_.bytes += cache_.bytes(i);
    }
  }

 private:
  void prepare(Batch& batch) const override {
    for (const char* name : {"target", "segment", "position"}) {
      batch.inputs.emplace(
          name, padding(options_.batch_dim, options_.rows_per_batch, options_.length_dim, options_.length));
    }
  }

  void write_row(Batch& batch, std::int64_t row, std::int64_t item) const override {
    const std::int64_t start = row * options_.length;
    std::int32_t* target = batch.inputs.at("target").as<std::int32_t>() + start;
    std::int32_t* segment = batch.inputs.at("segment").as<std::int32_t>() + start;
    std::int32_t* position = batch.inputs.at("position").as<std::int32_t>() + start;
    std::int64_t at = 0;
    std::int32_t number = 0;
    for (const Segment& piece : rows_.row(item)) {
      const std::span<const std::int32_t> tokens = cache_.tokens(piece.example, 0);
      ++number;
      for (std::int64_t i = 0; i < piece.size; ++i, ++at) {
        const std::int64_t place = piece.begin + i;
        const bool end = place == static_cast<std::int64_t>(tokens.size());
        target[at] = end ? kEosId : tokens[place];
        segment[at] = number;
        position[at] = static_cast<std::int32_t>(i);
        if (end) {
          batch.words += cache_.words(piece.example);
          batch.bytes += cache_.bytes(piece.example);
        }
      }
    }
    batch.tokens += at;
  }

  PackedRows rows_;
  LanguageOptions options_;
};

}  // namespace

std::unique_ptr<Dataset> open_language_data(const DataSource& source, const Tokenizer& tokenizer,
                                            const LanguageOptions& options, const std::string& cache_folder) {
  TESSERA_CHECK(options.rows_per_batch >= 1, "data: rows_per_batch is {}; a batch has at least 1 row",
                options.rows_per_batch);
  TESSERA_CHECK(options.length >= 2, "data: length is {}; a row has at least one token and an end, so 2",
                options.length);
  if (ExampleReader(source).has_target()) {
    bad_data(
        "data: language modelling reads one side, but '{}' has two; use text files, or JSON with an empty "
        "target_key",
        printable(source.files.front()));
  }
  TokenCache cache = TokenCache::open(source, tokenizer, cache_folder);
  PackedRows rows = pack_cache(cache, options);
  const std::string text = fmt::format("language rows={} length={} packed={}", options.rows_per_batch,
                                       options.length, options.packed);
  return std::make_unique<LanguageData>(std::move(cache), std::move(rows), options, text);
}

}  // namespace tessera
