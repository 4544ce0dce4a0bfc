// Builders, one per op; docs/ops.md (generated from the records) has the exact semantics, roles and
// gradients.
//
// All builders take dimensions by name. Mixed element types are an error: cast explicitly; plain numbers take
// the tensor's type. Every builder throws UserError when shapes or types do not fit, naming the op, the scope
// and the caller's line.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/graph.h"
#include "tessera/op.h"

namespace tessera {

using Tensors = std::vector<Tensor>;
using Args = std::vector<Arg>;
using Where = std::source_location;

// Every op record, in the order of docs/ops.md. The table of contents of src/ops.
std::span<const Op* const> all_ops();
const Op* find_op(std::string_view name);  // nullptr when absent

// --- component-wise, one input
// -------------------------------------------------------------------------------
Tensor identity(Arg x);
Tensor neg(Arg x);
Tensor abs(Arg x);  // gradient 0 at 0
Tensor sign(Arg x);
Tensor square(Arg x);
Tensor sqrt(Arg x);
Tensor rsqrt(Arg x);
Tensor reciprocal(Arg x);
Tensor exp(Arg x);
Tensor log(Arg x);
Tensor sin(Arg x);
Tensor cos(Arg x);
Tensor tanh(Arg x);
Tensor sigmoid(Arg x);
Tensor softplus(Arg x);  // log(1 + exp(x)), without overflow
Tensor relu(Arg x);      // gradient 0 at 0
Tensor leaky_relu(Arg x, double alpha = 0.2);
Tensor elu(Arg x);
Tensor selu(Arg x);
Tensor swish(Arg x);     // x * sigmoid(x)
Tensor gelu(Arg x);      // tanh form
Tensor gelu_erf(Arg x);  // exact form
Tensor erf(Arg x);
Tensor floor(Arg x);
Tensor logical_not(Arg x);
Tensor is_finite(Arg x);              // bool
Tensor scale(Arg x, double factor);   // x * factor; keeps pending sums
Tensor offset(Arg x, double addend);  // x + addend
Tensor pow(Arg x, double exponent);
Tensor cast(Arg x, DType type);  // x itself when the type is equal
Tensor stop_gradient(Arg x);

// --- component-wise, two and three inputs, broadcasting by name (broadcast_shape in dim.h)
// ---------------------
Tensor add(Arg a, Arg b);
Tensor sub(Arg a, Arg b);
Tensor mul(Arg a, Arg b);
Tensor div(Arg a, Arg b);
Tensor floordiv(Arg a, Arg b);  // rounds towards minus infinity; no gradient
Tensor mod(Arg a, Arg b);       // sign of the divisor; no gradient
Tensor pow(Arg a, Arg b);
Tensor minimum(Arg a, Arg b);  // gradient shared equally on ties
Tensor maximum(Arg a, Arg b);
Tensor less(Arg a, Arg b);
Tensor less_equal(Arg a, Arg b);
Tensor greater(Arg a, Arg b);
Tensor greater_equal(Arg a, Arg b);
Tensor equal(Arg a, Arg b);
Tensor not_equal(Arg a, Arg b);
Tensor logical_and(Arg a, Arg b);
Tensor logical_or(Arg a, Arg b);
Tensor select(Arg condition, Arg a, Arg b);  // never multiplies: NaN of the branch not taken does not leak

inline Tensor operator+(Arg a, Arg b) {
  return add(a, b);
}
inline Tensor operator-(Arg a, Arg b) {
  return sub(a, b);
}
inline Tensor operator*(Arg a, Arg b) {
  return mul(a, b);
}
inline Tensor operator/(Arg a, Arg b) {
  return div(a, b);
}
inline Tensor operator-(Arg a) {
  return neg(a);
}
inline Tensor operator+(Arg a, double b) {
  return offset(a, b);
}
inline Tensor operator+(double a, Arg b) {
  return offset(b, a);
}
inline Tensor operator-(Arg a, double b) {
  return offset(a, -b);
}
inline Tensor operator-(double a, Arg b) {
  return offset(neg(b), a);
}
inline Tensor operator*(Arg a, double b) {
  return scale(a, b);
}
inline Tensor operator*(double a, Arg b) {
  return scale(b, a);
}
inline Tensor operator/(Arg a, double b) {
  return scale(a, 1.0 / b);
}
inline Tensor operator/(double a, Arg b) {
  return scale(reciprocal(b), a);
}

// --- contraction and reductions
// -------------------------------------------------------------------------------- Multiplies all inputs,
// broadcast to the union of their dimensions, and sums down to `output`. Without `output`: sums every
// dimension that occurs in two or more inputs, keeps the others in order of first appearance. More than two
// inputs are contracted pairwise in an order fixed here (cheapest first), independent of the layout.
Tensor einsum(const Args& inputs, const Shape& output, Where where = Where::current());
Tensor einsum(const Args& inputs, Where where = Where::current());

// Reduce over `dims`; an empty list reduces all dimensions. max/min gradients share equally among ties.
Tensor reduce_sum(Arg x, const Strings& dims = {});
Tensor reduce_mean(Arg x, const Strings& dims = {});
Tensor reduce_max(Arg x, const Strings& dims = {});
Tensor reduce_min(Arg x, const Strings& dims = {});
Tensor reduce_any(Arg x, const Strings& dims = {});
Tensor reduce_all(Arg x, const Strings& dims = {});
Tensor argmax(Arg x, const std::string& dim);  // i32; lowest index on ties
Tensor log_sum_exp(Arg x, const std::string& dim);

// --- normalisation and losses (fused; lowered through primitives when `dim` is split)
// -----------------------------
Tensor softmax(Arg x, const std::string& dim);  // a row of -inf gives zeros
Tensor log_softmax(Arg x, const std::string& dim);
Tensor layer_norm(Arg x, Arg scale, Arg bias, const std::string& dim, double epsilon = 1e-6);
Tensor rms_norm(Arg x, Arg scale, const std::string& dim,
                double epsilon = 1e-6);  // x * rsqrt(mean(x^2)+eps) * scale

// Loss per element of targets (i32, the dimensions of logits but `dim`), f32 (f64 for f64 logits):
//   -sum_v q_v log p_v + z_loss * log(Z)^2,   q = (1 - s) onehot + s / V,  s = label_smoothing.
// A target outside [0, V) gives z_loss * log(Z)^2 only.
struct CrossEntropy {
  double label_smoothing = 0, z_loss = 0;
};
Tensor cross_entropy(Arg logits, Arg targets, const std::string& dim, CrossEntropy options = {});

// The same of the logits x . table, x [rows..., width], table [dim, width] of one type, without the logits.
struct LinearCrossEntropy {
  Tensor loss, best;  // of each row: its loss; i32, the class with the largest logit (lowest on ties)
};
LinearCrossEntropy linear_cross_entropy(Arg x, Arg table, Arg targets, const std::string& dim,
                                        CrossEntropy options = {});
// For training: sum(weights * loss), whose gradients are made together with it. weights: in the type of the
// loss, the dimensions of targets.
struct LinearCrossEntropySum {
  Tensor sum, loss;  // scalar; of each row, unweighted
};
LinearCrossEntropySum linear_cross_entropy_sum(Arg x, Arg table, Arg targets, Arg weights,
                                               const std::string& dim, CrossEntropy options = {});

// --- attention (fused; lowered through primitives when the memory or the features are split)
// ------------------------------------------------------------------------------------------
// What each query sees of the memory; absent inputs are empty Tensors. All broadcast by name against the
// queries or the memory, so each is linear in the lengths.
struct AttentionMask {
  bool causal = false;                                 // a query sees positions up to its own
  Tensor query_positions = {}, memory_positions = {};  // i32; needed by `causal` and `distance_bias`
  Tensor query_segments = {}, memory_segments = {};    // i32: a query sees equal ones (packed sequences)
  Tensor memory_ids = {};                              // i32: 0 is padding, which nobody sees
  Tensor distance_bias = {};  // f32 (f64 for f64), [.., distance: 2 n + 1]: added to the logits, by memory
                              // position - query position clipped to -n .. n
};
struct AttentionSpec {
  std::string query = "length", memory = "memory_length", feature = "d_kv", distance = "distance";
  double scale = 1;    // of the products of q and k
  double dropout = 0;  // rate, on the weights
  Strings noise = {};  // dimensions over which its mask varies; empty: all
};
struct Attention {
  Tensor output;  // like q
  Tensor
      log_sum;  // the dimensions of q but `feature`: log of the sum of exp(logits), 0 where nothing is seen
};
// softmax(scale * q k + bias) v without a tensor of queries x memory. k and v have `memory` where q has
// `query`, and else the same dimensions. A query that sees nothing gives zeros.
Attention attention(Arg q, Arg k, Arg v, const AttentionMask& mask = {}, const AttentionSpec& spec = {});

// --- sources
// ---------------------------------------------------------------------------------------------------
Tensor constant(Graph& graph, double value, const Shape& shape, DType dtype = DType::F32,
                Where where = Where::current());
Tensor constant(Graph& graph, const Doubles& values, const Shape& shape, DType dtype = DType::F32,
                Where where = Where::current());
Tensor zeros_like(Arg x);
Tensor ones_like(Arg x);
Tensor range(Graph& graph, const Dim& dim, DType dtype = DType::I32, Where where = Where::current());
// Random sources: values depend on seed, node name, step and global element index only. With a run window on
// a dimension (Session), the index is taken in the whole window's space.
Tensor random_uniform(Graph& graph, const Shape& shape, double low = 0, double high = 1,
                      DType dtype = DType::F32, Where where = Where::current());
Tensor random_normal(Graph& graph, const Shape& shape, double mean = 0, double stddev = 1,
                     DType dtype = DType::F32, Where where = Where::current());
Tensor random_truncated_normal(Graph& graph, const Shape& shape, double mean = 0, double stddev = 1,
                               DType dtype = DType::F32, Where where = Where::current());
Tensor random_bernoulli(Graph& graph, const Shape& shape, double probability, DType dtype = DType::F32,
                        Where where = Where::current());
// x * mask / keep; the mask varies over `noise` dimensions only (empty: all dimensions of x). The rate is
// taken as DropoutRate (tessera/random.h) does, in units of 2^-16.
Tensor dropout(Arg x, double rate, const Strings& noise = {});

// --- data movement
// -----------------------------------------------------------------------------------------------
Tensor broadcast(Arg x, const Shape& shape);    // shape holds all dimensions of x, in any order
Tensor transpose(Arg x, const Strings& order);  // a permutation of x's dimensions
Tensor rename(Arg x, const Renames& pairs);     // all pairs at once
Tensor reshape(Arg x, const Shape& shape);      // row-major, equal number of elements
Tensor merge(Arg x, const Strings& dims, const std::string& into);   // adjacent dimensions, major first
Tensor split_dim(Arg x, const std::string& dim, const Shape& into);  // major first
Tensor slice(Arg x, const std::string& dim, std::int64_t begin, std::int64_t size);
Tensor pad(Arg x, const std::string& dim, std::int64_t before, std::int64_t after, double value = 0);
Tensor concat(const Args& xs, const std::string& dim, Where where = Where::current());
Tensors split(Arg x, const std::string& dim, const Ints& sizes);
Tensor stack(const Args& xs, const std::string& dim, Where where = Where::current());  // new first dimension
Tensors unstack(Arg x, const std::string& dim);

// --- indexing
// ------------------------------------------------------------------------------------------------------
Tensor one_hot(Arg indices, const Dim& dim, double on = 1, double off = 0,
               DType dtype = DType::F32);  // outside: all off
// Rows of `table` along `dim`: dimensions of indices, then those of table but `dim`. Shared names are
// batched. An index outside gives a zero row.
Tensor gather(Arg table, Arg indices, const std::string& dim);
// The sum over equal indices: out[dim, rest] = sum over i of updates[i, rest] where indices[i] == index along
// `dim`.
Tensor scatter_add(Arg indices, Arg updates, const Dim& dim, const Shape& output);
Tensor dynamic_slice(Arg x, Arg start, const std::string& dim,
                     std::int64_t size);  // start: i32 scalar, clamped to fit
Tensor update_slice(Arg x, Arg update, Arg start,
                    const std::string& dim);  // start: i32 scalar, clamped to fit
struct TopK {
  Tensor values, indices;
};
TopK top_k(Arg x, const std::string& dim, const Dim& k);  // descending; lowest index on ties; k last
Tensor cumsum(Arg x, const std::string& dim, bool exclusive = false, bool reverse = false);

}  // namespace tessera
