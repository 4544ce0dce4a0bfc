// Softmax, its logarithm and log-sum-exp along one dimension. All subtract the maximum first; a row of -inf
// (fully masked) gives a softmax of zeros, a logarithm of -inf, and no NaN in any gradient.
#include "ops/build.h"
#include "ops/loops.h"
#include "ops/records.h"
#include "ops/scalar.h"

namespace tessera {
namespace {

const std::string& dim_attr(const Call& call) {
  return call.attrs.text("dim");
}

void check_row(const Call& call) {
  check_same_dtype(call);
  check_floating(call, 0);
  check_has(call, 0, dim_attr(call));
}

std::vector<Type> infer_row(const Call& call) {
  check_count(call, 1);
  check_row(call);
  return {call.in[0]};
}

std::vector<Type> infer_row_grad(const Call& call) {
  check_count(call, 2);
  check_row(call);
  TESSERA_CHECK(call.in[0].shape == call.in[1].shape, "{}: input 0 is [{}] but input 1 is [{}]",
                call.op->name, to_string(call.in[0].shape), to_string(call.in[1].shape));
  return {call.in[0]};
}

std::vector<Type> infer_log_sum_exp(const Call& call) {
  check_count(call, 1);
  check_row(call);
  return {{call.in[0].shape.without(dim_attr(call)), call.in[0].dtype}};
}

Role role_row(const Call& call, int, const std::string& dim) {
  return dim == dim_attr(call) ? Role::Whole : Role::Map;
}

// Maximum and sum of exp(x - maximum) of a row.
struct RowSums {
  double max = -INFINITY, sum = 0;
};

template <class T>
RowSums row_sums(const Line<T>& x, std::int64_t at, std::int64_t count) {
  RowSums row;
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = x.at(at, i);
    if (std::isnan(value) || value > row.max) row.max = value;
  }
  row.max = std::max(row.max, lowest_of(DType::F64));  // in this order NaN stays
  row.sum = sum_over(count, [&](std::int64_t i) { return std::exp(x.at(at, i) - row.max); });
  return row;
}

template <class F>
void for_each_row(KernelContext& c, F f) {
  const std::string& dim = dim_attr(c.call);
  const std::int64_t count = c.in[0].shape.size(dim);
  with_floating(c.in[0].dtype, [&]<class T>() {
    const Line<T> x(c.in[0], dim), y(c.out[0], dim);
    for_each_line(
        c.in[0].shape, dim, [&](auto at) { f(x, at[0], y, at[1], count); }, c.in[0], c.out[0]);
  });
}

void kernel_softmax(KernelContext& c) {
  for_each_row(c, [](auto x, std::int64_t from, auto y, std::int64_t to, std::int64_t count) {
    const RowSums row = row_sums(x, from, count);
    for (std::int64_t i = 0; i < count; ++i) {
      y.set(to, i, row.sum == 0 ? 0 : std::exp(x.at(from, i) - row.max) / row.sum);
    }
  });
}

void kernel_log_softmax(KernelContext& c) {
  for_each_row(c, [](auto x, std::int64_t from, auto y, std::int64_t to, std::int64_t count) {
    const RowSums row = row_sums(x, from, count);
    const double log_sum = row.sum == 0 ? 0 : std::log(row.sum);
    for (std::int64_t i = 0; i < count; ++i) y.set(to, i, x.at(from, i) - row.max - log_sum);
  });
}

void kernel_log_sum_exp(KernelContext& c) {
  for_each_row(c, [](auto x, std::int64_t from, auto y, std::int64_t to, std::int64_t count) {
    const RowSums row = row_sums(x, from, count);
    y.set(to, 0, std::log(row.sum) + row.max);
  });
}

void kernel_softmax_grad(KernelContext& c) {
  const std::string& dim = dim_attr(c.call);
  const std::int64_t count = c.in[0].shape.size(dim);
  with_floating(c.in[0].dtype, [&]<class T>() {
    const Line<T> y(c.in[0], dim), dy(c.in[1], dim), dx(c.out[0], dim);
    for_each_line(
        c.in[0].shape, dim,
        [&](auto at) {
          const double sum =
              sum_over(count, [&](std::int64_t i) { return y.at(at[0], i) * dy.at(at[1], i); });
          for (std::int64_t i = 0; i < count; ++i) dx.set(at[2], i, y.at(at[0], i) * (dy.at(at[1], i) - sum));
        },
        c.in[0], c.in[1], c.out[0]);
  });
}

// The same from primitives, in f32 at least: the shifted row, its exponentials and their sum.
struct Shifted {
  Tensor max, shifted, exps, sum;
};

Shifted shift(const Tensor& x, const std::string& dim) {
  Shifted s;
  s.max = maximum(stop_gradient(reduce_max(x, {dim})), scalar_like(x, lowest_of(x.dtype())));
  s.shifted = x - s.max;
  s.exps = exp(s.shifted);
  s.sum = reduce_sum(s.exps, {dim});
  return s;
}

Tensor narrowed(ExpandContext& c, const Tensor& y) {
  return cast(y, c.inputs[0].dtype());
}

// A row's sum is at least 1, or 0 when it is fully masked; then 1 does as well.
Tensor or_one(const Tensor& sum) {
  const Tensor zero = scalar_like(sum, 0);
  return select(greater(sum, zero), sum, scalar_like(sum, 1));
}

std::vector<Tensor> expand_softmax(ExpandContext& c) {
  const Shifted s = shift(widened(c.inputs[0]), dim_attr(c.call));
  return {narrowed(c, div(s.exps, or_one(s.sum)))};
}

std::vector<Tensor> expand_log_softmax(ExpandContext& c) {
  const Shifted s = shift(widened(c.inputs[0]), dim_attr(c.call));
  return {narrowed(c, sub(s.shifted, log(or_one(s.sum))))};
}

std::vector<Tensor> expand_log_sum_exp(ExpandContext& c) {
  return {narrowed(c, stable_log_sum_exp(widened(c.inputs[0]), dim_attr(c.call)))};
}

std::vector<Tensor> expand_softmax_grad(ExpandContext& c) {
  const Tensor y = widened(c.inputs[0]), dy = widened(c.inputs[1]);
  const Tensor sum = reduce_sum(mul(dy, y), {dim_attr(c.call)});
  return {narrowed(c, mul(sub(dy, sum), y))};
}

double flops_row(const Call& call) {
  return 5.0 * static_cast<double>(call.in[0].shape.elements());
}

std::vector<Sample> with_inputs(int count) {
  std::vector<Sample> samples;
  for (const auto& [type, dim] : {std::pair("f32[batch:3;length:2;hidden:5]", "hidden"),
                                  std::pair("bf16[batch:2;length:6;hidden:3]", "length")}) {
    samples.push_back(
        {.in = Strings(static_cast<std::size_t>(count), type), .attrs = {{"dim", std::string(dim)}}});
  }
  return samples;
}
std::vector<Sample> row_samples() {
  return with_inputs(1);
}
std::vector<Sample> row_grad_samples() {
  return with_inputs(2);
}

}  // namespace

constinit const Op kSoftmax{
    .name = "softmax",
    .doc = "exp(x) / sum(exp(x)) along `dim`; a row of -inf gives zeros.",
    .infer = infer_row,
    .role = role_row,
    .grad =
        [](GradContext& c) {
          c.set(0, make(kSoftmaxGrad, {c.out(), c.dy()}, c.node.attrs));
        },
    .kernel = kernel_softmax,
    .expand = expand_softmax,
    .flops = flops_row,
    .exact = false,
    .ulps = 16,
    .step_class = StepClass::Attention,
    .samples = row_samples,
};

constinit const Op kSoftmaxGrad{
    .name = "softmax_grad",
    .doc = "y * (dy - sum(y * dy)) along `dim`: the gradient of y = softmax x.",
    .infer = infer_row_grad,
    .role = role_row,
    .linear = linear_last,
    .grad =
        [](GradContext& c) {
          const std::string& dim = c.node.attrs.text("dim");
          const Tensor y = c.in(0), dy = c.in(1), g = c.dy();
          c.set(0, g * (dy - reduce_sum(y * dy, {dim})) - dy * reduce_sum(g * y, {dim}));
          c.set(1, make(kSoftmaxGrad, {y, g}, c.node.attrs));
        },
    .kernel = kernel_softmax_grad,
    .expand = expand_softmax_grad,
    .flops = flops_row,
    .exact = false,
    .ulps = 16,
    .step_class = StepClass::Attention,
    .samples = row_grad_samples,
};

constinit const Op kLogSoftmax{
    .name = "log_softmax",
    .doc = "x - log(sum(exp(x))) along `dim`; a row of -inf stays -inf.",
    .infer = infer_row,
    .role = role_row,
    .grad =
        [](GradContext& c) {
          const Tensor sum = reduce_sum(c.dy(), {c.node.attrs.text("dim")});
          c.set(0, sub(c.dy(), mul(sum, exp(c.out()))));
        },
    .kernel = kernel_log_softmax,
    .expand = expand_log_softmax,
    .flops = flops_row,
    .exact = false,
    .ulps = 16,
    .samples = row_samples,
};

constinit const Op kLogSumExp{
    .name = "log_sum_exp",
    .doc = "log(sum(exp(x))) along `dim`; a row of -inf gives -inf.",
    .infer = infer_log_sum_exp,
    .role = role_row,
    .grad =
        [](GradContext& c) {
          c.set(0, make(kLogSumExpGrad, {c.in(0), c.out(), c.dy()}));
        },
    .kernel = kernel_log_sum_exp,
    .expand = expand_log_sum_exp,
    .flops = flops_row,
    .exact = false,
    .ulps = 16,
    .samples = row_samples,
};

constinit const Op kLogSumExpGrad{
    .name = "log_sum_exp_grad",
    .doc = "exp(x - y) * dy, 0 where x is -inf: the gradient of y = log_sum_exp x.",
    .infer = infer_floating<3>,
    .linear = linear_last,
    .grad =
        [](GradContext& c) {
          const Tensor through = make(kLogSumExpGrad, {c.in(0), c.in(1), c.dy()});
          const Tensor curve = mul(through, c.in(2));
          c.set(0, curve);
          c.set(1, neg(sum_to(curve, c.in(1).shape())));
          c.set(2, sum_to(through, c.in(2).shape()));
        },
    .scalar =
        [](const Call& call) {
          return scalar_code(call, [](Value x, Value y, Value dy) {
            return choose(x == -INFINITY, number(dy, 0), unary(Scalar::Exp, x - y) * dy);
          });
        },
    .exact = false,
    .ulps = 16,
    .samples =
        [] {
          return std::vector<Sample>{{.in = {"f32[batch:3;hidden:5]", "f32[batch:3]", "f32[batch:3]"}},
                                     {.in = {"bf16[rows:4;cols:2]", "bf16[cols:2]", "bf16[cols:2]"}}};
        },
};

Tensor stable_log_sum_exp(const Tensor& x, const std::string& dim) {
  const Shifted s = shift(x, dim);
  return add(log(s.sum), s.max);
}

Tensor softmax(Arg x, const std::string& dim) {
  return make(kSoftmax, {x}, {{"dim", dim}});
}
Tensor log_softmax(Arg x, const std::string& dim) {
  return make(kLogSoftmax, {x}, {{"dim", dim}});
}
Tensor log_sum_exp(Arg x, const std::string& dim) {
  return make(kLogSumExp, {x}, {{"dim", dim}});
}

}  // namespace tessera
