// Attention and its gradient from primitives: for layouts that split the memory or the features, and for
// second derivatives. Here the weights exist as a tensor.
#include <limits>

#include "ops/attention.h"
#include "ops/records.h"

namespace tessera {
namespace {

class Expansion {
 public:
  explicit Expansion(ExpandContext& c) : c_(c), a_(c.call), weights_(a_.weights()) {}

  const Tensor& in(std::size_t i) const { return c_.inputs[i]; }
  const AttentionCall& call() const { return a_; }
  const Shape& weights() const { return weights_; }

  // Scaled products plus bias, minus infinity where a query does not see.
  Tensor logits() const {
    Tensor x = scaled(einsum({widened(in(0)), widened(in(1))}, weights_));
    if (const Tensor bias = optional("distance_bias"); bias.valid()) {
      x = add(x, gather(bias, distances(), a_.distance));
    }
    const Tensor seen = visible();
    if (!seen.valid()) return x;
    const Tensor hidden = scalar_like(x, -std::numeric_limits<double>::infinity());
    return add(x, select(seen, scalar_like(x, 0), hidden));  // x first: its order of dimensions stays
  }

  // Memory position - query position, clipped, as an index of the bias.
  Tensor distances() const {
    const Tensor queries = optional("query_positions"), memory = optional("memory_positions");
    const std::int64_t reach = (optional("distance_bias").shape().size(a_.distance) - 1) / 2;
    const auto number = [&](std::int64_t n) { return scalar_like(queries, static_cast<double>(n)); };
    return add(maximum(minimum(sub(memory, queries), number(reach)), number(-reach)), number(reach));
  }

  // A new node of dropout of the weights; its mask depends on the key alone.
  Tensor dropped(const Tensor& x) const { return dropout(x, a_.rate, a_.noise); }
  Tensor scaled(const Tensor& x) const { return a_.scale == 1 ? x : scale(x, a_.scale); }
  Tensor like_input(const Tensor& x, std::size_t i) const {
    return cast(x.shape() == in(i).shape() ? x : ordered_like(x, in(i).shape()), in(i).dtype());
  }

 private:
  Tensor optional(std::string_view name) const {
    const int i = a_.input(name);
    return i < 0 ? Tensor() : in(static_cast<std::size_t>(i));
  }

  Tensor visible() const {
    Tensor all;
    const auto also = [&](const Tensor& seen) { all = all.valid() ? logical_and(all, seen) : seen; };
    if (a_.causal) also(greater_equal(optional("query_positions"), optional("memory_positions")));
    if (const Tensor queries = optional("query_segments"); queries.valid()) {
      also(equal(queries, optional("memory_segments")));
    }
    if (const Tensor ids = optional("memory_ids"); ids.valid()) also(not_equal(ids, scalar_like(ids, 0)));
    return all;
  }

  ExpandContext& c_;
  AttentionCall a_;
  Shape weights_;
};

}  // namespace

std::vector<Tensor> expand_attention(ExpandContext& c) {
  const Expansion e(c);
  const Tensor x = e.logits();
  const std::string& memory = e.call().memory;
  const Tensor max = maximum(stop_gradient(reduce_max(x, {memory})), scalar_like(x, lowest_of(x.dtype())));
  const Tensor exps = exp(x - max);
  const Tensor sum = reduce_sum(exps, {memory}), zero = scalar_like(sum, 0);
  const Tensor seen = greater(sum, zero), divisor = select(seen, sum, scalar_like(sum, 1));
  const Tensor weights = e.dropped(div(exps, divisor));
  const Tensor y = einsum({weights, widened(e.in(2))}, e.in(0).shape());
  return {e.like_input(y, 0), select(seen, add(log(divisor), max), zero)};
}

std::vector<Tensor> expand_attention_grad(ExpandContext& c) {
  const Expansion e(c);
  const AttentionCall& a = e.call();
  const std::size_t tail = a.tail();
  const Tensor y = widened(e.in(tail)), log_sum = e.in(tail + 1), dy = widened(e.in(tail + 2));
  const Tensor weights = exp(e.logits() - log_sum);
  Tensor level = reduce_sum(mul(dy, y), {a.feature});
  if (c.inputs.size() > tail + 3) level = sub(level, e.in(tail + 3));
  const Tensor dweights = e.dropped(einsum({dy, widened(e.in(2))}, e.weights()));
  const Tensor dlogits = mul(weights, sub(dweights, level));
  std::vector<Tensor> grads{e.like_input(e.scaled(einsum({dlogits, widened(e.in(1))}, e.in(0).shape())), 0),
                            e.like_input(e.scaled(einsum({dlogits, widened(e.in(0))}, e.in(1).shape())), 1),
                            e.like_input(einsum({e.dropped(weights), dy}, e.in(2).shape()), 2)};
  if (const int bias = a.input("distance_bias"); bias >= 0) {
    const Shape& shape = e.in(static_cast<std::size_t>(bias)).shape();
    const Tensor distances = e.distances();
    std::vector<Dim> kept;  // the others are summed before the scatter
    for (const Dim& dim : e.weights()) {
      if (distances.shape().has(dim.name) || shape.has(dim.name)) kept.push_back(dim);
    }
    const Tensor summed = sum_to(dlogits, Shape(std::move(kept)));
    grads.push_back(scatter_add(distances, summed, shape.get(a.distance), shape));
  }
  return grads;
}

}  // namespace tessera
