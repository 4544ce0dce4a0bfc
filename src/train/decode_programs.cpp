// Builds, compiles and runs the programs of decoding.
#include "train/decode_programs.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "train/model_impl.h"

namespace tessera {
namespace {

Array ints(const Shape& shape, const std::vector<std::int32_t>& values) {
  Array array({shape, DType::I32});
  TESSERA_ASSERT(array.elements() == static_cast<std::int64_t>(values.size()), "{} values for {}",
                 values.size(), to_string(shape));
  std::memcpy(array.data.data(), values.data(), array.data.size());
  return array;
}

}  // namespace

std::int64_t bucket_of(std::int64_t n) {
  std::int64_t size = 8;
  while (size < n) size = size % 3 == 0 ? size / 3 * 4 : size / 2 * 3;
  return size;
}

DecodePrograms::DecodePrograms(Model& model, const DecodeShape& shape, Choice choice, std::int64_t candidates)
    : model_(model), shape_(shape), choice_(choice), candidates_(candidates) {
  shape_.cache = fmt::format("cache_{}_{}_{}", shape.batch, shape.capacity, shape.source_length);
}

void DecodePrograms::prefill(const std::vector<std::int32_t>& source) {
  const Model::Built built = model_.program(shape_.cache + "/prefill", [this](Graph& graph) {
    return build_prefill(graph, model_.config().model, shape_);
  });
  const FeedMap feeds{{"source", ints({{"batch", shape_.batch}, {"length", shape_.source_length}}, source)}};
  model_.session().run(built.program, feeds);
}

Tensors DecodePrograms::step_targets(Graph& graph) const {
  const DecodeOutputs out = build_decode(graph, model_.config().model, shape_);
  Tensors targets;
  switch (choice_) {
    case Choice::Greedy:
      targets = {argmax(out.logits, "vocab"),
                 sub(reduce_max(out.logits, {"vocab"}), log_sum_exp(out.logits, "vocab"))};
      break;
    case Choice::Sample:
      targets = {log_softmax(out.logits, "vocab")};
      break;
    case Choice::Beam: {
      const TopK best = top_k(log_softmax(out.logits, "vocab"), "vocab", {"candidates", candidates_});
      targets = {best.indices, best.values};
      break;
    }
  }
  targets.insert(targets.end(), out.assignments.begin(), out.assignments.end());
  return targets;
}

Results DecodePrograms::step(const std::vector<std::int32_t>& tokens, std::int64_t position) {
  const std::string key = fmt::format("{}/step_{}_{}", shape_.cache, static_cast<int>(choice_), candidates_);
  const Model::Built built = model_.program(key, [this](Graph& graph) { return step_targets(graph); });
  const FeedMap feeds{{"token", ints({{"batch", shape_.batch}, {"length", 1}}, tokens)},
                      {"position", ints({}, {static_cast<std::int32_t>(position)})}};
  return model_.session().run(built.program, feeds);
}

void DecodePrograms::reorder(const std::vector<std::int32_t>& rows) {
  const Model::Built built = model_.program(shape_.cache + "/reorder", [this](Graph& graph) {
    return build_reorder(graph, model_.config().model, shape_);
  });
  model_.session().run(built.program, FeedMap{{"rows", ints({{"batch", shape_.batch}}, rows)}});
}

}  // namespace tessera
