// Reductions over named dimensions. A shard without elements gives the identity of the reduction.
#include <algorithm>

#include "ops/build.h"
#include "ops/loops.h"
#include "ops/records.h"

namespace tessera {
namespace {

bool reduced(const Call& call, const std::string& dim) {
  const Strings& dims = call.attrs.texts("dims");
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

Type infer_reduce(const Call& call) {
  check_count(call, 1);
  Shape shape = call.in[0].shape;
  const Strings& dims = call.attrs.texts("dims");
  for (const std::string& dim : dims) {
    TESSERA_CHECK(std::count(dims.begin(), dims.end(), dim) == 1, "{}: dimension '{}' is listed twice",
                  call.op->name, dim);
    check_has(call, 0, dim);
    shape = shape.without(dim);
  }
  return {shape, call.in[0].dtype};
}

std::vector<Type> infer_numbers(const Call& call) {
  const Type type = infer_reduce(call);
  TESSERA_CHECK(type.dtype != DType::Bool, "{}: the input is bool; use reduce_any or reduce_all, or cast it",
                call.op->name);
  return {type};
}
std::vector<Type> infer_reals(const Call& call) {
  const Type type = infer_reduce(call);
  check_floating(call, 0);
  return {type};
}
std::vector<Type> infer_bools(const Call& call) {
  const Type type = infer_reduce(call);
  check_dtype(call, 0, DType::Bool);
  return {type};
}

template <Role kRole>
Role role_reduce(const Call& call, int, const std::string& dim) {
  return reduced(call, dim) ? kRole : Role::Map;
}

double elements_in(const Call& call) {
  return static_cast<double>(call.in[0].shape.elements());
}

// Elements that one output element is made from, over all shards.
std::int64_t count_of(const Call& call) {
  std::int64_t count = 1;
  for (const std::string& dim : call.attrs.texts("dims")) count *= call.in[0].shape.size(dim);
  return count;
}

// out = finish(fold of combine over the reduced dimensions, from `identity`), in the type A of the identity.
template <class T, class A, class Combine, class Finish>
void fold(const Call& call, const View& in, const View& out, A identity, Combine combine, Finish finish) {
  Nest<1> inner;
  for (const Dim& dim : in.shape) {
    if (reduced(call, dim.name)) inner.add(dim.size, {stride_of(in, dim.name)});
  }
  for_each_line(
      out.shape, "",
      [&](auto at) {
        A result = identity;
        inner.rows({at[0]}, [&](auto from, std::int64_t count, auto step) {
          for (std::int64_t i = 0; i < count; ++i)
            result = combine(result, in.as<T>()[from[0] + i * step[0]]);
        });
        out.as<T>()[at[1]] = finish(result);
      },
      in, out);
}

void kernel_sum(KernelContext& c) {
  with_numeric(c.in[0].dtype, [&]<class T>() {
    fold<T>(
        c.call, c.in[0], c.out[0], Wide<T>(0), [](Wide<T> sum, T x) { return sum + widen(x); },
        [](Wide<T> sum) { return narrow<T>(sum); });
  });
}

void kernel_mean(KernelContext& c) {
  const double count = static_cast<double>(count_of(c.call));
  with_floating(c.in[0].dtype, [&]<class T>() {
    fold<T>(
        c.call, c.in[0], c.out[0], 0.0, [](double sum, T x) { return sum + widen(x); },
        [&](double sum) { return narrow<T>(sum / count); });
  });
}

// kSign +1: maximum, -1: minimum. NaN wins.
template <int kSign>
void kernel_extreme(KernelContext& c) {
  with_numeric(c.in[0].dtype, [&]<class T>() {
    using Limits = std::numeric_limits<std::int32_t>;
    const bool integer = std::is_same_v<T, std::int32_t>;
    // In double from the start: a float cannot hold the largest i32.
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const double lowest = integer ? Limits::min() : -kInfinity, highest = integer ? Limits::max() : kInfinity;
    fold<T>(
        c.call, c.in[0], c.out[0], kSign > 0 ? lowest : highest,
        [](double best, T x) {
          const double value = static_cast<double>(x);
          return std::isnan(value) || kSign * value > kSign * best ? value : best;
        },
        [](double best) { return element_from<T>(best); });
  });
}

void kernel_any(KernelContext& c) {
  fold<bool>(
      c.call, c.in[0], c.out[0], false, [](bool any, bool x) { return any || x; },
      [](bool any) { return any; });
}
void kernel_all(KernelContext& c) {
  fold<bool>(
      c.call, c.in[0], c.out[0], true, [](bool all, bool x) { return all && x; },
      [](bool all) { return all; });
}

// Ties share equally, over all shards. They are counted in f32 at least, where bf16 would stop at 256.
void grad_extreme(GradContext& c) {
  const Tensor x = c.in(0), y = c.out();
  const Tensor ties = reduce_sum(cast(equal(x, y), wide_type(x.dtype())), c.node.attrs.texts("dims"));
  const Tensor share = cast(div(widened(c.dy()), ties), x.dtype());
  const Tensor dx = make(kSelectEqual, {x, y, share});
  c.set(0, dx);
}

std::vector<Sample> with_dims(const Strings& types) {
  std::vector<Sample> samples;
  for (const std::string& type : types) {
    samples.push_back({.in = {type + "[batch:3;length:4;hidden:5]"}, .attrs = {{"dims", Strings{"length"}}}});
    samples.push_back(
        {.in = {type + "[batch:2;length:3;hidden:5]"}, .attrs = {{"dims", Strings{"hidden", "batch"}}}});
    samples.push_back({.in = {type + "[rows:4;cols:3]"}, .attrs = {{"dims", Strings{"rows", "cols"}}}});
  }
  return samples;
}
std::vector<Sample> number_samples() {
  return with_dims({"f32", "bf16", "i32"});
}
std::vector<Sample> real_samples() {
  return with_dims({"f32", "bf16"});
}
std::vector<Sample> bool_samples() {
  return with_dims({"bool"});
}

// An empty list means every dimension; dimensions are listed in the order of x so that equal reductions are
// equal nodes.
Tensor reduce(const Op& op, const Arg& x, const Strings& dims) {
  graph_of(x, op.name);
  Strings order;
  for (const Dim& dim : x.tensor.shape()) {
    if (dims.empty() || std::find(dims.begin(), dims.end(), dim.name) != dims.end())
      order.push_back(dim.name);
  }
  const bool complete = dims.empty() || order.size() == dims.size();
  return make(op, {x}, {{"dims", complete ? order : dims}});  // the record reports unknown and repeated names
}

}  // namespace

constinit const Op kReduceSum{
    .name = "reduce_sum",
    .doc = "The sum over `dims`; i32 wraps around.",
    .infer = infer_numbers,
    .role = role_reduce<Role::Sum>,
    .linear = linear_everywhere,
    .grad = [](GradContext& c) { c.set(0, broadcast(c.dy(), c.in(0).shape())); },
    .kernel = kernel_sum,
    .sum_divisor = [](const Call&) { return 1.0; },
    .flops = elements_in,
    .samples = number_samples,
};

constinit const Op kReduceMean{
    .name = "reduce_mean",
    .doc = "The mean over `dims`: the sum divided by the number of elements over all shards.",
    .infer = infer_reals,
    .role = role_reduce<Role::Sum>,
    .linear = linear_everywhere,
    .grad =
        [](GradContext& c) {
          const double count = static_cast<double>(count_of(call_of(c.node)));
          c.set(0, broadcast(scale(c.dy(), 1 / count), c.in(0).shape()));
        },
    .kernel = kernel_mean,
    .sum_divisor = [](const Call& call) { return static_cast<double>(count_of(call)); },
    .flops = elements_in,
    .exact = false,  // each shard divides its part of the sum
    .samples = real_samples,
};

constinit const Op kReduceMax{
    .name = "reduce_max",
    .doc = "The maximum over `dims`, NaN if there is one; ties share the gradient equally.",
    .infer = infer_numbers,
    .role = role_reduce<Role::Max>,
    .grad = grad_extreme,
    .kernel = kernel_extreme<1>,
    .flops = elements_in,
    .samples = number_samples,
};

constinit const Op kReduceMin{
    .name = "reduce_min",
    .doc = "The minimum over `dims`, NaN if there is one; ties share the gradient equally.",
    .infer = infer_numbers,
    .role = role_reduce<Role::Min>,
    .grad = grad_extreme,
    .kernel = kernel_extreme<-1>,
    .flops = elements_in,
    .samples = number_samples,
};

constinit const Op kReduceAny{
    .name = "reduce_any",
    .doc = "True where any element over `dims` is true.",
    .infer = infer_bools,
    .role = role_reduce<Role::Max>,
    .kernel = kernel_any,
    .flops = elements_in,
    .samples = bool_samples,
};

constinit const Op kReduceAll{
    .name = "reduce_all",
    .doc = "True where all elements over `dims` are true.",
    .infer = infer_bools,
    .role = role_reduce<Role::Min>,
    .kernel = kernel_all,
    .flops = elements_in,
    .samples = bool_samples,
};

Tensor reduce_sum(Arg x, const Strings& dims) {
  return reduce(kReduceSum, x, dims);
}
Tensor reduce_mean(Arg x, const Strings& dims) {
  return reduce(kReduceMean, x, dims);
}
Tensor reduce_max(Arg x, const Strings& dims) {
  return reduce(kReduceMax, x, dims);
}
Tensor reduce_min(Arg x, const Strings& dims) {
  return reduce(kReduceMin, x, dims);
}
Tensor reduce_any(Arg x, const Strings& dims) {
  return reduce(kReduceAny, x, dims);
}
Tensor reduce_all(Arg x, const Strings& dims) {
  return reduce(kReduceAll, x, dims);
}

}  // namespace tessera
