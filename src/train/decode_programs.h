// The programs of decoding: prefill, one step, re-ordering. One set per bucket of sizes, kept by the model.
#pragma once

#include "tessera/decode.h"

namespace tessera {

enum class Choice : std::uint8_t {
  Greedy,  // the step fetches the most probable token and its log probability
  Sample,  // all log probabilities
  Beam,    // the most probable 2 * beams tokens
};

// The smallest of few sizes that holds n: 8, 12, 16, 24, 32, 48, ...
std::int64_t bucket_of(std::int64_t n);

class DecodePrograms {
 public:
  // `candidates`: of the choice Beam.
  DecodePrograms(Model& model, const DecodeShape& shape, Choice choice, std::int64_t candidates);

  // source: i32 [rows, source_length], row-major.
  void prefill(const std::vector<std::int32_t>& source);
  Results step(const std::vector<std::int32_t>& tokens, std::int64_t position);
  void reorder(const std::vector<std::int32_t>& rows);

 private:
  Tensors step_targets(Graph& graph) const;

  Model& model_;
  DecodeShape shape_;
  Choice choice_;
  std::int64_t candidates_;
};

}  // namespace tessera
