// Look-up by run-time index: one_hot, gather, scatter_add. Indices are global; a shard of the table answers
// for the rows that it holds and leaves zeros elsewhere, so a split table gives a pending sum. Nothing is
// multiplied: a NaN in a row that nobody asks for stays there.
#include <algorithm>
#include <span>

#include "ops/infer.h"
#include "ops/records.h"
#include "ops/strided.h"

namespace tessera {
namespace {

// Dimensions of `a` that `b` has (or lacks).
Shape common_dims(const Shape& a, const Shape& b, bool has) {
  std::vector<Dim> dims;
  for (const Dim& dim : a) {
    if (b.has(dim.name) == has) dims.push_back(dim);
  }
  return Shape(std::move(dims));
}

void check_equal(const Call& call, const Dim& dim, const Shape& other, const char* a, const char* b) {
  TESSERA_CHECK(other.size(dim.name) == dim.size,
                "{}: dimension '{}' has size {} in {} but {} in {} (at {}); rename one or fix the size",
                call.op->name, dim.name, dim.size, a, other.size(dim.name), b, call.name);
}

// ------------------------------------------------------------------------------------------------ one_hot

std::vector<Type> infer_one_hot(const Call& call) {
  check_count(call, 1);
  check_i32(call, 0, "the index tensor");
  const Dim dim = call.attrs.shape("dim")[0];
  TESSERA_CHECK(!call.in[0].shape.has(dim.name),
                "one_hot: the indices [{}] have a dimension '{}' already (at {}); rename it",
                to_string(call.in[0].shape), dim.name, call.name);
  return {{call.in[0].shape.with(dim), call.attrs.dtype("dtype")}};
}

void kernel_one_hot(KernelContext& ctx) {
  const View &indices = ctx.in[0], &out = ctx.out[0];
  const std::size_t last = out.shape.count() - 1;
  const std::int64_t start = out.start[last], size = out.shape[last].size, step = out.stride[last];
  with_type(out.dtype, [&]<class T>() {
    const T on = element_from<T>(ctx.call.attrs.number("on")),
            off = element_from<T>(ctx.call.attrs.number("off"));
    fill_view(out, off);
    nest_over(indices.shape, indices, out).rows({0, 0}, [&](auto at, std::int64_t count, auto by) {
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t local = indices.as<std::int32_t>()[at[0] + i * by[0]] - start;
        if (local >= 0 && local < size) out.as<T>()[at[1] + i * by[1] + local * step] = on;
      }
    });
  });
}

std::vector<Sample> samples_one_hot() {
  const Attrs attrs = {{"dim", Shape{{"classes", 5}}}, {"on", 1.0}, {"off", 0.0}, {"dtype", DType::F32}};
  const Attrs smooth = {{"dim", Shape{{"classes", 3}}}, {"on", 0.75}, {"off", 0.125}, {"dtype", DType::BF16}};
  return {
      {.in = {"i32[batch:3;length:4]"}, .attrs = attrs, .index_high = 7, .index_low = -2},
      {.in = {"i32[batch:5]"}, .attrs = smooth, .index_high = 3},
  };
}

// ------------------------------------------------------------------------------------------------ gather

std::vector<Type> infer_gather(const Call& call) {
  check_count(call, 2);
  check_i32(call, 1, "the index tensor");
  const Shape &table = call.in[0].shape, &indices = call.in[1].shape;
  const std::string& name = call.attrs.text("dim");
  dim_of(call, table, name, "the table");
  TESSERA_CHECK(
      !indices.has(name),
      "gather: both table and indices [{}] have the dimension '{}' (at {}); rename that of the indices",
      to_string(indices), name, call.name);
  std::vector<Dim> dims = indices.dims();
  for (const Dim& dim : table) {
    if (indices.has(dim.name)) {
      check_equal(call, dim, indices, "the table", "the indices");
    } else if (dim.name != name) {
      dims.push_back(dim);
    }
  }
  return {{Shape(std::move(dims)), call.in[0].dtype}};
}

Role role_gather(const Call& call, int input, const std::string& dim) {
  if (input != 0 || dim != call.attrs.text("dim")) return Role::Map;
  return call.in[0].dtype == DType::Bool ? Role::Max : Role::Sum;
}

bool linear_in_table(const Call&, int input) {
  return input == 0;
}

void kernel_gather(KernelContext& ctx) {
  const View &table = ctx.in[0], &indices = ctx.in[1], &out = ctx.out[0];
  const std::string& dim = ctx.call.attrs.text("dim");
  const std::int64_t start = start_of(table, dim), size = table.shape.size(dim), step = stride_of(table, dim);
  const auto looked_up = nest_over(indices.shape, indices, table, out);
  const auto row = nest_over(common_dims(out.shape, indices.shape, false), table, out);
  with_width(out.dtype, [&]<class T>() {
    looked_up.rows({0, 0, 0}, [&](auto at, std::int64_t count, auto by) {
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t local = indices.as<std::int32_t>()[at[0] + i * by[0]] - start;
        const bool here = local >= 0 && local < size;
        row.rows({at[1] + i * by[1] + (here ? local * step : 0), at[2] + i * by[2]},
                 [&](auto p, std::int64_t n, auto s) {
                   if (here) return copy_row(out.as<T>() + p[1], s[1], table.as<T>() + p[0], s[0], n);
                   for (std::int64_t k = 0; k < n; ++k) out.as<T>()[p[1] + k * s[1]] = 0;
                 });
      }
    });
  });
}

void grad_gather(GradContext& g) {
  const std::string& dim = g.node.attrs.text("dim");
  g.set(0, scatter_add(g.in(1), g.dy(), g.in(0).dim(dim), g.in(0).shape()));
}

std::vector<Sample> samples_gather() {
  return {
      {.in = {"f32[vocab:7;d_model:3]", "i32[batch:2;length:5]"},
       .attrs = {{"dim", "vocab"}},
       .index_high = 9,
       .index_low = -1},
      {.in = {"f32[batch:3;vocab:5;d_model:2]", "i32[length:4;batch:3]"},
       .attrs = {{"dim", "vocab"}},
       .index_high = 5},
      {.in = {"bool[d_model:3;vocab:4]", "i32[length:5]"}, .attrs = {{"dim", "vocab"}}, .index_high = 4},
      {.in = {"bf16[vocab:3;batch:2]", "i32[batch:2]"}, .attrs = {{"dim", "vocab"}}, .index_high = 3},
  };
}

// ------------------------------------------------------------------------------------------------
// scatter_add

std::vector<Type> infer_scatter_add(const Call& call) {
  check_count(call, 2);
  check_i32(call, 0, "the index tensor");
  const Shape &indices = call.in[0].shape, &updates = call.in[1].shape, &out = call.attrs.shape("shape");
  const std::string& name = call.attrs.text("dim");
  TESSERA_CHECK(call.in[1].dtype != DType::Bool,
                "scatter_add: bool updates cannot be added (at {}); cast them", call.name);
  dim_of(call, out, name, "the output");
  TESSERA_CHECK(!indices.has(name) && !updates.has(name),
                "scatter_add: dimension '{}' is made by the indices but an input has it already (at {}); "
                "rename that one",
                name, call.name);
  for (const Dim& dim : indices) {
    dim_of(call, updates, dim.name, "the update tensor");
    check_equal(call, dim, updates, "the indices", "the updates");
  }
  for (const Dim& dim : out) {
    if (dim.name == name) continue;
    dim_of(call, updates, dim.name, "the update tensor");
    check_equal(call, dim, updates, "the output", "the updates");
  }
  for (const Dim& dim : updates) {
    TESSERA_CHECK(indices.has(dim.name) || out.has(dim.name),
                  "scatter_add: dimension '{}' of the updates is neither in the indices nor in the output "
                  "(at {}); sum it first",
                  dim.name, call.name);
  }
  return {{out, call.in[1].dtype}};
}

Role role_scatter_add(const Call& call, int, const std::string& dim) {
  return call.attrs.shape("shape").has(dim) ? Role::Map : Role::Sum;
}

bool linear_in_updates(const Call&, int input) {
  return input == 1;
}

// The updates that go to each local row, in index order: rows[r] .. rows[r + 1] of `order` are positions in
// the list.
struct ByRow {
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> order;  // offsets in the update tensor
};

// `summed` walks indices and updates over the summed dimensions.
ByRow sort_by_row(const View& indices, const Nest<2>& summed, std::int64_t index_at, std::int64_t update_at,
                  std::int64_t start, std::int64_t size) {
  ByRow by{std::vector<std::int64_t>(static_cast<std::size_t>(size) + 2, 0), {}};
  auto each = [&](auto visit) {
    summed.rows({index_at, update_at}, [&](auto at, std::int64_t count, auto step) {
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t row = indices.as<std::int32_t>()[at[0] + i * step[0]] - start;
        if (row >= 0 && row < size) visit(static_cast<std::size_t>(row), at[1] + i * step[1]);
      }
    });
  };
  each([&](std::size_t row, std::int64_t) { ++by.rows[row + 2]; });
  for (std::size_t r = 2; r < by.rows.size(); ++r) by.rows[r] += by.rows[r - 1];
  by.order.resize(static_cast<std::size_t>(by.rows.back()));
  each(
      [&](std::size_t row, std::int64_t at) { by.order[static_cast<std::size_t>(by.rows[row + 1]++)] = at; });
  by.rows.pop_back();
  return by;
}

// One output row: the sum of update rows in index order, in the wide type, rounded once.
template <class T>
void add_rows(std::span<const std::int64_t> sources, const T* updates, std::int64_t from_step, T* out,
              std::int64_t to_step, std::int64_t count) {
  constexpr std::int64_t kBlock = 256;
  SumOf<T> sum[kBlock];
  for (std::int64_t done = 0; done < count; done += kBlock) {
    const std::int64_t n = std::min(kBlock, count - done);
    std::fill_n(sum, n, SumOf<T>{0});
    for (std::int64_t source : sources) {
      const T* from = updates + source + done * from_step;
      for (std::int64_t i = 0; i < n; ++i) sum[i] += static_cast<SumOf<T>>(from[i * from_step]);
    }
    for (std::int64_t i = 0; i < n; ++i) out[(done + i) * to_step] = T(sum[i]);
  }
}

template <class T>
void scatter(const KernelContext& ctx) {
  const View &indices = ctx.in[0], &updates = ctx.in[1], &out = ctx.out[0];
  const std::string& dim = ctx.call.attrs.text("dim");
  const std::int64_t start = start_of(out, dim), size = out.shape.size(dim), step = stride_of(out, dim);
  const auto batch = nest_over(common_dims(indices.shape, out.shape, true), indices, updates, out);
  const auto summed = nest_over(common_dims(indices.shape, out.shape, false), indices, updates);
  const auto rest = nest_over(common_dims(updates.shape, indices.shape, false), updates, out);
  batch.rows({0, 0, 0}, [&](auto at, std::int64_t count, auto by) {
    for (std::int64_t b = 0; b < count; ++b) {
      const ByRow sorted = sort_by_row(indices, summed, at[0] + b * by[0], at[1] + b * by[1], start, size);
      for (std::int64_t r = 0; r < size; ++r) {
        const auto begin = static_cast<std::size_t>(sorted.rows[static_cast<std::size_t>(r)]);
        const auto end = static_cast<std::size_t>(sorted.rows[static_cast<std::size_t>(r) + 1]);
        const std::span<const std::int64_t> sources(sorted.order.data() + begin, end - begin);
        rest.rows({0, at[2] + b * by[2] + r * step}, [&](auto p, std::int64_t n, auto s) {
          add_rows<T>(sources, updates.as<T>() + p[0], s[0], out.as<T>() + p[1], s[1], n);
        });
      }
    }
  });
}

void kernel_scatter_add(KernelContext& ctx) {
  with_number(ctx.out[0].dtype, [&]<class T>() { scatter<T>(ctx); });
}

double flops_scatter_add(const Call& call) {
  return static_cast<double>(call.in[1].shape.elements());
}

void grad_scatter_add(GradContext& g) {
  const Tensor rows = gather(g.dy(), g.in(0), g.node.attrs.text("dim"));
  g.set(1, ordered_like(rows, g.in(1).shape()));
}

std::vector<Sample> samples_scatter_add() {
  auto to = [](Shape shape) { return Attrs{{"dim", "vocab"}, {"shape", std::move(shape)}}; };
  return {
      {.in = {"i32[batch:2;length:5]", "f32[batch:2;length:5;d_model:3]"},
       .attrs = to({{"vocab", 6}, {"d_model", 3}}),
       .index_high = 7,
       .index_low = -1},
      {.in = {"i32[length:7;batch:3]", "f32[batch:3;length:7;d_model:2]"},
       .attrs = to({{"batch", 3}, {"d_model", 2}, {"vocab", 4}}),
       .index_high = 4},
      {.in = {"i32[length:5]", "i32[length:5]"}, .attrs = to({{"vocab", 3}}), .index_high = 3},
      {.in = {"i32[length:9]", "bf16[d_model:2;length:9]"},
       .attrs = to({{"vocab", 2}, {"d_model", 2}}),
       .index_high = 2},
  };
}

}  // namespace

const Op kOneHot{
    .name = "one_hot",
    .doc =
        "`on` where the index along the new last dimension equals the input, else `off`; all `off` for an "
        "index outside.",
    .infer = infer_one_hot,
    .kernel = kernel_one_hot,
    .flops = no_flops,
    .samples = samples_one_hot,
};

const Op kGather{
    .name = "gather",
    .doc =
        "Rows of the table along `dim`: the dimensions of the indices, then those of the table but `dim`; "
        "shared names "
        "are batched. An index outside gives a row of zeros.",
    .infer = infer_gather,
    .role = role_gather,
    .linear = linear_in_table,
    .grad = grad_gather,
    .kernel = kernel_gather,
    .flops = no_flops,
    .step_class = StepClass::Embedding,
    .samples = samples_gather,
};

const Op kScatterAdd{
    .name = "scatter_add",
    .doc =
        "out[i] = the sum of the updates whose index is i, in index order; dimensions of the indices that "
        "the output has "
        "are batched, the others summed. Updates with an index outside are dropped.",
    .infer = infer_scatter_add,
    .role = role_scatter_add,
    .linear = linear_in_updates,
    .grad = grad_scatter_add,
    .kernel = kernel_scatter_add,
    .flops = flops_scatter_add,
    .step_class = StepClass::Embedding,
    .samples = samples_scatter_add,
};

Tensor one_hot(Arg indices, const Dim& dim, double on, double off, DType dtype) {
  return add_one(kOneHot, indices, {{"dim", Shape{dim}}, {"on", on}, {"off", off}, {"dtype", dtype}});
}

Tensor gather(Arg table, Arg indices, const std::string& dim) {
  graph_of(indices, "gather");
  return graph_of(table, "gather")
      .add(kGather, {table.tensor, indices.tensor}, {{"dim", dim}}, table.where)[0];
}

Tensor scatter_add(Arg indices, Arg updates, const Dim& dim, const Shape& output) {
  graph_of(updates, "scatter_add");
  Graph& graph = graph_of(indices, "scatter_add");
  TESSERA_CHECK(output.has(dim.name) && output.size(dim.name) == dim.size,
                "scatter_add: the output [{}] has no dimension {}:{} ({}); add it", to_string(output),
                dim.name, dim.size, to_string(Location(indices.where)));
  return graph.add(kScatterAdd, {indices.tensor, updates.tensor}, {{"dim", dim.name}, {"shape", output}},
                   indices.where)[0];
}

}  // namespace tessera
