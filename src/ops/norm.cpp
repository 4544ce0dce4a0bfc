// Shared parts of the norms: checks, roles, and the gradient of the scale.
#include "ops/norm.h"

#include <algorithm>

namespace tessera {
namespace {

bool in_output(const Call& call, const std::string& dim) {
  const Strings& output = call.attrs.texts("output");
  return std::find(output.begin(), output.end(), dim) != output.end();
}

}  // namespace

void check_norm(const Call& call, std::size_t parameters, std::size_t statistics) {
  const Type& x = call.in[0];
  check_floating(call, 0);
  check_has(call, 0, norm_dim(call));
  for (std::size_t i = 1; i <= parameters; ++i) {
    TESSERA_CHECK(call.in[i].dtype == x.dtype, "{}: x is {} but input {} is {}; cast one of them",
                  call.op->name, to_string(x.dtype), i, to_string(call.in[i].dtype));
    for (const Dim& dim : call.in[i].shape) {
      TESSERA_CHECK(
          x.shape.has(dim.name) && x.shape.size(dim.name) == dim.size,
          "{}: input {} has dimension {}:{}, but x is [{}]; scale and bias may only have dimensions of x",
          call.op->name, i, dim.name, dim.size, to_string(x.shape));
    }
  }
  for (std::size_t i = parameters + 1; i <= parameters + statistics; ++i) {
    TESSERA_CHECK(call.in[i] == norm_statistic(call), "{}: input {} must be {} but is {}", call.op->name, i,
                  to_string(norm_statistic(call)), to_string(call.in[i]));
  }
}

Type norm_statistic(const Call& call) {
  return {call.in[0].shape.without(norm_dim(call)), wide_type(call.in[0].dtype)};
}

Role role_norm(const Call& call, int, const std::string& dim) {
  return dim == norm_dim(call) ? Role::Whole : Role::Map;
}

double flops_norm(const Call& call) {
  return 8.0 * static_cast<double>(call.in[0].shape.elements());
}

Tensor through_inverse(const Tensor& d, const Tensor& inverse, const Tensor& centred, std::int64_t count) {
  const Tensor cube = mul(inverse, square(inverse));
  const Tensor slope = scale(mul(d, cube), -1.0 / static_cast<double>(count));
  return mul(centred, cast(slope, centred.dtype()));
}

std::vector<Type> infer_scale_grad(const Call& call) {
  TESSERA_CHECK(call.in.size() == 3 || call.in.size() == 4,
                "{}: takes x, the statistics and dy but has {} inputs ({})", call.op->name, call.in.size(),
                call.name);
  const Type &x = call.in.front(), &dy = call.in.back();
  check_floating(call, 0);
  TESSERA_CHECK(x == dy, "{}: x is {} but dy is {}", call.op->name, to_string(x), to_string(dy));
  for (std::size_t i = 1; i + 1 < call.in.size(); ++i) check_dtype(call, i, wide_type(x.dtype));
  broadcast_inputs(call);
  std::vector<Dim> dims;
  for (const std::string& name : call.attrs.texts("output")) {
    check_has(call, 0, name);
    dims.push_back(x.shape.get(name));
  }
  return {{Shape(std::move(dims)), x.dtype}};
}

Role role_scale_grad(const Call& call, int, const std::string& dim) {
  return in_output(call, dim) ? Role::Map : Role::Sum;
}

double flops_scale_grad(const Call& call) {
  return 4.0 * static_cast<double>(call.in[0].shape.elements());
}

Attrs scale_grad_attrs(const Tensor& scale) {
  Strings output;
  for (const Dim& dim : scale.shape()) output.push_back(dim.name);
  return {{"output", output}};
}

void kernel_scale_grad(KernelContext& c) {
  const bool centred = c.in.size() == 4;
  const View &x = c.in[0], &inverse = c.in[centred ? 2 : 1], &dy = c.in.back(), &out = c.out[0];
  const View& mean = centred ? c.in[1] : inverse;  // unused when not centred
  Nest<4> inner;
  for (const Dim& dim : x.shape) {
    if (in_output(c.call, dim.name)) continue;
    inner.add(dim.size, {stride_of(x, dim.name), stride_of(mean, dim.name), stride_of(inverse, dim.name),
                         stride_of(dy, dim.name)});
  }
  with_floating(x.dtype, [&]<class T>() {
    using S = Stat<T>;
    const auto term = [&](std::int64_t ix, std::int64_t im, std::int64_t ii, std::int64_t id) {
      const double shift = centred ? mean.as<S>()[im] : 0;
      return widen(dy.as<T>()[id]) * (widen(x.as<T>()[ix]) - shift) * inverse.as<S>()[ii];
    };
    for_each_line(
        out.shape, "",
        [&](auto at) {
          double sum = 0;
          inner.rows({at[0], at[1], at[2], at[3]}, [&](auto from, std::int64_t count, auto step) {
            for (std::int64_t i = 0; i < count; ++i) {
              sum += term(from[0] + i * step[0], from[1] + i * step[1], from[2] + i * step[2],
                          from[3] + i * step[3]);
            }
          });
          out.as<T>()[at[4]] = narrow<T>(sum);
        },
        x, mean, inverse, dy, out);
  });
}

std::vector<Tensor> expand_scale_grad(ExpandContext& c) {
  const bool centred = c.inputs.size() == 4;
  const Tensor x = widened(c.inputs[0]), dy = widened(c.inputs.back());
  const Tensor shifted = centred ? sub(x, c.inputs[1]) : x;
  const Tensor product = mul(dy, mul(shifted, c.inputs[centred ? 2 : 1]));
  const Shape shape = infer_scale_grad(c.call)[0].shape;
  return {cast(sum_to(product, shape), c.inputs[0].dtype())};
}

}  // namespace tessera
