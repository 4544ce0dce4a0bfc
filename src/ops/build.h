// What the builders and records of src/ops share: making nodes and checking calls.
#pragma once

#include <string>
#include <vector>

#include "base/check.h"
#include "tessera/ops.h"

namespace tessera {

// Appends a node to the graph of the first argument, at that argument's line. Throws UserError when an argument is unset.
Tensors make_all(const Op& op, const Args& inputs, Attrs attrs = {});
Tensor make(const Op& op, const Args& inputs, Attrs attrs = {});  // its first output

// --- checks for `infer`; all throw UserError that begins with the node's name -----------------------------------
void check_count(const Call& call, std::size_t inputs);
void check_same_dtype(const Call& call, std::size_t first = 0);  // of the inputs from `first` on
void check_floating(const Call& call, std::size_t input);
void check_dtype(const Call& call, std::size_t input, DType dtype);
void check_has(const Call& call, std::size_t input, const std::string& dim);
void check_sizes(const Call& call);  // one size per name over all inputs

// Common forms of `infer`: sizes checked, shapes broadcast by name in the order of the inputs.
Shape broadcast_inputs(const Call& call);
template <std::size_t N>
std::vector<Type> infer_floating(const Call& call) {
  check_count(call, N);
  check_same_dtype(call);
  check_floating(call, 0);
  return {{broadcast_inputs(call), call.in[0].dtype}};
}
template <std::size_t N>
std::vector<Type> infer_numeric(const Call& call) {  // floating or i32
  check_count(call, N);
  check_same_dtype(call);
  TESSERA_CHECK(call.in[0].dtype != DType::Bool, "{}: the inputs are bool; cast them to a number first", call.name);
  return {{broadcast_inputs(call), call.in[0].dtype}};
}

// `linear` for the usual cases.
inline bool linear_all(const Call&, int) { return true; }
inline bool linear_first(const Call&, int input) { return input == 0; }
inline bool linear_last(const Call& call, int input) { return input + 1 == static_cast<int>(call.in.size()); }

// --- helpers of gradients and expansions -----------------------------------------------------------------------
// Sums `x` over the dimensions that `shape` lacks and brings the others into its order.
Tensor sum_to(const Tensor& x, const Shape& shape);

// A scalar of the type of `like`.
Tensor scalar_like(const Tensor& like, double value);

// Statistics and losses are computed in f32 (f64 for f64), whatever the activations' type.
inline DType wide_type(DType type) { return type == DType::F64 ? DType::F64 : DType::F32; }

}  // namespace tessera
