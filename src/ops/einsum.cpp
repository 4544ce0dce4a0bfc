// Contraction. The record takes two inputs; the builder breaks longer products into pairs in an order that
// depends on the sizes alone, never on the layout.
#include <algorithm>

#include "ops/build.h"
#include "ops/loops.h"
#include "ops/records.h"

namespace tessera {
namespace {

bool contains(const Strings& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<Type> infer_einsum(const Call& call) {
  check_count(call, 2);
  check_same_dtype(call);
  TESSERA_CHECK(call.in[0].dtype != DType::Bool, "einsum: the inputs are bool; cast them to a number first");
  const Shape all = broadcast_inputs(call);
  std::vector<Dim> dims;
  for (const std::string& name : call.attrs.texts("output")) {
    TESSERA_CHECK(all.has(name), "einsum: output dimension '{}' is in neither input, which have [{}]", name,
                  to_string(all));
    dims.push_back(all.get(name));
  }
  return {{Shape(std::move(dims)), call.in[0].dtype}};
}

Role role_einsum(const Call& call, int, const std::string& dim) {
  return contains(call.attrs.texts("output"), dim) ? Role::Map : Role::Sum;
}

void grad_einsum(GradContext& c) {
  for (int i : {0, 1}) {
    const Shape& shape = c.in(i).shape();
    const Shape have = broadcast_shape(c.dy().shape(), c.in(1 - i).shape());
    std::vector<Dim>
        made;  // a dimension that only this input had and that was summed: every element gets the same
    for (const Dim& dim : shape) {
      if (have.has(dim.name)) made.push_back(dim);
    }
    const Tensor dx = einsum({c.dy(), c.in(1 - i)}, Shape(made));
    c.set(i, made.size() == shape.count() ? dx : broadcast(dx, shape));
  }
}

template <class T>
void contract(const Call& call, const View& a, const View& b, const View& out) {
  const Strings& output = call.attrs.texts("output");
  Nest<2> inner;
  for (const Dim& dim : broadcast_shape(a.shape, b.shape)) {
    if (!contains(output, dim.name)) inner.add(dim.size, {stride_of(a, dim.name), stride_of(b, dim.name)});
  }
  nest_over(out.shape, a, b, out).rows({}, [&](auto at, std::int64_t count, auto step) {
    for (std::int64_t i = 0; i < count; ++i) {
      Wide<T> sum = 0;
      inner.rows({at[0], at[1]}, [&](auto from, std::int64_t terms, auto stride) {
        for (std::int64_t k = 0; k < terms; ++k) {
          sum += widen(a.as<T>()[from[0] + k * stride[0]]) * widen(b.as<T>()[from[1] + k * stride[1]]);
        }
      });
      out.as<T>()[at[2]] = narrow<T>(sum);
      for (std::size_t n = 0; n < 3; ++n) at[n] += step[n];
    }
  });
}

void kernel_einsum(KernelContext& c) {
  with_numeric(c.in[0].dtype, [&]<class T>() { contract<T>(c.call, c.in[0], c.in[1], c.out[0]); });
}

double flops_einsum(const Call& call) {
  return 2.0 * static_cast<double>(broadcast_shape(call.in[0].shape, call.in[1].shape).elements());
}

// Dimensions of both inputs and of the output are the batch; a summed one counts to k, also where one input
// has it alone.
std::vector<Product> products_einsum(const Call& call) {
  const Shape &a = call.in[0].shape, &b = call.in[1].shape;
  const Strings& output = call.attrs.texts("output");
  Product product{.dtype = call.in[0].dtype};
  for (const Dim& dim : broadcast_shape(a, b)) {
    std::int64_t& size = !contains(output, dim.name)          ? product.k
                         : a.has(dim.name) && b.has(dim.name) ? product.batch
                         : a.has(dim.name)                    ? product.m
                                                              : product.n;
    size *= dim.size;
  }
  // Rows of the result are rows of memory.
  if (!output.empty() && !b.has(output.back())) std::swap(product.m, product.n);
  return {product};
}

std::vector<Sample> einsum_samples() {
  const auto one = [](const char* a, const char* b, const Strings& output) {
    return Sample{.in = {a, b}, .attrs = {{"output", output}}};
  };
  return {one("f32[batch:3;in:5]", "f32[in:5;out:4]", {"batch", "out"}),
          one("f32[batch:2;heads:3;query:4;d:5]", "f32[batch:2;memory:3;heads:3;d:5]",
              {"batch", "heads", "query", "memory"}),
          one("bf16[batch:2;heads:3;d:5]", "bf16[heads:3;d:5;out:4]", {"out", "batch"}),
          one("f32[batch:3;in:5;spare:2]", "f32[in:5]", {"batch"}),
          one("i32[rows:4;in:3]", "i32[in:3;cols:2]", {"cols", "rows"}),
          one("f32[rows:4;in:3]", "f32[in:3;rows:4]", {})};
}

// --- the builder
// -----------------------------------------------------------------------------------------------------

Strings names_of(const Shape& shape) {
  Strings names;
  for (const Dim& dim : shape) names.push_back(dim.name);
  return names;
}

Shape union_of(const std::vector<Tensor>& xs) {
  Shape all;
  for (const Tensor& x : xs) {
    for (const Dim& dim : broadcast_shape(all, x.shape())) {
      if (!all.has(dim.name)) all = all.with(dim);
    }
  }
  return all;
}

// The product of a and b, summed down to the dimensions that `keep` has. An outer or component-wise product
// is a mul, which fuses with its neighbours.
Tensor pair(const Tensor& a, const Tensor& b, const Shape& keep, const Where& where) {
  const Shape all = union_of({a, b});
  std::vector<Dim> dims;
  for (const Dim& dim : keep) {
    if (all.has(dim.name)) dims.push_back(dim);
  }
  const Shape shape(std::move(dims));
  if (shape.count() < all.count()) {
    return make(kEinsum, {Arg(a, where), Arg(b, where)}, {{"output", names_of(shape)}});
  }
  const Tensor product = mul(Arg(a, where), Arg(b, where));
  return product.shape() == shape ? product : transpose(Arg(product, where), names_of(shape));
}

struct Choice {
  std::size_t a = 0, b = 1;
  Shape keep;
  std::int64_t work = 0, size = 0;  // products; elements of the result
};

// What remains of xs[a] * xs[b] once the dimensions are summed that neither the output nor another factor
// has.
Choice consider(const std::vector<Tensor>& xs, const Shape& output, std::size_t a, std::size_t b) {
  std::vector<Tensor> others;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    if (i != a && i != b) others.push_back(xs[i]);
  }
  const Shape rest = union_of(others), all = union_of({xs[a], xs[b]});
  std::vector<Dim> dims;
  for (const Dim& dim : all) {
    if (output.has(dim.name) || rest.has(dim.name)) dims.push_back(dim);
  }
  Choice choice{a, b, others.empty() ? output : Shape(std::move(dims)), all.elements(), 0};
  choice.size = choice.keep.elements();
  return choice;
}

// Cheapest pair first; on ties the smallest result, then the first pair.
Tensor contract_all(std::vector<Tensor> xs, const Shape& output, const Where& where) {
  while (xs.size() > 1) {
    Choice best = consider(xs, output, 0, 1);
    for (std::size_t a = 0; a < xs.size(); ++a) {
      for (std::size_t b = a + 1; b < xs.size(); ++b) {
        const Choice next = consider(xs, output, a, b);
        if (std::pair(next.work, next.size) < std::pair(best.work, best.size)) best = next;
      }
    }
    xs[best.a] = pair(xs[best.a], xs[best.b], best.keep, where);
    xs.erase(xs.begin() + static_cast<std::ptrdiff_t>(best.b));
  }
  return xs[0];
}

Tensor reduce_to(const Tensor& x, const Shape& output, const Where& where) {
  Strings summed;
  for (const Dim& dim : x.shape()) {
    if (!output.has(dim.name)) summed.push_back(dim.name);
  }
  const Tensor sum = summed.empty() ? x : reduce_sum(Arg(x, where), summed);
  return sum.shape() == output ? sum : transpose(Arg(sum, where), names_of(output));
}

// Two tensors that share a name must agree about its size.
void check_sizes(const Tensor& a, const Tensor& b, const std::string& place) {
  for (const Dim& dim : b.shape()) {
    const int at = a.shape().find(dim.name);
    const std::int64_t size = at < 0 ? dim.size : a.shape()[static_cast<std::size_t>(at)].size;
    TESSERA_CHECK(
        size == dim.size,
        "einsum: dimension '{}' has size {} in '{}' but {} in '{}' ({}); rename one or fix the size",
        dim.name, size, a.name(), dim.size, b.name(), place);
  }
}

std::vector<Tensor> tensors_of(const Args& inputs, const Where& where) {
  const std::string place = to_string(Location(where));
  TESSERA_CHECK(!inputs.empty(), "einsum: has no inputs ({})", place);
  std::vector<Tensor> xs;
  for (const Arg& input : inputs) {
    graph_of(input, "einsum");
    const Tensor& x = input.tensor;
    TESSERA_CHECK(x.dtype() == inputs[0].tensor.dtype(),
                  "einsum: '{}' is {} but '{}' is {} ({}); cast one of them", inputs[0].tensor.name(),
                  to_string(inputs[0].tensor.dtype()), x.name(), to_string(x.dtype()), place);
    for (const Tensor& earlier : xs) check_sizes(earlier, x, place);
    xs.push_back(x);
  }
  return xs;
}

}  // namespace

constinit const Op kEinsum{
    .name = "einsum",
    .doc =
        "The product of two tensors, broadcast to the union of their dimensions and summed down to the "
        "dimensions named "
        "by `output`.",
    .infer = infer_einsum,
    .role = role_einsum,
    .grad = grad_einsum,
    .kernel = kernel_einsum,
    .flops = flops_einsum,
    .products = products_einsum,
    .contraction = true,
    .samples = einsum_samples,
};

Tensor einsum(const Args& inputs, const Shape& output, Where where) {
  const std::vector<Tensor> xs = tensors_of(inputs, where);
  const Shape all = union_of(xs);
  std::vector<Dim> held;
  for (const Dim& dim : output) {
    if (!all.has(dim.name)) continue;
    TESSERA_CHECK(
        all.size(dim.name) == dim.size,
        "einsum: dimension '{}' has size {} in the output but {} in the inputs ({}); fix one of them",
        dim.name, dim.size, all.size(dim.name), to_string(Location(where)));
    held.push_back(dim);
  }
  const Shape product(std::move(held));
  const Tensor y = xs.size() == 1 ? reduce_to(xs[0], product, where) : contract_all(xs, product, where);
  return product == output ? y : broadcast(Arg(y, where), output);
}

Tensor einsum(const Args& inputs, Where where) {
  const std::vector<Tensor> xs = tensors_of(inputs, where);
  std::vector<Dim> kept;
  for (const Dim& dim : union_of(xs)) {
    const auto holders =
        std::count_if(xs.begin(), xs.end(), [&](const Tensor& x) { return x.shape().has(dim.name); });
    if (holders == 1) kept.push_back(dim);
  }
  return einsum(inputs, Shape(std::move(kept)), where);
}

}  // namespace tessera
