// Data sets and tokenizer as the configuration describes them.
#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "train/run_state.h"

namespace tessera {
namespace {

TranslationOptions translation_options(const Config& config) {
  const DataConfig& data = config.data;
  return {.tokens_per_batch = data.batch_tokens,
          .buckets = static_cast<int>(data.buckets),
          .sentences_per_batch = data.batch_sentences,
          .max_source = data.max_source_length,
          .max_target = data.max_target_length,
          .too_long = parse_too_long(data.too_long),
          .seed = static_cast<std::uint64_t>(config.train.seed)};
}

LanguageOptions language_options(const Config& config) {
  const DataConfig& data = config.data;
  const std::int64_t rows = std::max<std::int64_t>(1, data.batch_tokens / data.max_target_length);
  return {.rows_per_batch = data.batch_sentences > 0 ? data.batch_sentences : rows,
          .length = data.max_target_length,
          .packed = data.pack,
          .seed = static_cast<std::uint64_t>(config.train.seed)};
}

// The lines of both sides, one after the other.
Tokenizer train_tokenizer(const Config& config, const std::string& path) {
  const std::vector<TextExample> examples =
      read_examples(data_source(config.data, config.data.train, config.model.kind));
  std::size_t next = 0;
  const auto line = [&](std::string& text) {
    while (next < 2 * examples.size()) {
      const TextExample& example = examples[next / 2];
      text = next++ % 2 == 0 ? example.source : example.target;
      if (!text.empty()) return true;
    }
    return false;
  };
  return Tokenizer::train(line,
                          {.kind = parse_tokenizer_kind(config.data.tokenizer_kind),
                           .vocabulary = static_cast<int>(config.data.vocab_size)},
                          path);
}

}  // namespace

DataSource data_source(const DataConfig& data, const SplitConfig& split, ModelKind kind) {
  DataSource source;
  if (data.format == "parallel") source = parallel_files(split.files, split.target_files);
  if (data.format == "tsv") source = tsv_files(split.files);
  if (data.format == "text") source = text_files(split.files);
  if (data.format == "jsonl") {
    const bool pairs = kind == ModelKind::EncoderDecoder;
    source = jsonl_files(split.files, data.source_key, pairs ? data.target_key : "");
  }
  source.document_files = split.documents;
  source.origins = split.origins;
  source.invalid_utf8 = parse_invalid_utf8(data.invalid_utf8);
  return source;
}

std::unique_ptr<Dataset> open_split(const Model& model, const SplitConfig& split) {
  const Config& config = model.config();
  TESSERA_CHECK(!split.files.empty(),
                "the configuration names no files for this split; set data.train.files, data.dev.files or "
                "data.test.files (and target_files for parallel data)");
  std::string cache = config.data.cache;
  if (cache.empty()) cache = RunFolder(config.train.output).cache();
  const DataSource source = data_source(config.data, split, config.model.kind);
  if (config.model.kind == ModelKind::LanguageModel) {
    return open_language_data(source, model.tokenizer(), language_options(config), cache);
  }
  return open_translation_data(source, model.tokenizer(), translation_options(config), cache);
}

Tokenizer make_tokenizer(const Config& config) {
  if (!config.data.tokenizer.empty()) return Tokenizer::load(config.data.tokenizer);
  const RunFolder run(config.train.output);
  if (std::filesystem::exists(run.tokenizer())) return Tokenizer::load(run.tokenizer());
  TESSERA_CHECK(!config.data.train.files.empty(),
                "data.train.files is empty; name the training files, or a tokenizer in data.tokenizer");
  make_folders(run.path());
  return train_tokenizer(config, run.tokenizer());
}

}  // namespace tessera
