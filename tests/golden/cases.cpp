#include "golden/cases.h"

namespace tessera::testing {
namespace {

std::vector<Tensor> feed_forward(Graph& g) {
  Dim batch{"batch", 4}, length{"length", 6}, d_model{"d_model", 8}, d_ff{"d_ff", 16};
  Tensor x = g.input("x", {batch, length, d_model});
  Tensor wi = g.parameter("wi", {d_model, d_ff}, Initializer::normal(0.1));
  Tensor wo = g.parameter("wo", {d_ff, d_model}, Initializer::normal(0.1));
  Tensor h = relu(einsum({x, wi}, {batch, length, d_ff}));
  Tensor y = x + einsum({h, wo}, {batch, length, d_model});
  Tensors grads = gradients({reduce_sum(square(y))}, {x, wi, wo});
  return {y, grads[0], grads[1], grads[2]};
}

struct AttentionLayer {
  Tensor weight, y;  // that of the keys; the result
};

AttentionLayer attention_layer(Graph& g) {
  Dim batch{"batch", 2}, length{"length", 6}, d_model{"d_model", 8}, heads{"heads", 4}, d_kv{"d_kv", 2};
  Tensor x = g.input("x", {batch, length, d_model});
  auto weight = [&](const char* name) {
    return g.parameter(name, {d_model, heads, d_kv}, Initializer::normal(0.1));
  };
  auto project = [&](Tensor w) { return einsum({x, w}, {batch, length, heads, d_kv}); };
  auto as_memory = [](Tensor t) { return rename(t, {{"length", "memory_length"}}); };
  Tensor wk = weight("k");
  Tensor q = project(weight("q")), k = as_memory(project(wk)), v = as_memory(project(weight("v")));
  AttentionMask mask;
  mask.causal = true;
  mask.query_positions = range(g, length);
  mask.memory_positions = range(g, {"memory_length", 6});
  Tensor o = attention(q, k, v, mask, {.scale = 0.5}).output;
  Tensor wo = g.parameter("o", {heads, d_kv, d_model}, Initializer::normal(0.1));
  return {wk, einsum({o, wo}, {batch, length, d_model})};
}

std::vector<Tensor> attention_forward(Graph& g) {
  return {attention_layer(g).y};
}

std::vector<Tensor> attention_training(Graph& g) {
  const AttentionLayer layer = attention_layer(g);
  return {layer.y, gradients({layer.y}, {layer.weight})[0]};
}

std::vector<Tensor> vocab_loss(Graph& g) {
  Dim batch{"batch", 4}, length{"length", 3}, d_model{"d_model", 8}, vocab{"vocab", 10};
  Tensor x = g.input("x", {batch, length, d_model});
  Tensor table = g.parameter("table", {vocab, d_model}, Initializer::normal(0.1));
  Tensor target = g.input("target", {batch, length}, DType::I32);
  Tensor loss = reduce_sum(cross_entropy(einsum({x, table}, {batch, length, vocab}), target, "vocab"));
  return {loss, gradients({loss}, {table})[0]};
}

std::vector<Tensor> stored_parameters(Graph& g) {
  Dim batch{"batch", 4}, d_in{"d_in", 6}, d_out{"d_out", 10};
  Tensor x = g.input("x", {batch, d_in});
  Tensor w = g.parameter("w", {d_in, d_out}, Initializer::normal(0.1));
  Tensor loss = reduce_sum(square(einsum({x, w}, {batch, d_out})));
  Tensors grads = gradients({loss}, {w, x});
  Graph::RegionScope update(g, Region::Update);
  Tensor m = g.variable(VariableKind::Slot, "w/m", w.type(), {}, "w");
  Tensor m_new = 0.9 * m + 0.1 * grads[0];
  return {loss, grads[1], g.assign(m, m_new), g.assign(w, w - 0.01 * m_new)};
}

std::vector<Tensor> renamed(Graph& g) {
  Dim batch{"batch", 4}, experts{"experts_unsplit", 6}, d_model{"d_model", 3};
  Tensor x = g.input("x", {experts, batch, d_model});
  return {rename(x, {{"experts_unsplit", "experts"}, {"batch", "batch_unsplit"}})};
}

std::vector<Tensor> row_parallel(Graph& g) {
  Dim batch{"batch", 4}, d_in{"d_in", 6}, plain{"plain", 10};
  Tensor x = g.input("x", {batch, d_in});
  Tensor w = g.parameter("w", {d_in, plain}, Initializer::normal(0.1));
  return {square(rename(einsum({x, w}, {batch, plain}), {{"plain", "d_out"}}))};
}

std::vector<Tensor> projected_loss(Graph& g) {
  Dim batch{"batch", 4}, length{"length", 3}, d_model{"d_model", 8}, vocab{"vocab", 10};
  Tensor x = g.input("x", {batch, length, d_model});
  Tensor table = g.parameter("table", {vocab, d_model}, Initializer::normal(0.1));
  Tensor target = g.input("target", {batch, length}, DType::I32);
  Tensor weight = g.input("weight", {batch, length});
  Tensor loss = linear_cross_entropy_sum(x, table, target, weight, "vocab").sum;
  Tensors grads = gradients({loss}, {x, table});
  return {loss, grads[0], grads[1]};
}

}  // namespace

std::vector<Tensor> build_two_layers(Graph& g, const TwoLayers& s) {
  Dim batch{"batch", s.batch}, io{"d_io", s.io}, hidden{"d_h", s.hidden};
  Tensor x = g.input("x", {batch, io});
  Tensor dy = g.input("dy", {batch, io});
  Tensor w = g.parameter("w", {io, hidden}, Initializer::normal(0.1));
  Tensor v = g.parameter("v", {hidden, io}, Initializer::normal(0.1));
  Tensor h = relu(einsum({x, w}, {batch, hidden}));
  Tensor y = einsum({h, v}, {batch, io});
  Tensors grads = gradients({y}, {w, v}, {dy});
  return {y, grads[0], grads[1]};
}

const std::vector<GoldenCase>& golden_cases() {
  static const std::vector<GoldenCase> cases{
      {"feed_forward_megatron", "cols:2", "d_ff:cols", feed_forward},
      {"feed_forward_2d", "rows:2;cols:3", "batch:rows;d_ff:cols", feed_forward},
      {"attention_heads", "cols:2", "heads:cols", attention_forward},
      {"attention_length", "rows:2", "length:rows", attention_training},
      {"split_vocab_loss", "cols:3", "vocab:cols", vocab_loss},
      {"split_vocab_projection", "rows:2;cols:3", "batch:rows;vocab:cols", projected_loss},
      {"zero3", "rows:2", "batch:rows;params.*:rows;slots.*:rows", stored_parameters},
      {"zero1", "rows:2", "batch:rows;slots.*:rows", stored_parameters},
      {"rename_all_to_all", "rows:2", "batch:rows;experts:rows", renamed},
      {"row_parallel_reduce_scatter", "cols:2", "d_in:cols;d_out:cols", row_parallel},
  };
  return cases;
}

}  // namespace tessera::testing
