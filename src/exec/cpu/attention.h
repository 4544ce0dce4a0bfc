// Blockwise attention: what planning (attention.cpp) and the loops over blocks (attention-inl.h, compiled
// once per vector target) share.
//
// Queries and memory are cut into blocks; of the logits only one block of queries x memory exists at a time,
// in a thread's scratch. An item is one combination of the other dimensions (batch, heads). What a thread
// keeps is the keys and values of one item (and, backward, the sums of their gradients): linear in the
// memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "tessera/op.h"
#include "tessera/random.h"

namespace tessera {

constexpr int kAttentionBlock = 96;         // a multiple of every target's register tile, both ways
constexpr int kAttentionWidth = 32;         // features are padded to a multiple of this
constexpr int kAttentionMaskColumns = 32;   // queries whose dropout masks are drawn at once: at most so many
constexpr std::size_t kAttentionDims = 12;  // dimensions besides queries, memory and features

enum AttentionOperand : std::uint8_t {
  kQ,
  kK,
  kV,
  kY,
  kLogSum,
  kDy,
  kDlogSum,
  kDq,
  kDk,
  kDv,
  kQueryPositions,
  kMemoryPositions,
  kQuerySegments,
  kMemorySegments,
  kMemoryIds,
  kBias,
  kDbias,
  kAttentionOperands
};
template <class V>
using PerOperand = std::array<V, kAttentionOperands>;

struct AttentionPlan {
  struct Step {
    std::int64_t row = 0, feature = 0;  // along queries or memory; along features (of a bias: distances)
  };
  struct Dim {
    std::int64_t count = 1;
    PerOperand<std::int64_t> step{};
  };

  DType dtype = DType::F32;
  std::int64_t queries = 0, memory = 0, features = 0, distances = 0;
  std::int64_t items = 1;
  bool causal = false, backward = false;
  float scale = 1;
  DropoutRate dropout;
  PerOperand<Step> step{};
  std::vector<Dim> dims;  // of items, outermost first

  bool drops() const { return dropout.dropped > 0; }
  std::int64_t query_blocks() const { return (queries + kAttentionBlock - 1) / kAttentionBlock; }
  std::int64_t memory_blocks() const { return (memory + kAttentionBlock - 1) / kAttentionBlock; }
};

// One run: where the operands are (null: absent), and the global element indices of the dropout mask.
struct AttentionRun {
  PerOperand<char*> data{};
  std::uint64_t key = 0;
  std::int64_t first = 0, query_step = 0, memory_step = 0;
  std::array<std::int64_t, kAttentionDims> dim_step{};
};

// Extremes of a block of the memory, to see at once what is hidden. Keys and values are loaded when somebody
// sees the block.
struct AttentionExtremes {
  std::int32_t position_low, position_high, segment_low, segment_high;
  bool some_padding, all_padding, loaded;
};

// A thread's scratch: offsets in floats. Never more for smaller sizes.
struct AttentionScratch {
  AttentionScratch(std::int64_t memory, std::int64_t features, std::int64_t distances, bool backward,
                   bool dropout) {
    constexpr std::int64_t kSquare = std::int64_t{kAttentionBlock} * kAttentionBlock;
    constexpr std::int64_t kCounterHalves = 8;  // a mask's rows may begin within a counter
    width = up(features, kAttentionWidth);
    const std::int64_t rows = up(memory, kAttentionBlock), block = kAttentionBlock * width;
    k = take(rows * width);
    v = take(rows * width);
    q = take(block);
    q_columns = take(block);
    sums = take(block);
    weights = take(kSquare);
    if (dropout) mask = take((kAttentionBlock + kCounterHalves) * kAttentionMaskColumns / 2);
    extremes =
        take(rows / kAttentionBlock * static_cast<std::int64_t>(sizeof(AttentionExtremes) / sizeof(float)));
    bias = take(distances);
    if (!backward) return;
    dk = take(rows * width);
    dv = take(rows * width);
    dy = take(block);
    dy_columns = take(block);
    dlogits = take(kSquare);
    dbias = take(2 * distances);  // doubles
  }

  std::int64_t width = 0;
  std::int64_t k = 0, v = 0, q = 0, q_columns = 0, sums = 0, weights = 0, mask = 0, extremes = 0, bias = 0;
  std::int64_t dk = 0, dv = 0, dy = 0, dy_columns = 0, dlogits = 0, dbias = 0;
  std::int64_t floats = 0;

 private:
  static std::int64_t up(std::int64_t x, std::int64_t to) { return (x + to - 1) / to * to; }
  std::int64_t take(std::int64_t count) {
    const std::int64_t at = floats;
    floats += up(count, 16);
    return at;
  }
};

// What one thread does of one item.
struct AttentionPart {
  std::int64_t item = 0;
  std::int64_t query_begin = 0, query_step = 1;   // blocks of queries: begin, begin + step, ...
  std::int64_t memory_begin = 0, memory_end = 0;  // blocks of the memory
  bool dq = true, dkv = true;                     // backward: which gradients
  double* bias_sum = nullptr;     // backward: the gradient of the bias is added here, block by block, or
  double* bias_blocks = nullptr;  // each block of queries has its own place
};

}  // namespace tessera
