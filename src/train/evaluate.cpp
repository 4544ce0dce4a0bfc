// Exact loss of a data set: sums over every example, the short last batch included.
#include <chrono>

#include "base/check.h"
#include "tessera/train.h"
#include "train/feeds.h"
#include "train/step_graph.h"

namespace tessera {
namespace {

enum Fetch : std::size_t { kNats, kTokens, kCorrect };

bool is_real(const Batch& batch, std::size_t row) {
  return batch.examples[row] >= 0;
}

void copy_row(const std::vector<std::int32_t>& row, Array& into, std::size_t at) {
  const auto width = static_cast<std::size_t>(into.type.shape[1].size);
  std::int32_t* out = into.as<std::int32_t>() + at * width;
  for (std::size_t i = 0; i < width; ++i) out[i] = i < row.size() ? row[i] : kPadId;
  if (row.size() > width) out[width - 1] = kEosId;
}

std::vector<std::int32_t> row_of(const Array& array, std::size_t at) {
  const auto width = static_cast<std::size_t>(array.type.shape[1].size);
  const std::int32_t* begin = array.as<std::int32_t>() + at * width;
  return {begin, begin + width};
}

// Gives every real row the source of the real row before it; the first one takes `carry`, the last source of
// an earlier batch, or the last one of its own. Returns the source that was left over, to be carried on.
std::vector<std::int32_t> rotate_sources(Batch& batch, const std::vector<std::int32_t>& carry) {
  Array& source = batch.inputs.at("source");
  std::vector<std::int32_t> previous = carry;
  std::size_t last = 0;
  for (std::size_t row = 0; row < batch.examples.size(); ++row)
    if (is_real(batch, row)) last = row;
  if (previous.empty()) previous = row_of(source, last);
  for (std::size_t row = 0; row < batch.examples.size(); ++row) {
    if (!is_real(batch, row)) continue;
    std::vector<std::int32_t> own = row_of(source, row);
    copy_row(previous, source, row);
    previous = std::move(own);
  }
  return previous;
}

Model::Built evaluation_program(Model& model, const BatchShape& shape) {
  const ModelShape sizes = model_shape(model.config(), shape);
  const std::string key = fmt::format("evaluate/{}/{}/{}/{}", sizes.batch, sizes.source_length,
                                      sizes.target_length, sizes.packed);
  return model.program(key, [&](Graph& graph) -> Tensors {
    const TransformerOutputs out =
        build_transformer_loss(graph, model.config().model, sizes, ModelMode::Evaluate);
    return {out.loss.sum, out.loss.weight, out.correct};
  });
}

}  // namespace

Evaluation evaluate(Model& model, const Dataset& data, const EvaluateOptions& options) {
  const bool has_source = model.config().model.kind == ModelKind::EncoderDecoder;
  TESSERA_CHECK(!options.shuffle_sources || has_source,
                "evaluate: a language model has no sources to shuffle; leave out shuffle_sources");
  const auto begin = std::chrono::steady_clock::now();
  const std::int64_t all = data.evaluation_batches();
  const std::int64_t count = options.batches > 0 ? std::min(options.batches, all) : all;
  Evaluation result;
  double correct = 0;
  std::vector<std::int32_t> carry;
  if (options.shuffle_sources && all > 1) {
    // Batches are carried around in a ring, so that a batch of one sentence gets another one's source too.
    const Batch last = data.evaluation_batch(count > 1 ? count - 1 : all - 1);
    for (std::size_t row = 0; row < last.examples.size(); ++row)
      if (is_real(last, row)) carry = row_of(last.inputs.at("source"), row);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    Batch batch = data.evaluation_batch(i);
    if (options.shuffle_sources) carry = rotate_sources(batch, carry);
    const Model::Built built = evaluation_program(model, data.shapes()[batch.shape]);
    const Results results = model.session().run(built.program, feeds_of(batch));
    result.perplexity.nats += results.scalar(kNats);
    result.perplexity.tokens += batch.tokens;
    result.perplexity.words += batch.words;
    result.perplexity.bytes += batch.bytes;
    correct += results.scalar(kCorrect);
    ++result.batches;
  }
  if (result.perplexity.tokens > 0) result.accuracy = correct / static_cast<double>(result.perplexity.tokens);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace tessera
