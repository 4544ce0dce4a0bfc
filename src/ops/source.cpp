// Sources without randomness: constant (one value, or listed values) and range. They are made where the home
// placement puts them, each shard from its own start.
#include "ops/infer.h"
#include "ops/records.h"
#include "ops/strided.h"

namespace tessera {
namespace {

std::vector<Type> infer_constant(const Call& call) {
  check_count(call, 0);
  return {{call.attrs.shape("shape"), call.attrs.dtype("dtype")}};
}

ScalarCode scalar_constant(const Call& call) {
  Instruction value{
      .op = Scalar::Const, .value = call.attrs.number("value"), .type = call.attrs.dtype("dtype")};
  return {0, {value}, {0}};
}

std::vector<Sample> samples_constant() {
  return {
      {.in = {},
       .attrs = {{"value", 1.5}, {"shape", Shape{{"rows", 3}, {"cols", 5}}}, {"dtype", DType::BF16}}},
      {.in = {}, .attrs = {{"value", -3.0}, {"shape", Shape{{"rows", 2}}}, {"dtype", DType::I32}}},
  };
}

std::vector<Type> infer_values(const Call& call) {
  const Shape& shape = call.attrs.shape("shape");
  const auto given = static_cast<std::int64_t>(call.attrs.numbers("values").size());
  TESSERA_CHECK(given == shape.elements(),
                "constant: {} values for the {} elements of [{}] (at {}); give one for each", given,
                shape.elements(), to_string(shape), call.name);
  return infer_constant(call);
}

void kernel_values(KernelContext& ctx) {
  const View& out = ctx.out[0];
  const Doubles& values = ctx.call.attrs.numbers("values");
  const Shape& shape = ctx.call.out[0].shape;
  Nest<2> nest;
  std::int64_t first = 0, step = shape.elements();
  for (std::size_t d = 0; d < shape.count(); ++d) {
    TESSERA_CHECK(
        out.full[d] == shape[d].size,
        "constant: the values are listed for {} elements of '{}' but the run has a window of {} (at {}); "
        "feed them as an input instead",
        shape[d].size, shape[d].name, out.full[d], ctx.call.name);
    if (shape[d].size > 0) step /= shape[d].size;
    first += out.start[d] * step;
    nest.add(out.shape[d].size, {out.stride[d], step});
  }
  with_type(out.dtype, [&]<class T>() {
    nest.rows({0, first}, [&](auto at, std::int64_t count, auto by) {
      for (std::int64_t i = 0; i < count; ++i) {
        out.as<T>()[at[0] + i * by[0]] = element_from<T>(values[static_cast<std::size_t>(at[1] + i * by[1])]);
      }
    });
  });
}

std::vector<Sample> samples_values() {
  const Doubles values = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
  const Shape shape{{"rows", 3}, {"cols", 5}};
  return {
      {.in = {}, .attrs = {{"values", values}, {"shape", shape}, {"dtype", DType::F32}}},
      {.in = {}, .attrs = {{"values", values}, {"shape", shape}, {"dtype", DType::Bool}}},
  };
}

std::vector<Type> infer_range(const Call& call) {
  const DType dtype = call.attrs.dtype("dtype");
  TESSERA_CHECK(dtype != DType::Bool, "range: bool cannot count (at {}); choose a number type", call.name);
  TESSERA_CHECK(call.attrs.shape("shape").count() == 1, "range: [{}] must be one dimension (at {})",
                to_string(call.attrs.shape("shape")), call.name);
  return infer_constant(call);
}

void kernel_range(KernelContext& ctx) {
  const View& out = ctx.out[0];
  with_type(out.dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < out.shape[0].size; ++i) {
      out.as<T>()[i * out.stride[0]] = element_from<T>(static_cast<double>(out.start[0] + i));
    }
  });
}

std::vector<Sample> samples_range() {
  return {
      {.in = {}, .attrs = {{"shape", Shape{{"rows", 7}}}, {"dtype", DType::I32}}},
      {.in = {}, .attrs = {{"shape", Shape{{"rows", 3}}}, {"dtype", DType::F32}}},
  };
}

}  // namespace

const Op kConstant{
    .name = "constant",
    .doc = "`value` everywhere.",
    .infer = infer_constant,
    .scalar = scalar_constant,
    .flops = no_flops,
    .samples = samples_constant,
};

const Op kConstantValues{
    .name = "constant_values",
    .doc = "The listed values in row-major order.",
    .infer = infer_values,
    .kernel = kernel_values,
    .flops = no_flops,
    .samples = samples_values,
};

const Op kRange{
    .name = "range",
    .doc =
        "0, 1, 2, ... along its only dimension. In a run window the index counts in the whole window's "
        "space.",
    .infer = infer_range,
    .kernel = kernel_range,
    .flops = no_flops,
    .samples = samples_range,
};

Tensor constant(Graph& graph, double value, const Shape& shape, DType dtype, Where where) {
  return graph.add(kConstant, {}, {{"value", value}, {"shape", shape}, {"dtype", dtype}}, where)[0];
}

Tensor constant(Graph& graph, const Doubles& values, const Shape& shape, DType dtype, Where where) {
  return graph.add(kConstantValues, {}, {{"values", values}, {"shape", shape}, {"dtype", dtype}}, where,
                   "constant")[0];
}

Tensor zeros_like(Arg x) {
  return constant(graph_of(x, "zeros_like"), 0.0, x.tensor.shape(), x.tensor.dtype(), x.where);
}

Tensor ones_like(Arg x) {
  return constant(graph_of(x, "ones_like"), 1.0, x.tensor.shape(), x.tensor.dtype(), x.where);
}

Tensor range(Graph& graph, const Dim& dim, DType dtype, Where where) {
  return graph.add(kRange, {}, {{"shape", Shape{dim}}, {"dtype", dtype}}, where)[0];
}

}  // namespace tessera
