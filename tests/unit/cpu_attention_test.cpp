// Blockwise attention on the CPU against the records' reference kernels: odd sizes, every kind of mask alone
// and together, dropout, bf16; bits that do not depend on threads; what is hidden is not touched; memory
// linear in the length.
#include <fmt/format.h>

#include <cmath>

#include "cpu_harness.h"
#include "tessera/grad.h"
#include "tessera/session.h"

namespace tessera::testing {
namespace {

struct AttentionCase {
  std::int64_t batch = 1, heads = 1, queries = 1, memory = 1, features = 1;
  bool causal = false, positions = false, segments = false, padding = false;
  std::int64_t distances = 0;
  double dropout = 0;
  Strings noise = {};
  DType dtype = DType::F32;

  std::string text() const {
    return fmt::format(
        "{}x{} heads, {} queries, {} memory, {} features,{}{}{}{} {} distances, dropout {} [{}] {}", batch,
        heads, queries, memory, features, causal ? " causal" : "", positions ? " positions" : "",
        segments ? " segments" : "", padding ? " padding" : "", distances, dropout, fmt::join(noise, ","),
        to_string(dtype));
  }
};

Dim queries_of(const AttentionCase& c) {
  return {"length", c.queries};
}
Dim memory_of(const AttentionCase& c) {
  return {"memory_length", c.memory};
}

// Rising positions (sometimes from a start above 0), sequences of growing length, a padded tail.
struct AttentionInputs {
  std::vector<Array> forward, backward;
  Attrs attrs;

  explicit AttentionInputs(const AttentionCase& c) {
    const Dim batch{"batch", c.batch}, heads{"heads", c.heads}, features{"d_kv", c.features};
    const Type q{{batch, queries_of(c), heads, features}, c.dtype};
    const Type k{{batch, memory_of(c), heads, features}, c.dtype};
    forward = {random_array(q, 1), random_array(k, 2), random_array(k, 3)};
    Strings with;
    const auto add = [&](const char* name, Array array) {
      with.emplace_back(name);
      forward.push_back(std::move(array));
    };
    if (c.positions) {
      // The last query sees all of the memory; with more queries than memory, the first ones see nothing.
      add("query_positions", counted({queries_of(c)}, [&](auto i) { return c.memory - c.queries + i; }));
      add("memory_positions", counted({batch, memory_of(c)}, [&](auto i) { return i % c.memory; }));
    }
    if (c.segments) {
      add("query_segments", counted({batch, queries_of(c)}, [&](auto i) { return 1 + i % c.queries / 37; }));
      add("memory_segments", counted({batch, memory_of(c)},
                                     [&](auto i) { return 1 + (i % c.memory + i / c.memory * 20) / 41; }));
    }
    if (c.padding) {
      add("memory_ids", counted({batch, memory_of(c)}, [&](auto i) {
            return i % c.memory < c.memory - i / c.memory * 50 - 1 ? 7 : 0;
          }));
    }
    if (c.distances > 0) {
      add("distance_bias", random_array({{heads, {"distance", c.distances}}, DType::F32}, 4));
    }
    attrs = {{"query", std::string("length")},
             {"memory", std::string("memory_length")},
             {"feature", std::string("d_kv")},
             {"distance", std::string("distance")},
             {"causal", c.causal},
             {"scale", 1 / std::sqrt(static_cast<double>(c.features))},
             {"rate", c.dropout},
             {"noise", c.noise},
             {"with", with}};
    backward = forward;
    for (const Array& y : run_op(make_call("attention", forward, attrs), forward)) backward.push_back(y);
    backward.push_back(random_array(q, 5));
    if (c.queries % 2 == 1) backward.push_back(random_array(backward[forward.size() + 1].type, 6));
  }

 private:
  template <class F>
  static Array counted(const Shape& shape, F value) {
    Array array({shape, DType::I32});
    for (std::int64_t i = 0; i < array.elements(); ++i) array.set(i, static_cast<double>(value(i)));
    return array;
  }
};

void expect_attention_matches(const AttentionCase& c) {
  SCOPED_TRACE(c.text());
  const AttentionInputs in(c);
  const double relative = c.dtype == DType::BF16 ? 0x1p-7 : 1e-5;
  expect_matches("attention", in.forward, in.attrs, relative, c.dtype == DType::BF16 ? 1e-3 : 1e-5);
  expect_matches("attention_grad", in.backward, in.attrs, relative, c.dtype == DType::BF16 ? 2e-2 : 1e-4);
}

TEST(CpuAttention, OddSizes) {
  for (const auto& [queries, memory] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                        {1, 300},
                                        {7, 13},
                                        {95, 97},
                                        {96, 96},
                                        {97, 95},
                                        {200, 100},
                                        {193, 289}}) {
    for (const std::int64_t features : {1, 3, 16, 33, 64, 128}) {
      expect_attention_matches({.batch = 2,
                                .heads = features < 10 ? 3 : 1,
                                .queries = queries,
                                .memory = memory,
                                .features = features});
    }
  }
}

TEST(CpuAttention, EveryKindOfMaskAloneAndTogether) {
  for (int kinds = 1; kinds < 16; ++kinds) {
    for (const auto& [queries, memory] :
         {std::pair<std::int64_t, std::int64_t>{210, 210}, {130, 101}, {50, 250}}) {
      AttentionCase c{.batch = 2, .heads = 2, .queries = queries, .memory = memory, .features = 8};
      c.causal = (kinds & 1) != 0, c.segments = (kinds & 2) != 0, c.padding = (kinds & 4) != 0;
      if ((kinds & 8) != 0) c.distances = 2 * 30 + 1;
      c.positions = c.causal || c.distances > 0;
      expect_attention_matches(c);
    }
  }
}

TEST(CpuAttention, BiasOfFarDistances) {
  for (const std::int64_t distances : {1, 3, 1001}) {
    expect_attention_matches({.heads = 2,
                              .queries = 300,
                              .memory = 300,
                              .features = 5,
                              .positions = true,
                              .distances = distances});
  }
}

TEST(CpuAttention, Dropout) {
  for (const Strings& noise :
       {Strings{}, {"batch", "heads", "memory_length"}, {"length"}, {"heads", "length", "memory_length"}}) {
    for (const std::int64_t memory : {128, 131}) {
      expect_attention_matches({.batch = 2,
                                .heads = 3,
                                .queries = 101,
                                .memory = memory,
                                .features = 7,
                                .dropout = 0.3,
                                .noise = noise});
    }
  }
  expect_attention_matches({.batch = 2,
                            .heads = 2,
                            .queries = 150,
                            .memory = 150,
                            .features = 8,
                            .causal = true,
                            .positions = true,
                            .segments = true,
                            .padding = true,
                            .distances = 21,
                            .dropout = 0.5});
}

TEST(CpuAttention, Bf16) {
  AttentionCase c{
      .batch = 2, .heads = 2, .queries = 150, .memory = 170, .features = 20, .dtype = DType::BF16};
  expect_attention_matches(c);
  c.causal = c.positions = c.segments = c.padding = true;
  c.distances = 9, c.dropout = 0.25;
  expect_attention_matches(c);
}

// Features and lengths may lie in any order.
TEST(CpuAttention, AnyOrderOfDimensions) {
  const std::int64_t queries = 100, memory = 110;
  const Array q = random_array({{{"d_kv", 6}, {"heads", 2}, {"length", queries}}, DType::F32}, 1);
  const Array k = random_array({{{"heads", 2}, {"d_kv", 6}, {"memory_length", memory}}, DType::F32}, 2);
  const Array v = random_array({{{"memory_length", memory}, {"d_kv", 6}, {"heads", 2}}, DType::F32}, 3);
  const Attrs attrs = AttentionInputs({}).attrs;
  expect_matches("attention", {q, k, v}, attrs, 1e-5, 1e-5);
  const std::vector<Array> y = run_op(make_call("attention", {q, k, v}, attrs), {q, k, v});
  expect_matches("attention_grad", {q, k, v, y[0], y[1], random_array(q.type, 4)}, attrs, 1e-5, 1e-4);
}

TEST(CpuAttention, BitsDoNotDependOnThreads) {
  const AttentionCase cases[] = {{.batch = 1, .heads = 1, .queries = 400, .memory = 700, .features = 16},
                                 {.batch = 1,
                                  .heads = 3,
                                  .queries = 400,
                                  .memory = 400,
                                  .features = 8,
                                  .causal = true,
                                  .positions = true,
                                  .distances = 11,
                                  .dropout = 0.2},
                                 {.batch = 3,
                                  .heads = 3,
                                  .queries = 100,
                                  .memory = 100,
                                  .features = 8,
                                  .positions = true,
                                  .padding = true,
                                  .distances = 11}};
  for (const AttentionCase& c : cases) {
    SCOPED_TRACE(c.text());
    const AttentionInputs in(c);
    for (const auto& [op, inputs] : {std::pair("attention", in.forward), {"attention_grad", in.backward}}) {
      const Call call = make_call(op, inputs, in.attrs);
      const std::vector<Array> one = run_fast(call, inputs, 1);
      for (const int threads : {2, 3, 4, 7}) {
        const std::vector<Array> many = run_fast(call, inputs, threads);
        for (std::size_t o = 0; o < one.size(); ++o)
          EXPECT_TRUE(same_bits(one[o], many[o])) << op << " output " << o << " of " << threads << " threads";
      }
    }
  }
}

// A block that no query sees is never read: NaN in it goes nowhere (a hidden number in a block that is partly
// seen is multiplied by 0).
TEST(CpuAttention, HiddenBlocksAreNotComputed) {
  for (const char* kind : {"causal", "segments", "padding"}) {
    SCOPED_TRACE(kind);
    const std::int64_t queries = 192, memory = 400, seen = 192;
    AttentionCase c{.queries = queries, .memory = memory, .features = 8};
    c.causal = c.positions = kind[0] == 'c', c.segments = kind[0] == 's', c.padding = kind[0] == 'p';
    AttentionInputs in(c);
    for (std::vector<Array>* inputs : {&in.forward, &in.backward}) {
      Array& of_queries = (*inputs)[3];
      Array& of_memory = (*inputs)[c.padding ? 3 : 4];
      for (std::int64_t i = 0; i < queries && !c.padding; ++i)
        of_queries.set(i, c.causal ? static_cast<double>(i) : 1);
      for (std::int64_t i = 0; i < memory; ++i) {
        of_memory.set(i, c.causal ? static_cast<double>(i) : i < seen ? 1 : c.padding ? 0 : 2);
      }
      for (std::size_t operand : {1, 2}) {
        for (std::int64_t i = seen * c.features; i < memory * c.features; ++i) (*inputs)[operand].set(i, NAN);
      }
    }
    const std::vector<Array> y = run_fast(make_call("attention", in.forward, in.attrs), in.forward, 2);
    const std::size_t tail = in.forward.size();
    in.backward[tail] = y[0], in.backward[tail + 1] = y[1];
    const std::vector<Array> grads =
        run_fast(make_call("attention_grad", in.backward, in.attrs), in.backward, 2);
    for (const std::vector<Array>* outputs : {&y, &grads}) {
      for (const Array& out : *outputs) {
        for (const double x : out.values()) ASSERT_TRUE(std::isfinite(x));
      }
    }
    for (std::int64_t i = seen * c.features; i < memory * c.features; ++i) EXPECT_EQ(grads[1].get(i), 0);
  }
}

TEST(CpuAttention, SpecialLogits) {
  AttentionInputs in({.queries = 5, .memory = 120, .features = 3});
  in.forward[0].set(3, NAN);                                                // query 1
  for (int d = 0; d < 3; ++d) in.forward[0].set(6 + d, d == 0 ? 1e30 : 0);  // query 2: enormous logits
  const Call call = make_call("attention", in.forward, in.attrs);
  const std::vector<Array> fast = run_fast(call, in.forward), slow = run_op(call, in.forward);
  for (std::size_t o = 0; o < 2; ++o)
    EXPECT_EQ(difference(fast[o], slow[o], 1e-5, 1e-5), "") << "output " << o;
}

// Program and workspace of a forward and backward pass at n and at 4 n.
TEST(CpuAttention, MemoryIsLinearInTheLength) {
  const auto bytes = [](std::int64_t length) {
    Graph g;
    const Dim heads{"heads", 2}, features{"d_kv", 16}, queries{"length", length},
        memory{"memory_length", length};
    const Tensor q = g.input("q", {queries, heads, features});
    const Tensor k = g.input("k", {memory, heads, features}), v = g.input("v", {memory, heads, features});
    AttentionMask mask{
        .causal = true, .query_positions = range(g, queries), .memory_positions = range(g, memory)};
    mask.distance_bias = g.input("bias", {heads, {"distance", 33}});
    const Tensor y = attention(q, k, v, mask, {.dropout = 0.1}).output;
    Tensors targets = gradients({y}, {q, k, v, mask.distance_bias});
    targets.push_back(y);
    Session session(g, Mesh(), Layout());
    return session.plan(session.compile(targets)).arena_bytes;
  };
  const std::int64_t small = bytes(2048), large = bytes(8192);
  EXPECT_LT(static_cast<double>(large), 4.05 * static_cast<double>(small));
  EXPECT_LT(8 * large, 8192 * 8192 * 4) << "a matrix of queries x memory takes " << 8192 * 8192 * 4;
}

}  // namespace
}  // namespace tessera::testing
