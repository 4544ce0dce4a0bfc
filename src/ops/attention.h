// What attention and its gradient share: the reading of their attributes, reference kernels, expansions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ops/build.h"

namespace tessera {

// The optional inputs, in the order in which they follow q, k and v; attribute `with` lists those present.
inline constexpr const char* kAttentionInputs[] = {"query_positions", "memory_positions", "query_segments",
                                                   "memory_segments", "memory_ids",       "distance_bias"};

// A call of attention or attention_grad.
struct AttentionCall {
  explicit AttentionCall(const Call& call);

  const Call& call;
  std::string query, memory, feature, distance;  // dimensions
  bool causal = false;
  double scale = 1, rate = 0;
  Strings with, noise;

  int input(std::string_view name) const;               // its place among the inputs, -1 when absent
  std::size_t tail() const { return 3 + with.size(); }  // the first input behind the optional ones
  Shape rows() const { return call.in[0].shape.without(feature); }
  Shape weights() const { return rows().with(call.in[1].shape.get(memory)); }
  Type statistic() const { return {rows(), wide_type(call.in[0].dtype)}; }
};

void kernel_attention(KernelContext& c);
void kernel_attention_grad(KernelContext& c);
std::vector<Tensor> expand_attention(ExpandContext& c);
std::vector<Tensor> expand_attention_grad(ExpandContext& c);

}  // namespace tessera
