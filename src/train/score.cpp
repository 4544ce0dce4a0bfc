// Log probabilities of given texts.
#include <algorithm>
#include <span>

#include "base/check.h"
#include "tessera/train.h"
#include "train/decode_programs.h"
#include "train/feeds.h"
#include "train/step_graph.h"

namespace tessera {
namespace {

constexpr std::size_t kRows = 16;

struct Row {
  std::size_t index = 0;
  std::vector<std::int32_t> source, target;
};

std::vector<std::int32_t> encoded(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::int32_t> ids = tokenizer.encode(text);
  ids.push_back(kEosId);
  return ids;
}

void check_length(std::size_t tokens, std::int64_t most, const char* side, const char* key,
                  std::size_t line) {
  if (static_cast<std::int64_t>(tokens) <= most) return;
  throw UserError(
      fmt::format("score: line {}: the {} has {} tokens with its end, but data.{} = {}; split or shorten it",
                  line + 1, side, tokens, key, most),
      ExitCode::BadData);
}

std::vector<Row> rows_of(const Model& model, const std::vector<TextExample>& examples) {
  const DataConfig& data = model.config().data;
  const bool has_source = model.config().model.kind == ModelKind::EncoderDecoder;
  std::vector<Row> rows;
  for (std::size_t i = 0; i < examples.size(); ++i) {
    Row row{i, {}, encoded(model.tokenizer(), has_source ? examples[i].target : examples[i].source)};
    check_length(row.target.size(), data.max_target_length, has_source ? "target" : "text",
                 "max_target_length", i);
    if (has_source) {
      row.source = encoded(model.tokenizer(), examples[i].source);
      check_length(row.source.size(), data.max_source_length, "source", "max_source_length", i);
    }
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.target.size() > b.target.size(); });
  return rows;
}

Array padded(std::size_t rows, std::int64_t width, const std::vector<std::span<const std::int32_t>>& values) {
  Array array({{{"batch", static_cast<std::int64_t>(rows)}, {"length", width}}, DType::I32});
  for (std::size_t r = 0; r < values.size(); ++r)
    std::copy(values[r].begin(), values[r].end(),
              array.as<std::int32_t>() + static_cast<std::int64_t>(r) * width);
  return array;
}

void score_rows(Model& model, std::span<const Row> rows, std::vector<ScoredText>& results) {
  const bool has_source = model.config().model.kind == ModelKind::EncoderDecoder;
  ModelShape shape{.batch = rows.size() == 1 ? 1 : static_cast<std::int64_t>(kRows)};
  std::size_t source = 0, target = 0;
  Batch batch;
  std::vector<std::span<const std::int32_t>> sources, targets;
  for (const Row& row : rows) {
    source = std::max(source, row.source.size());
    target = std::max(target, row.target.size());
    sources.emplace_back(row.source);
    targets.emplace_back(row.target);
  }
  const DataConfig& data = model.config().data;
  shape.target_length = std::min(bucket_of(static_cast<std::int64_t>(target)), data.max_target_length);
  const auto count = static_cast<std::size_t>(shape.batch);
  batch.inputs.emplace("target", padded(count, shape.target_length, targets));
  if (has_source) {
    shape.source_length = std::min(bucket_of(static_cast<std::int64_t>(source)), data.max_source_length);
    batch.inputs.emplace("source", padded(count, shape.source_length, sources));
  }
  const std::string key =
      fmt::format("score/{}/{}/{}", shape.batch, shape.source_length, shape.target_length);
  const Model::Built built = model.program(key, [&](Graph& graph) -> Tensors {
    return {build_transformer_loss(graph, model.config().model, shape, ModelMode::Evaluate).loss.tokens};
  });
  const Array losses = model.session().run(built.program, feeds_of(batch)).gather(0);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    ScoredText& result = results[rows[r].index];
    result.tokens = static_cast<std::int64_t>(rows[r].target.size());
    for (std::int64_t t = 0; t < result.tokens; ++t)
      result.log_probability -= losses.get(static_cast<std::int64_t>(r) * shape.target_length + t);
  }
}

}  // namespace

std::vector<ScoredText> score(Model& model, const std::vector<TextExample>& examples) {
  const std::vector<Row> rows = rows_of(model, examples);
  std::vector<ScoredText> results(examples.size());
  for (std::size_t begin = 0; begin < rows.size(); begin += kRows) {
    const std::size_t count = std::min(kRows, rows.size() - begin);
    score_rows(model, {rows.data() + begin, count}, results);
  }
  return results;
}

}  // namespace tessera
