// Checks and small builders that the records of this folder share.
#pragma once

#include <string>
#include <utility>

#include "base/check.h"
#include "tessera/ops.h"

namespace tessera {

// A dimension that a tensor of the call must have.
inline const Dim& dim_of(const Call& call, const Shape& shape, const std::string& dim, const char* what) {
  TESSERA_CHECK(shape.has(dim), "{}: {} has no dimension '{}', only [{}] (at {}); name one of its dimensions",
                call.op->name, what, dim, to_string(shape), call.name);
  return shape.get(dim);
}

inline void check_count(const Call& call, std::size_t inputs) {
  TESSERA_CHECK(call.in.size() == inputs, "{}: takes {} input{}, got {} (at {})", call.op->name, inputs,
                inputs == 1 ? "" : "s", call.in.size(), call.name);
}

inline void check_i32(const Call& call, std::size_t input, const char* what) {
  TESSERA_CHECK(call.in[input].dtype == DType::I32, "{}: {} must be i32 but is {} (at {}); cast it",
                call.op->name, what, to_string(call.in[input].dtype), call.name);
}

inline Graph& graph_of(const Arg& x, const char* op) {
  TESSERA_CHECK(x.tensor.valid(),
                "{}: the tensor is empty ({}); it was never made or its gradient does not exist", op,
                to_string(Location(x.where)));
  return x.tensor.graph();
}

// Adds a node with one output to the graph of `inputs[0]`, at the caller's line.
inline Tensor add_one(const Op& op, const Arg& x, Attrs attrs) {
  return graph_of(x, op.name).add(op, {x.tensor}, std::move(attrs), x.where)[0];
}

// `x` with its dimensions in the order of `shape`.
inline Tensor ordered_like(const Tensor& x, const Shape& shape) {
  Strings order;
  for (const Dim& dim : shape) order.push_back(dim.name);
  return transpose(x, order);
}

// The role of ops that need all of the dimension their attribute `dim` names, and nothing else.
inline Role role_whole_dim(const Call& call, int, const std::string& dim) {
  return dim == call.attrs.text("dim") ? Role::Whole : Role::Map;
}

inline Names resized_dim(const Call& call) {
  return {call.attrs.text("dim")};
}

inline Role made_whole(const Call&, int, const std::string&) {
  return Role::Whole;
}

// A dimension with one element for each part of a split dimension.
inline std::string parts_name(const std::string& dim) {
  return dim + "__parts";
}
inline Renames renames_parts(const Call& call) {
  return {{call.attrs.text("dim"), parts_name(call.attrs.text("dim"))}};
}

// Data movement and sources do no arithmetic.
inline double no_flops(const Call&) {
  return 0;
}

// Every input is linear: pending sums flow through.
inline bool linear_everywhere(const Call&, int) {
  return true;
}

}  // namespace tessera
