// What the component-wise, contraction and fused records share beyond infer.h: nodes of several inputs, type
// inference that broadcasts by name, and helpers of gradients and expansions.
#pragma once

#include <string>
#include <vector>

#include "ops/infer.h"

namespace tessera {

// Appends a node at the line of the first argument; its first output. Throws UserError when an argument is
// unset.
Tensor make(const Op& op, const Args& inputs, Attrs attrs = {});

// --- checks for `infer`; the messages begin with the op's name, Graph::add appends the place
// ---------------------
void check_same_dtype(const Call& call);
void check_floating(const Call& call, std::size_t input);
void check_dtype(const Call& call, std::size_t input, DType dtype);
void check_has(const Call& call, std::size_t input, const std::string& dim);

// The shape that all inputs broadcast to, in order.
Shape broadcast_inputs(const Call& call);

// Component-wise ops of N inputs of one type: floating; floating or i32; bool.
enum class Numbers { Floating, Numeric, Bool, Any };
Type infer_broadcast(const Call& call, std::size_t inputs, Numbers allowed);

template <std::size_t N>
std::vector<Type> infer_floating(const Call& call) {
  return {infer_broadcast(call, N, Numbers::Floating)};
}
template <std::size_t N>
std::vector<Type> infer_numeric(const Call& call) {
  return {infer_broadcast(call, N, Numbers::Numeric)};
}
template <std::size_t N>
std::vector<Type> infer_bool(const Call& call) {
  return {infer_broadcast(call, N, Numbers::Bool)};
}

// `linear` for the usual cases.
inline bool linear_first(const Call&, int input) {
  return input == 0;
}
inline bool linear_last(const Call& call, int input) {
  return input + 1 == static_cast<int>(call.in.size());
}

// --- helpers of gradients and expansions
// ------------------------------------------------------------------------- Sums `x` over the dimensions that
// `shape` lacks and brings the others into its order.
Tensor sum_to(const Tensor& x, const Shape& shape);

// A scalar of the type of `like`.
Tensor scalar_like(const Tensor& like, double value);

// Statistics and losses are computed in f32 (f64 for f64), whatever the activations' type.
inline DType wide_type(DType type) {
  return type == DType::F64 ? DType::F64 : DType::F32;
}
inline Tensor widened(const Tensor& x) {
  return cast(x, wide_type(x.dtype()));
}

// The most negative finite value of the type: stands in for the maximum of an empty or fully masked row, so
// that x - max is -inf and not NaN.
double lowest_of(DType type);

// log_sum_exp from primitives, for expansions; x is f32 or f64.
Tensor stable_log_sum_exp(const Tensor& x, const std::string& dim);

}  // namespace tessera
