// Attention: softmax of scaled products of queries and keys, applied to values, as one op, so that no tensor
// of queries x memory exists. Which memory positions a query sees, and a bias by their distance, come from
// inputs that are linear in the lengths. The forward pass keeps the log of each softmax's sum; the backward
// pass computes the weights again from it.
#include "ops/attention.h"

#include <algorithm>

#include "ops/records.h"

namespace tessera {
namespace {

bool lists(const Strings& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// ------------------------------------------------------------------------------------------------ inference

// The dimensions of `part` must be dimensions of `whole`, of equal sizes.
void check_part_of(const AttentionCall& a, std::size_t input, const Shape& part, const Shape& whole,
                   const char* of) {
  for (const Dim& dim : part) {
    TESSERA_CHECK(whole.has(dim.name) && whole.size(dim.name) == dim.size,
                  "{}: input {} has dimension {}:{}, but {} has [{}]; it may only have dimensions of {}",
                  a.call.op->name, input, dim.name, dim.size, of, to_string(whole), of);
  }
}

void check_operands(const AttentionCall& a) {
  const Call& call = a.call;
  check_floating(call, 0);
  const Shape& q = call.in[0].shape;
  for (const std::string& name : {a.query, a.feature}) check_has(call, 0, name);
  for (std::size_t i : {1, 2}) {
    check_dtype(call, i, call.in[0].dtype);
    const Shape& shape = call.in[i].shape;
    check_has(call, i, a.memory);
    TESSERA_CHECK(!q.has(a.memory) && !shape.has(a.query),
                  "{}: q [{}] and input {} [{}] must not share '{}' or '{}'; rename the length of the memory",
                  call.op->name, to_string(q), i, to_string(shape), a.query, a.memory);
    check_part_of(a, i, shape.without(a.memory), q, "q");
    TESSERA_CHECK(
        shape.count() == q.count(),
        "{}: q is [{}] but input {} is [{}]; they must have the same dimensions besides '{}' and '{}'",
        call.op->name, to_string(q), i, to_string(shape), a.query, a.memory);
  }
  TESSERA_CHECK(call.in[1].shape.size(a.memory) == call.in[2].shape.size(a.memory),
                "{}: '{}' has size {} in k but {} in v", call.op->name, a.memory,
                call.in[1].shape.size(a.memory), call.in[2].shape.size(a.memory));
}

void check_bias(const AttentionCall& a, std::size_t input) {
  const Type& bias = a.call.in[input];
  check_dtype(a.call, input, a.statistic().dtype);
  check_has(a.call, input, a.distance);
  TESSERA_CHECK(bias.shape.size(a.distance) % 2 == 1,
                "{}: a bias for distances from -n to n has 2 n + 1 of them, but '{}' has size {}",
                a.call.op->name, a.distance, bias.shape.size(a.distance));
  check_part_of(a, input, bias.shape.without(a.distance), a.rows().without(a.query), "a row of q");
}

void check_optional(const AttentionCall& a) {
  const Shape memory_rows = a.call.in[1].shape.without(a.feature);
  for (std::size_t i = 0; i < a.with.size(); ++i) {
    const std::size_t input = 3 + i;
    const bool known = std::any_of(std::begin(kAttentionInputs), std::end(kAttentionInputs),
                                   [&](const char* name) { return a.with[i] == name; });
    TESSERA_CHECK(known, "{}: there is no optional input '{}'", a.call.op->name, a.with[i]);
    if (a.with[i] == "distance_bias") {
      check_bias(a, input);
      continue;
    }
    check_dtype(a.call, input, DType::I32);
    const bool of_query = a.with[i].rfind("query", 0) == 0;
    check_part_of(a, input, a.call.in[input].shape, of_query ? a.rows() : memory_rows, of_query ? "q" : "k");
  }
  for (const char* what : {"positions", "segments"}) {
    TESSERA_CHECK(lists(a.with, std::string("query_") + what) == lists(a.with, std::string("memory_") + what),
                  "{}: {} of queries and of the memory must be given together", a.call.op->name, what);
  }
  TESSERA_CHECK(lists(a.with, "query_positions") || !(a.causal || lists(a.with, "distance_bias")),
                "{}: a causal mask and a bias by distance need the positions of queries and memory",
                a.call.op->name);
}

// Checks all but the inputs behind the optional ones, of which there are between `least` and `most`.
void check_attention(const AttentionCall& a, std::size_t least, std::size_t most) {
  const Call& call = a.call;
  TESSERA_CHECK(call.in.size() >= a.tail() + least && call.in.size() <= a.tail() + most,
                "{}: takes {} inputs, got {} (at {})", call.op->name, a.tail() + least, call.in.size(),
                call.name);
  check_operands(a);
  check_optional(a);
  TESSERA_CHECK(a.rate >= 0 && a.rate < 1, "{}: the dropout rate {} is not in [0, 1)", call.op->name, a.rate);
  for (const std::string& name : a.noise) dim_of(call, a.weights(), name, "the attention weights");
}

std::vector<Type> infer_attention(const Call& call) {
  const AttentionCall a(call);
  check_attention(a, 0, 0);
  return {call.in[0], a.statistic()};
}

std::vector<Type> infer_attention_grad(const Call& call) {
  const AttentionCall a(call);
  check_attention(a, 3, 4);
  const Type expected[] = {call.in[0], a.statistic(), call.in[0], a.statistic()};
  for (std::size_t i = a.tail(); i < call.in.size(); ++i) {
    TESSERA_CHECK(call.in[i] == expected[i - a.tail()], "{}: input {} must be {} but is {}", call.op->name, i,
                  to_string(expected[i - a.tail()]), to_string(call.in[i]));
  }
  std::vector<Type> out{call.in[0], call.in[1], call.in[2]};
  if (const int bias = a.input("distance_bias"); bias >= 0)
    out.push_back(call.in[static_cast<std::size_t>(bias)]);
  return out;
}

// ------------------------------------------------------------------------------------------------ roles

bool is_whole(const AttentionCall& a, const std::string& dim) {
  return dim == a.memory || dim == a.feature || dim == a.distance;
}

Role role_attention(const Call& call, int, const std::string& dim) {
  return is_whole(AttentionCall(call), dim) ? Role::Whole : Role::Map;
}

// Gradients of k and v are sums over the queries; that of the bias also over what it broadcasts to.
Role role_attention_grad(const Call& call, int, const std::string& dim) {
  const AttentionCall a(call);
  if (is_whole(a, dim)) return Role::Whole;
  const int bias = a.input("distance_bias");
  const bool in_bias = bias < 0 || call.in[static_cast<std::size_t>(bias)].shape.has(dim);
  return dim == a.query || !in_bias ? Role::Sum : Role::Map;
}

// ------------------------------------------------------------------------------------------------ cost

// Memory positions of one product: products of longer memories come in so many pieces, none of which needs a
// matrix of all queries by all of the memory.
constexpr std::int64_t kProductMemory = 512;

// A causal query sees half of the memory on average, over a sequence as over the steps of decoding.
Product shared_sizes(const AttentionCall& a) {
  const Shape &q = a.call.in[0].shape, &k = a.call.in[1].shape;
  const std::int64_t memory = k.size(a.memory);
  Product p{.dtype = a.call.in[0].dtype};
  p.batch = q.without(a.query).without(a.feature).elements();
  p.m = q.size(a.query);
  p.n = std::min(memory, kProductMemory);
  p.k = q.size(a.feature);
  const auto size = static_cast<double>(memory);
  if (memory > 0) p.times = size / static_cast<double>(p.n) * (a.causal ? (size + 1) / (2 * size) : 1);
  return p;
}

Product with_sizes(Product p, std::int64_t m, std::int64_t n, std::int64_t k) {
  p.m = m, p.n = n, p.k = k;
  return p;
}

// Logits, and weights times values.
std::vector<Product> products_attention(const Call& call) {
  const Product p = shared_sizes(AttentionCall(call));
  return {p, with_sizes(p, p.m, p.k, p.n)};
}

// Logits and gradients of the weights; gradients of v and k; gradient of q.
std::vector<Product> products_attention_grad(const Call& call) {
  const Product p = shared_sizes(AttentionCall(call));
  const Product memory = with_sizes(p, p.n, p.k, p.m);
  return {p, p, memory, memory, with_sizes(p, p.m, p.k, p.n)};
}

double flops_attention(const Call& call) {
  double flops = 0;
  for (const Product& p : call.op->products(call)) {
    flops += 2 * p.times * static_cast<double>(p.batch * p.m * p.n * p.k);
  }
  return flops;
}

// ------------------------------------------------------------------------------------------------ gradient

void grad_attention(GradContext& c) {
  Tensors inputs = c.node.inputs;
  inputs.push_back(c.out());
  inputs.push_back(c.out(1));
  inputs.push_back(c.dy().valid() ? c.dy() : zeros_like(c.out()));
  if (c.dy(1).valid()) inputs.push_back(c.dy(1));
  const Tensors grads = c.graph.add(kAttentionGrad, inputs, c.node.attrs, c.node.where);
  c.graph.mutable_node(grads[0].node()).key = c.node.key;
  for (int i = 0; i < 3; ++i) c.set(i, grads[static_cast<std::size_t>(i)]);
  if (grads.size() > 3) c.set(AttentionCall(call_of(c.node)).input("distance_bias"), grads[3]);
}

// ------------------------------------------------------------------------------------------------ samples

Attrs attention_attrs(bool causal, double scale, double rate, const Strings& noise, const Strings& with) {
  return {{"query", std::string("length")},
          {"memory", std::string("memory_length")},
          {"feature", std::string("d_kv")},
          {"distance", std::string("distance")},
          {"causal", causal},
          {"scale", scale},
          {"rate", rate},
          {"noise", noise},
          {"with", with}};
}

// Positions, segments and ids are drawn from a few numbers: some queries see nothing.
std::vector<Sample> attention_samples() {
  const Strings all(std::begin(kAttentionInputs), std::end(kAttentionInputs));
  const std::string query = "f32[batch:2;length:5;heads:3;d_kv:4]",
                    memory = "f32[batch:2;memory_length:3;heads:3;d_kv:4]";
  return {
      {.in = {"f32[batch:2;length:5;heads:2;d_kv:3]", "f32[batch:2;memory_length:7;heads:2;d_kv:3]",
              "f32[batch:2;heads:2;d_kv:3;memory_length:7]", "i32[length:5]", "i32[batch:2;memory_length:7]",
              "i32[batch:2;length:5]", "i32[batch:2;memory_length:7]", "i32[batch:2;memory_length:7]",
              "f32[heads:2;distance:5]"},
       .attrs = attention_attrs(true, 1, 0.25, {}, all),
       .low = -1,
       .high = 1,
       .index_high = 3},
      {.in = {query, memory, memory}, .attrs = attention_attrs(false, 0.5, 0, {}, {}), .low = -1, .high = 1},
      {.in = {"bf16[heads:2;d_kv:3;length:4]", "bf16[memory_length:5;heads:2;d_kv:3]",
              "bf16[memory_length:5;heads:2;d_kv:3]", "i32[length:4]", "i32[memory_length:5]"},
       .attrs = attention_attrs(true, 0.5, 0.5, {"heads", "memory_length"},
                                {"query_positions", "memory_positions"}),
       .low = -1,
       .high = 1,
       .index_high = 5}};
}

std::vector<Sample> attention_grad_samples() {
  std::vector<Sample> samples = attention_samples();
  for (Sample& sample : samples) {
    const std::string& q = sample.in[0];
    const Shape rows = parse_shape(q.substr(q.find('[') + 1, q.find(']') - q.find('[') - 1)).without("d_kv");
    const std::string statistic = "f32[" + to_string(rows) + "]";
    for (const std::string& type : {q, statistic, q}) sample.in.push_back(type);
  }
  samples[1].in.push_back(samples[1].in[4]);  // a gradient of log_sum
  return samples;
}

}  // namespace

AttentionCall::AttentionCall(const Call& c)
    : call(c),
      query(c.attrs.text("query")),
      memory(c.attrs.text("memory")),
      feature(c.attrs.text("feature")),
      distance(c.attrs.text("distance")),
      causal(c.attrs.flag("causal")),
      scale(c.attrs.number("scale")),
      rate(c.attrs.number("rate")),
      with(c.attrs.texts("with")),
      noise(c.attrs.texts("noise")) {}

int AttentionCall::input(std::string_view name) const {
  const auto it = std::find(with.begin(), with.end(), name);
  return it == with.end() ? -1 : 3 + static_cast<int>(it - with.begin());
}

constinit const Op kAttention{
    .name = "attention",
    .doc =
        "The sum of v over `memory`, weighted by the softmax of scale * q k (contracted over `feature`) "
        "+ bias. Inputs: q, k, v, then those that `with` names: query_positions and memory_positions "
        "(i32; with `causal`, a query sees positions up to its own), query_segments and memory_segments "
        "(i32; a query sees equal ones), memory_ids (i32; 0 is seen by nobody), distance_bias (added to "
        "the logits by memory position - query position, clipped to what `distance` holds: -n to n). "
        "They broadcast by name. Weights are dropped out at `rate` with a mask over the dimensions "
        "`noise` (empty: all) of queries x memory. A query that sees nothing gives zeros. Computed in "
        "f32 or f64. Outputs: y like q; log_sum, the log of the sum of the exponentials of each query "
        "(0 if it sees nothing).",
    .infer = infer_attention,
    .role = role_attention,
    .grad = grad_attention,
    .kernel = kernel_attention,
    .expand = expand_attention,
    .flops = flops_attention,
    .products = products_attention,
    .exact = false,
    .ulps = 32,
    .random = true,
    .step_class = StepClass::Attention,
    .samples = attention_samples,
};

constinit const Op kAttentionGrad{
    .name = "attention_grad",
    .doc =
        "The gradients of attention to q, k, v and, where there is one, distance_bias. Inputs: those of "
        "attention, then y, log_sum, dy and, optionally, the gradient of log_sum; the same attributes and "
        "random key.",
    .infer = infer_attention_grad,
    .role = role_attention_grad,
    .kernel = kernel_attention_grad,
    .expand = expand_attention_grad,
    .flops = flops_attention,
    .products = products_attention_grad,
    .exact = false,
    .ulps = 64,
    .random = true,
    .step_class = StepClass::Attention,
    .samples = attention_grad_samples,
};

Attention attention(Arg q, Arg k, Arg v, const AttentionMask& mask, const AttentionSpec& spec) {
  Graph& graph = graph_of(q, "attention");
  graph_of(k, "attention");
  graph_of(v, "attention");
  Tensors inputs{q.tensor, k.tensor, v.tensor};
  Strings with;
  const Tensor* optional[] = {&mask.query_positions, &mask.memory_positions, &mask.query_segments,
                              &mask.memory_segments, &mask.memory_ids,       &mask.distance_bias};
  for (std::size_t i = 0; i < std::size(optional); ++i) {
    if (!optional[i]->valid()) continue;
    inputs.push_back(*optional[i]);
    with.emplace_back(kAttentionInputs[i]);
  }
  Attrs attrs = attention_attrs(mask.causal, spec.scale, spec.dropout, spec.noise, with);
  attrs.set("query", spec.query);
  attrs.set("memory", spec.memory);
  attrs.set("feature", spec.feature);
  attrs.set("distance", spec.distance);
  const Tensors out = graph.add(kAttention, inputs, std::move(attrs), q.where);
  return {out[0], out[1]};
}

}  // namespace tessera
