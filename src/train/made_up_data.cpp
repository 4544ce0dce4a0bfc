// Made-up batches.
#include "train/made_up_data.h"

#include <algorithm>

#include "tessera/random.h"

namespace tessera {

BatchShape largest_shape(const Config& config) {
  const DataConfig& data = config.data;
  BatchShape shape{0, data.max_source_length, data.max_target_length};
  if (config.model.kind == ModelKind::LanguageModel) shape.source_length = 0;
  shape.sentences = data.batch_sentences > 0
                        ? data.batch_sentences
                        : std::max<std::int64_t>(1, data.batch_tokens / data.max_target_length);
  return shape;
}

MadeUpData::MadeUpData(const Config& config) : vocab_(config.model.vocab), shapes_{largest_shape(config)} {}

Batch MadeUpData::batch(std::int64_t step) const {
  const BatchShape& shape = shapes_[0];
  Batch batch;
  batch.step = step;
  batch.tokens = shape.sentences * shape.target_length;
  batch.source_tokens = shape.sentences * shape.source_length;
  for (std::int64_t row = 0; row < shape.sentences; ++row) batch.examples.push_back(row);
  const auto add = [&](const std::string& name, std::int64_t length, auto value) {
    Array array({{{"batch", shape.sentences}, {"length", length}}, DType::I32});
    for (std::int64_t i = 0; i < array.elements(); ++i) array.as<std::int32_t>()[i] = value(i);
    batch.inputs.emplace(name, std::move(array));
  };
  const auto tokens = [&](const char* name) {
    const RandomKey key = random_key(1, name, step);
    return [this, key](std::int64_t i) {
      const double u = static_cast<double>(random_uniform_at(key, static_cast<std::uint64_t>(i)));
      return static_cast<std::int32_t>(1 + u * static_cast<double>(vocab_ - 1));
    };
  };
  add("target", shape.target_length, tokens("target"));
  if (shape.source_length > 0) {
    add("source", shape.source_length, tokens("source"));
  } else {
    add("segment", shape.target_length, [](std::int64_t) { return 1; });
    add("position", shape.target_length,
        [&](std::int64_t i) { return static_cast<std::int32_t>(i % shape.target_length); });
  }
  return batch;
}

}  // namespace tessera
