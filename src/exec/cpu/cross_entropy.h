// The data of cross-entropy rows, shared by all vector targets.
#pragma once

#include <cstdint>

#include "lang/row_part.h"
#include "tessera/dtype.h"

namespace tessera {

struct CrossEntropyPlan {
  DType dtype = DType::F32;              // of the logits
  DType gradient = DType::F32;           // of their gradient: the same; both at once also give BF16 for F32
  std::int64_t length = 0, classes = 0;  // of a local row; over all shards
  double on = 1, off = 0;                // weight of the target beyond the others', and of every class
  double z_loss = 0;
};

// `gradient` is null forward.
struct CrossEntropyRows {
  const void* logits = nullptr;
  const std::int32_t* targets = nullptr;
  const float *log_z = nullptr, *dloss = nullptr;
  float *loss = nullptr, *log_z_out = nullptr;
  std::int32_t* best = nullptr;  // forward, if wanted: the first largest logit; a NaN is the largest
  void* gradient = nullptr;
  std::int64_t gradient_pitch = 0;  // both at once: elements from row to row
  std::int64_t start = 0;           // global index of the first local class
  // Of rows whose classes lie on several shards: this shard's parts, all shards', and what it adds to the
  // loss.
  RowPart<float>* part = nullptr;
  const RowPart<float>* all = nullptr;
  std::int64_t pitch = 0;  // of `all`, from shard to shard
  int shards = 1;
  bool leads = true;  // adds to the loss what belongs to the whole row
  float *at_target = nullptr,
        *smoothed = nullptr;  // logit of a local target; sum of the logits, for smoothing
};

// Rows [begin, end), forward or backward.
void cross_entropy_over(const CrossEntropyPlan& plan, const CrossEntropyRows& rows, std::int64_t begin,
                        std::int64_t end);

// The same rows forward and backward at once, of whole rows of f32 logits: sets `loss` and `gradient`, from
// `targets` and `dloss`. Overwrites the logits; the gradient's rows may lie where theirs begin.
void cross_entropy_both(const CrossEntropyPlan& plan, const CrossEntropyRows& rows, float* logits,
                        std::int64_t begin, std::int64_t end);

// The same in two halves, for classes on several shards, which meet between them. First: sets `part`,
// `at_target` and `smoothed`. Where there is a gradient, the logits become their exponentials; else `part`
// has the best class.
void cross_entropy_parts(const CrossEntropyPlan& plan, const CrossEntropyRows& rows, float* logits,
                         std::int64_t begin, std::int64_t end);

// Second, with `all`: sets `loss`, which the shards' sum is, and `gradient`, or `best`: 0 where it is another
// shard's.
void cross_entropy_wholes(const CrossEntropyPlan& plan, const CrossEntropyRows& rows, float* logits,
                          std::int64_t begin, std::int64_t end);

}  // namespace tessera
