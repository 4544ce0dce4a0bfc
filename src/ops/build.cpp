// Node making and type inference shared by the op families.
#include "ops/build.h"

#include <limits>

namespace tessera {

Tensor make(const Op& op, const Args& inputs, Attrs attrs) {
  Graph& graph = graph_of(inputs[0], op.name);
  Tensors tensors;
  for (const Arg& input : inputs) tensors.push_back(input.tensor);
  return graph.add(op, tensors, std::move(attrs), inputs[0].where)[0];
}

void check_same_dtype(const Call& call) {
  for (std::size_t i = 1; i < call.in.size(); ++i) {
    TESSERA_CHECK(call.in[i].dtype == call.in[0].dtype,
                  "{}: input 0 is {} but input {} is {}; cast one of them", call.op->name,
                  to_string(call.in[0].dtype), i, to_string(call.in[i].dtype));
  }
}

void check_floating(const Call& call, std::size_t input) {
  TESSERA_CHECK(is_floating(call.in[input].dtype), "{}: input {} must be f32, bf16 or f64 but is {}; cast it",
                call.op->name, input, to_string(call.in[input].dtype));
}

void check_dtype(const Call& call, std::size_t input, DType dtype) {
  TESSERA_CHECK(call.in[input].dtype == dtype, "{}: input {} must be {} but is {}; cast it", call.op->name,
                input, to_string(dtype), to_string(call.in[input].dtype));
}

void check_has(const Call& call, std::size_t input, const std::string& dim) {
  dim_of(call, call.in[input].shape, dim, fmt::format("input {}", input).c_str());
}

Shape broadcast_inputs(const Call& call) {
  Shape shape = call.in[0].shape;
  for (std::size_t i = 1; i < call.in.size(); ++i) shape = broadcast_shape(shape, call.in[i].shape);
  return shape;
}

Type infer_broadcast(const Call& call, std::size_t inputs, Numbers allowed) {
  check_count(call, inputs);
  check_same_dtype(call);
  const DType dtype = call.in[0].dtype;
  if (allowed == Numbers::Floating) check_floating(call, 0);
  if (allowed == Numbers::Bool) check_dtype(call, 0, DType::Bool);
  TESSERA_CHECK(allowed != Numbers::Numeric || dtype != DType::Bool,
                "{}: the input is bool; cast it to a number first", call.op->name);
  return {broadcast_inputs(call), dtype};
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  Strings summed;
  for (const Dim& dim : x.shape()) {
    if (!shape.has(dim.name)) summed.push_back(dim.name);
  }
  const Tensor sum = summed.empty() ? x : reduce_sum(x, summed);
  return sum.shape() == shape ? sum : ordered_like(sum, shape);
}

Tensor scalar_like(const Tensor& like, double value) {
  return constant(like.graph(), value, Shape(), like.dtype());
}

double lowest_of(DType type) {
  if (type == DType::F64) return std::numeric_limits<double>::lowest();
  if (type == DType::F32) return std::numeric_limits<float>::lowest();
  return -3.3895313892515355e38;  // bf16: 0xff7f
}

}  // namespace tessera
