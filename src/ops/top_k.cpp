// The k largest elements along a dimension. When that dimension is split, each part finds its own k best with
// global indices (top_k_local), those few are gathered and merged (top_k_merge): the whole dimension is never
// moved.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/infer.h"
#include "ops/records.h"
#include "ops/strided.h"

namespace tessera {
namespace {

constexpr std::int32_t kNoIndex = std::numeric_limits<std::int32_t>::max();

// The type that elements are compared in.
template <class T>
using KeyOf = std::conditional_t<std::is_same_v<T, bf16>, float, T>;

template <class T>
T lowest_value() {
  if constexpr (std::is_same_v<T, std::int32_t>) {
    return std::numeric_limits<T>::min();
  } else {
    return element_from<T>(-std::numeric_limits<double>::infinity());
  }
}

template <class T>
struct Candidate {
  T value;
  std::int32_t index;
};

// NaN first, then the larger value, then the lower index: a total order, so the answer does not depend on the
// parts.
template <class T>
bool better(const Candidate<T>& a, const Candidate<T>& b) {
  const auto x = static_cast<KeyOf<T>>(a.value), y = static_cast<KeyOf<T>>(b.value);
  const bool x_nan = x != x, y_nan = y != y;
  if (x_nan != y_nan) return x_nan;
  if (!x_nan && x != y) return x > y;
  return a.index < b.index;
}

// The k best candidates so far, as a heap with the worst in front.
template <class T>
class Best {
 public:
  explicit Best(std::int64_t k) : k_(static_cast<std::size_t>(k)) {}

  void offer(const Candidate<T>& candidate) {
    if (heap_.size() < k_) {
      heap_.push_back(candidate);
    } else if (better(candidate, heap_.front())) {
      std::pop_heap(heap_.begin(), heap_.end(), better<T>);
      heap_.back() = candidate;
    } else {
      return;
    }
    std::push_heap(heap_.begin(), heap_.end(), better<T>);
  }

  // Writes them best first, with padding up to k, and starts anew.
  void write(T* values, std::int64_t value_step, std::int32_t* indices, std::int64_t index_step) {
    std::sort_heap(heap_.begin(), heap_.end(), better<T>);
    heap_.resize(k_, {lowest_value<T>(), kNoIndex});
    for (std::size_t i = 0; i < k_; ++i) {
      values[static_cast<std::int64_t>(i) * value_step] = heap_[i].value;
      indices[static_cast<std::int64_t>(i) * index_step] = heap_[i].index;
    }
    heap_.clear();
  }

 private:
  std::size_t k_;
  std::vector<Candidate<T>> heap_;
};

const Dim& k_of(const Call& call) {
  return call.attrs.shape("k")[0];
}

// ------------------------------------------------------------------------------------------------ top_k,
// top_k_local

void check_top_k(const Call& call) {
  check_count(call, 1);
  const Dim& dim = dim_of(call, call.in[0].shape, call.attrs.text("dim"), "the input");
  const Dim& k = k_of(call);
  TESSERA_CHECK(call.in[0].dtype != DType::Bool, "{}: bool has no order (at {}); cast it to i32",
                call.op->name, call.name);
  TESSERA_CHECK(k.size >= 1 && k.size <= dim.size,
                "{}: cannot take {} of the {} elements of '{}' (at {}); choose 1 to {}", call.op->name,
                k.size, dim.size, dim.name, call.name, dim.size);
  TESSERA_CHECK(!call.in[0].shape.has(k.name),
                "{}: the input [{}] has a dimension '{}' already (at {}); choose another name for k",
                call.op->name, to_string(call.in[0].shape), k.name, call.name);
}

std::vector<Type> infer_top_k(const Call& call) {
  check_top_k(call);
  const Shape shape = call.in[0].shape.without(call.attrs.text("dim")).with(k_of(call));
  return {{shape, call.in[0].dtype}, {shape, DType::I32}};
}

std::vector<Type> infer_top_k_local(const Call& call) {
  check_top_k(call);
  const std::string& dim = call.attrs.text("dim");
  const Shape shape =
      call.in[0].shape.replaced(dim, {parts_name(dim), call.attrs.integer("parts")}).with(k_of(call));
  return {{shape, call.in[0].dtype}, {shape, DType::I32}};
}

// Both records: without a dimension of parts the whole dimension is one part. A shard with several parts (the
// dimension is not split there) puts all elements into the first.
void kernel_top_k(KernelContext& ctx) {
  const View &in = ctx.in[0], &values = ctx.out[0], &indices = ctx.out[1];
  const std::string& dim = ctx.call.attrs.text("dim");
  const std::string parts = parts_name(dim);
  const std::int64_t size = in.shape.size(dim), step = stride_of(in, dim), start = start_of(in, dim);
  const std::string& k_name = k_of(ctx.call).name;
  const std::int64_t k = values.shape.size(k_name);
  const std::int64_t value_step = stride_of(values, k_name), index_step = stride_of(indices, k_name);
  const std::int64_t part_count = values.shape.has(parts) ? values.shape.size(parts) : 1;
  const auto nest = nest_over(in.shape.without(dim), in, values, indices);
  with_number(in.dtype, [&]<class T>() {
    Best<T> best(k);
    nest.rows({0, 0, 0}, [&](auto at, std::int64_t count, auto by) {
      for (std::int64_t i = 0; i < count; ++i) {
        const T* row = in.as<T>() + at[0] + i * by[0];
        for (std::int64_t j = 0; j < size; ++j)
          best.offer({row[j * step], static_cast<std::int32_t>(start + j)});
        for (std::int64_t part = 0; part < part_count; ++part) {
          best.write(values.as<T>() + at[1] + i * by[1] + part * stride_of(values, parts), value_step,
                     indices.as<std::int32_t>() + at[2] + i * by[2] + part * stride_of(indices, parts),
                     index_step);
        }
      }
    });
  });
}

double flops_top_k(const Call& call) {
  return static_cast<double>(call.in[0].shape.elements());
}

void grad_top_k(GradContext& g) {
  if (!g.dy(0).valid()) return;
  const Tensor& x = g.in(0);
  g.set(0, scatter_add(g.out(1), g.dy(0), x.dim(g.node.attrs.text("dim")), x.shape()));
}

// ------------------------------------------------------------------------------------------------
// top_k_merge

std::vector<Type> infer_merge(const Call& call) {
  check_count(call, 2);
  check_i32(call, 1, "the index tensor");
  dim_of(call, call.in[0].shape, call.attrs.text("dim"), "the value tensor");
  const Shape shape = call.in[0].shape.without(call.attrs.text("dim"));
  return {{shape, call.in[0].dtype}, {shape, DType::I32}};
}

Role role_merge(const Call& call, int, const std::string& dim) {
  return dim == call.attrs.text("dim") || dim == k_of(call).name ? Role::Whole : Role::Map;
}

void kernel_merge(KernelContext& ctx) {
  const View &values = ctx.in[0], &indices = ctx.in[1], &best_values = ctx.out[0], &best_indices = ctx.out[1];
  const Dim& parts = values.shape.get(ctx.call.attrs.text("dim"));
  const Dim& k = values.shape.get(k_of(ctx.call).name);
  const auto nest =
      nest_over(values.shape.without(parts.name).without(k.name), values, indices, best_values, best_indices);
  const auto each = nest_over(Shape{parts, k}, values, indices);
  with_number(values.dtype, [&]<class T>() {
    Best<T> best(best_values.shape.size(k.name));
    nest.rows({0, 0, 0, 0}, [&](auto at, std::int64_t count, auto by) {
      for (std::int64_t i = 0; i < count; ++i) {
        each.rows({at[0] + i * by[0], at[1] + i * by[1]}, [&](auto p, std::int64_t n, auto s) {
          for (std::int64_t c = 0; c < n; ++c) {
            best.offer({values.as<T>()[p[0] + c * s[0]], indices.as<std::int32_t>()[p[1] + c * s[1]]});
          }
        });
        best.write(best_values.as<T>() + at[2] + i * by[2], stride_of(best_values, k.name),
                   best_indices.as<std::int32_t>() + at[3] + i * by[3], stride_of(best_indices, k.name));
      }
    });
  });
}

// ------------------------------------------------------------------------------------------------ expansion

// From primitives: the rank of an element is the number of elements that beat it.
Tensors by_rank(ExpandContext& ctx) {
  const Tensor& x = ctx.inputs[0];
  const Dim dim = x.dim(ctx.call.attrs.text("dim")), other{dim.name + "__other", dim.size};
  const Tensor position = range(ctx.graph, dim), y = rename(x, {{dim.name, other.name}});
  const Tensor ties = logical_and(equal(x, y), less(range(ctx.graph, other), position));
  const Tensor rank = reduce_sum(cast(logical_or(less(x, y), ties), DType::I32), {other.name});
  const Tensor hit = equal(rank, range(ctx.graph, k_of(ctx.call)));
  const Tensor zero = constant(ctx.graph, 0.0, Shape(), x.dtype()),
               none = constant(ctx.graph, 0.0, Shape(), DType::I32);
  const Shape& shape = ctx.call.out[0].shape;
  return {ordered_like(reduce_sum(select(hit, x, zero), {dim.name}), shape),
          ordered_like(reduce_sum(select(hit, position, none), {dim.name}), shape)};
}

Tensors expand_top_k(ExpandContext& ctx) {
  const std::string& dim = ctx.call.attrs.text("dim");
  const std::int64_t parts = ctx.parts_of(dim);
  if (parts == 1) return by_rank(ctx);
  Attrs attrs = ctx.call.attrs;
  attrs.set("parts", parts);
  const Tensors local = ctx.graph.add(kTopKLocal, ctx.inputs, std::move(attrs), ctx.where);
  return ctx.graph.add(kTopKMerge, local, {{"dim", parts_name(dim)}, {"k", Shape{k_of(ctx.call)}}},
                       ctx.where);
}

std::vector<Sample> samples_top_k() {
  return {
      {.in = {"f32[batch:3;vocab:7]"}, .attrs = {{"dim", "vocab"}, {"k", Shape{{"k", 3}}}}},
      {.in = {"i32[vocab:11;batch:2]"}, .attrs = {{"dim", "vocab"}, {"k", Shape{{"k", 5}}}}, .index_high = 3},
      {.in = {"bf16[batch:2;vocab:2;beam:3]"}, .attrs = {{"dim", "vocab"}, {"k", Shape{{"k", 2}}}}},
  };
}

std::vector<Sample> samples_local() {
  const Attrs attrs = {{"dim", "vocab"}, {"k", Shape{{"k", 2}}}, {"parts", 3}};
  return {{.in = {"f32[batch:3;vocab:7]"}, .attrs = attrs}, {.in = {"i32[vocab:5;batch:2]"}, .attrs = attrs}};
}

std::vector<Sample> samples_merge() {
  const Attrs attrs = {{"dim", "vocab__parts"}, {"k", Shape{{"k", 2}}}};
  return {
      {.in = {"f32[batch:3;vocab__parts:3;k:2]", "i32[batch:3;vocab__parts:3;k:2]"}, .attrs = attrs},
      {.in = {"i32[vocab__parts:2;batch:5;k:2]", "i32[vocab__parts:2;batch:5;k:2]"}, .attrs = attrs},
  };
}

}  // namespace

const Op kTopK{
    .name = "top_k",
    .doc =
        "The k largest elements along `dim`, descending, and their i32 indices; the lowest index on ties, "
        "NaN before all "
        "numbers. k is the last dimension of both outputs. No gradient flows through the indices.",
    .infer = infer_top_k,
    .role = role_whole_dim,
    .made = made_whole,
    .grad = grad_top_k,
    .kernel = kernel_top_k,
    .expand = expand_top_k,
    .flops = flops_top_k,
    .samples = samples_top_k,
};

const Op kTopKLocal{
    .name = "top_k_local",
    .doc =
        "Part of top_k over a split dimension: the best of each part with global indices, padded by the "
        "lowest value "
        "and index 2147483647.",
    .infer = infer_top_k_local,
    .made = made_whole,
    .renames = renames_parts,
    .kernel = kernel_top_k,
    .flops = flops_top_k,
    .samples = samples_local,
};

const Op kTopKMerge{
    .name = "top_k_merge",
    .doc = "Part of top_k over a split dimension: the best of all parts' best.",
    .infer = infer_merge,
    .role = role_merge,
    .kernel = kernel_merge,
    .flops = flops_top_k,
    .samples = samples_merge,
};

TopK top_k(Arg x, const std::string& dim, const Dim& k) {
  const Tensors outputs =
      graph_of(x, "top_k").add(kTopK, {x.tensor}, {{"dim", dim}, {"k", Shape{k}}}, x.where);
  return {outputs[0], outputs[1]};
}

}  // namespace tessera
