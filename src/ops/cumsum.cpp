// Cumulative sums. Along a split dimension each part sums itself (cumsum_totals), the few totals are gathered
// and summed up (cumsum_prefix), and each part scans from its own start value (cumsum_from).
#include "ops/infer.h"
#include "ops/records.h"
#include "ops/strided.h"

namespace tessera {
namespace {

// Scans run in f64 (i32 wraps) and round each result once.
template <class T>
using Running = std::conditional_t<std::is_same_v<T, std::int32_t>, std::uint32_t, double>;

template <class T>
T rounded(Running<T> value) {
  if constexpr (std::is_same_v<T, std::int32_t>) {
    return static_cast<std::int32_t>(value);
  } else {
    return element_from<T>(value);
  }
}

// Totals of bf16 travel in f32.
DType total_type(DType type) {
  return type == DType::BF16 ? DType::F32 : type;
}

void check_numbers(const Call& call) {
  dim_of(call, call.in[0].shape, call.attrs.text("dim"), "the input");
  TESSERA_CHECK(call.in[0].dtype != DType::Bool, "{}: bool cannot be summed (at {}); cast it to i32",
                call.op->name, call.name);
}

std::vector<Type> infer_cumsum(const Call& call) {
  check_count(call, 1);
  check_numbers(call);
  return {call.in[0]};
}

// Scans `in` into `out` along `dim`; `first` holds the start values (no such dimension), nullptr: zeros.
template <class T, class First>
void scan(const KernelContext& ctx, const View& in, const View* first, const View& out) {
  const std::string& dim = ctx.call.attrs.text("dim");
  const bool exclusive = ctx.call.attrs.flag("exclusive"), reverse = ctx.call.attrs.flag("reverse");
  const std::int64_t size = in.shape.size(dim), in_step = stride_of(in, dim), out_step = stride_of(out, dim);
  Nest<3> nest;
  for (const Dim& d : in.shape.without(dim)) {
    nest.add(d.size, {stride_of(in, d.name), first ? stride_of(*first, d.name) : 0, stride_of(out, d.name)});
  }
  nest.rows({0, 0, 0}, [&](auto at, std::int64_t count, auto by) {
    for (std::int64_t i = 0; i < count; ++i) {
      const T* from = in.as<T>() + at[0] + i * by[0];
      T* to = out.as<T>() + at[2] + i * by[2];
      Running<T> sum = first ? static_cast<Running<T>>(first->as<First>()[at[1] + i * by[1]]) : Running<T>{0};
      for (std::int64_t k = 0; k < size; ++k) {
        const std::int64_t j = reverse ? size - 1 - k : k;
        const Running<T> next = sum + static_cast<Running<T>>(from[j * in_step]);
        to[j * out_step] = rounded<T>(exclusive ? sum : next);
        sum = next;
      }
    }
  });
}

void kernel_cumsum(KernelContext& ctx) {
  with_number(ctx.in[0].dtype, [&]<class T>() { scan<T, T>(ctx, ctx.in[0], nullptr, ctx.out[0]); });
}

void grad_cumsum(GradContext& g) {
  const Attrs& attrs = g.node.attrs;
  g.set(0, cumsum(g.dy(), attrs.text("dim"), attrs.flag("exclusive"), !attrs.flag("reverse")));
}

// ------------------------------------------------------------------------------------------------ parts

std::vector<Type> infer_totals(const Call& call) {
  check_count(call, 1);
  check_numbers(call);
  const std::string& dim = call.attrs.text("dim");
  return {{call.in[0].shape.replaced(dim, {parts_name(dim), call.attrs.integer("parts")}),
           total_type(call.in[0].dtype)}};
}

// A shard with several parts (the dimension is not split there) counts all elements to the first of them,
// which is the last to be scanned or the first: either way its start value is 0.
template <class T, class Total>
void totals(const View& in, const View& out, const std::string& dim) {
  const std::string parts = parts_name(dim);
  const std::int64_t size = in.shape.size(dim), step = stride_of(in, dim);
  fill_view(out, Total{0});
  nest_over(in.shape.without(dim), in, out).rows({0, 0}, [&](auto at, std::int64_t count, auto by) {
    for (std::int64_t i = 0; i < count; ++i) {
      const T* from = in.as<T>() + at[0] + i * by[0];
      Running<T> sum{0};
      for (std::int64_t k = 0; k < size; ++k) sum += static_cast<Running<T>>(from[k * step]);
      out.as<Total>()[at[1] + i * by[1]] = rounded<Total>(static_cast<Running<Total>>(sum));
    }
  });
}

void kernel_totals(KernelContext& ctx) {
  with_number(ctx.in[0].dtype, [&]<class T>() {
    using Total = std::conditional_t<std::is_same_v<T, bf16>, float, T>;
    totals<T, Total>(ctx.in[0], ctx.out[0], ctx.call.attrs.text("dim"));
  });
}

std::vector<Type> infer_from(const Call& call) {
  check_count(call, 2);
  check_numbers(call);
  const std::string& dim = call.attrs.text("dim");
  dim_of(call, call.in[1].shape, parts_name(dim), "the tensor of start values");
  TESSERA_CHECK(call.in[1].dtype == total_type(call.in[0].dtype),
                "cumsum_from: start values are {} but {} is needed (at {})", to_string(call.in[1].dtype),
                to_string(total_type(call.in[0].dtype)), call.name);
  return {call.in[0]};
}

void kernel_from(KernelContext& ctx) {
  const Dim& parts = ctx.in[1].shape.get(parts_name(ctx.call.attrs.text("dim")));
  TESSERA_ASSERT(parts.size >= 1, "cumsum_from '{}' has no start value for its part", ctx.call.name);
  with_number(ctx.in[0].dtype, [&]<class T>() {
    using Total = std::conditional_t<std::is_same_v<T, bf16>, float, T>;
    scan<T, Total>(ctx, ctx.in[0], &ctx.in[1], ctx.out[0]);
  });
}

double flops_in(const Call& call) {
  return static_cast<double>(call.in[0].shape.elements());
}

// ------------------------------------------------------------------------------------------------ expansion

// From primitives: the sum over a renamed copy of the dimension, masked by position.
Tensor by_mask(ExpandContext& ctx) {
  const Tensor& x = ctx.inputs[0];
  const Attrs& attrs = ctx.call.attrs;
  const Dim dim = x.dim(attrs.text("dim")), from{dim.name + "__from", dim.size};
  const Tensor here = range(ctx.graph, dim), there = range(ctx.graph, from);
  const Tensor before = attrs.flag("reverse") ? greater(there, here) : less(there, here);
  const Tensor mask = attrs.flag("exclusive") ? before : logical_or(before, equal(there, here));
  const Tensor terms =
      select(mask, rename(x, {{dim.name, from.name}}), constant(ctx.graph, 0.0, Shape(), x.dtype()));
  return ordered_like(reduce_sum(terms, {from.name}), x.shape());
}

Tensors expand_cumsum(ExpandContext& ctx) {
  const std::string& dim = ctx.call.attrs.text("dim");
  const std::int64_t parts = ctx.parts_of(dim);
  if (parts == 1) return {by_mask(ctx)};
  const Attrs& attrs = ctx.call.attrs;
  const Tensor total =
      ctx.graph.add(kCumsumTotals, ctx.inputs, {{"dim", dim}, {"parts", parts}}, ctx.where)[0];
  const Attrs over_parts = {
      {"dim", parts_name(dim)}, {"exclusive", true}, {"reverse", attrs.flag("reverse")}};
  const Tensor first = ctx.graph.add(kCumsumPrefix, {total}, over_parts, ctx.where)[0];
  return ctx.graph.add(kCumsumFrom, {ctx.inputs[0], first}, attrs, ctx.where);
}

std::vector<Sample> samples_cumsum() {
  auto along = [](const char* dim, bool exclusive, bool reverse) {
    return Attrs{{"dim", std::string(dim)}, {"exclusive", exclusive}, {"reverse", reverse}};
  };
  return {
      {.in = {"f32[batch:3;length:7;d_model:2]"}, .attrs = along("length", false, false)},
      {.in = {"f32[length:5;batch:2]"}, .attrs = along("length", true, false)},
      {.in = {"i32[batch:2;length:11]"}, .attrs = along("length", false, true)},
      {.in = {"bf16[batch:3;length:4]"}, .attrs = along("length", true, true)},
  };
}

std::vector<Sample> samples_totals() {
  const Attrs attrs = {{"dim", "length"}, {"parts", 3}};
  return {{.in = {"f32[batch:3;length:7]"}, .attrs = attrs},
          {.in = {"bf16[length:5;batch:2]"}, .attrs = attrs}};
}

std::vector<Sample> samples_prefix() {
  const Attrs attrs = {{"dim", "length__parts"}, {"exclusive", true}, {"reverse", false}};
  return {{.in = {"f32[batch:3;length__parts:5]"}, .attrs = attrs}};
}

std::vector<Sample> samples_from() {
  const Attrs attrs = {{"dim", "length"}, {"exclusive", false}, {"reverse", true}};
  return {
      {.in = {"f32[batch:3;length:7]", "f32[batch:3;length__parts:1]"}, .attrs = attrs},
      {.in = {"bf16[length:5;batch:2]", "f32[batch:2;length__parts:1]"}, .attrs = attrs},
  };
}

}  // namespace

const Op kCumsum{
    .name = "cumsum",
    .doc =
        "Sums of the elements of `dim` up to each one (`exclusive`: before each one), or from the end "
        "(`reverse`).",
    .infer = infer_cumsum,
    .role = role_whole_dim,
    .linear = linear_everywhere,
    .grad = grad_cumsum,
    .kernel = kernel_cumsum,
    .expand = expand_cumsum,
    .samples = samples_cumsum,
};

const Op kCumsumTotals{
    .name = "cumsum_totals",
    .doc = "Part of cumsum over a split dimension: the sum of each part (f32 for bf16).",
    .infer = infer_totals,
    .renames = renames_parts,
    .kernel = kernel_totals,
    .flops = flops_in,
    .samples = samples_totals,
};

const Op kCumsumPrefix{
    .name = "cumsum_prefix",
    .doc = "Part of cumsum over a split dimension: the cumulative sum of the parts' totals, gathered first.",
    .infer = infer_cumsum,
    .role = role_whole_dim,
    .kernel = kernel_cumsum,
    .samples = samples_prefix,
};

const Op kCumsumFrom{
    .name = "cumsum_from",
    .doc = "Part of cumsum over a split dimension: scans each part from its own start value.",
    .infer = infer_from,
    .aligned = renames_parts,
    .kernel = kernel_from,
    .samples = samples_from,
};

Tensor cumsum(Arg x, const std::string& dim, bool exclusive, bool reverse) {
  return add_one(kCumsum, x, {{"dim", dim}, {"exclusive", exclusive}, {"reverse", reverse}});
}

}  // namespace tessera
