// Random sources and dropout. An element's value depends on the seed, the node's key, the step and its global
// row-major index only (DESIGN 4.15), so every mesh draws the same bits. Numbers are drawn in f32 (scaled in
// f64) and rounded once.
#include "tessera/random.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/philox.h"
#include "ops/infer.h"
#include "ops/records.h"
#include "ops/strided.h"

namespace tessera {
namespace {

constexpr std::int64_t kBlock = 256;  // elements that are drawn at once

RandomKey key_of(const KernelContext& ctx) {
  TESSERA_ASSERT(ctx.key != nullptr, "random op '{}' runs without a key", ctx.call.name);
  return random_key(ctx.seed, *ctx.key, ctx.step);
}

// The 4 * kLanes uniform numbers of kLanes counters in a row. The same arithmetic as philox4x32, laid out so
// that a compiler can do the lanes side by side.
constexpr std::size_t kLanes = 8;
void draw_lanes(RandomKey key, std::uint64_t counter, float* uniform) {
  std::uint32_t word[4][kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) {
    word[0][i] = static_cast<std::uint32_t>(counter + i);
    word[1][i] = static_cast<std::uint32_t>((counter + i) >> 32);
    word[2][i] = word[3][i] = 0;
  }
  std::uint32_t key0 = static_cast<std::uint32_t>(key.value),
                key1 = static_cast<std::uint32_t>(key.value >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    for (std::size_t i = 0; i < kLanes; ++i) {
      const std::uint64_t p0 = std::uint64_t{kPhiloxMultiplier0} * word[0][i];
      const std::uint64_t p1 = std::uint64_t{kPhiloxMultiplier1} * word[2][i];
      word[0][i] = static_cast<std::uint32_t>(p1 >> 32) ^ word[1][i] ^ key0;
      word[2][i] = static_cast<std::uint32_t>(p0 >> 32) ^ word[3][i] ^ key1;
      word[1][i] = static_cast<std::uint32_t>(p1);
      word[3][i] = static_cast<std::uint32_t>(p0);
    }
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  for (std::size_t i = 0; i < kLanes; ++i) {
    for (std::size_t w = 0; w < 4; ++w) uniform[4 * i + w] = uniform_from_word(word[w][i]);
  }
}

// uniform[i] = element first + i of the key's uniform stream; the same values as random_uniform_at.
void draw_uniform(RandomKey key, std::int64_t first, std::int64_t count, float* uniform) {
  constexpr auto kAtOnce = static_cast<std::int64_t>(4 * kLanes);
  std::int64_t i = 0;
  while (i < count) {
    const std::int64_t index = first + i;
    if (index % 4 == 0 && count - i >= kAtOnce) {
      draw_lanes(key, static_cast<std::uint64_t>(index / 4), uniform + i);
      i += kAtOnce;
      continue;
    }
    const auto words = philox4x32(key.value, static_cast<std::uint64_t>(index / 4));
    for (std::int64_t w = index % 4; w < 4 && i < count; ++w, ++i) {
      uniform[i] = uniform_from_word(words[static_cast<std::size_t>(w)]);
    }
  }
}

// The same for elements first, first + step, ...
void draw_row(RandomKey key, std::int64_t first, std::int64_t step, std::int64_t count, float* uniform) {
  if (step == 1) return draw_uniform(key, first, count, uniform);
  for (std::int64_t i = 0; i < count; ++i) {
    uniform[i] = random_uniform_at(key, static_cast<std::uint64_t>(first + i * step));
  }
}

// Global row-major strides over the dimensions for which `varies` holds, by the full sizes (the whole
// window's).
template <class Varies>
std::vector<std::int64_t> index_strides(const View& view, Varies varies) {
  std::vector<std::int64_t> strides(view.shape.count(), 0);
  std::int64_t step = 1;
  for (std::size_t d = view.shape.count(); d-- > 0;) {
    if (!varies(view.shape[d].name)) continue;
    strides[d] = step;
    step *= view.full[d];
  }
  return strides;
}

std::int64_t first_index(const View& view, const std::vector<std::int64_t>& strides) {
  std::int64_t first = 0;
  for (std::size_t d = 0; d < strides.size(); ++d) first += view.start[d] * strides[d];
  return first;
}

// ------------------------------------------------------------------------------------------------ sources

std::vector<Type> infer_random(const Call& call) {
  check_count(call, 0);
  TESSERA_CHECK(is_floating(call.attrs.dtype("dtype")),
                "{}: draws f32, bf16 or f64, not {} (at {}); cast the result", call.op->name,
                to_string(call.attrs.dtype("dtype")), call.name);
  return {{call.attrs.shape("shape"), call.attrs.dtype("dtype")}};
}

std::vector<Type> infer_bernoulli(const Call& call) {
  check_count(call, 0);
  const double p = call.attrs.number("probability");
  TESSERA_CHECK(p >= 0 && p <= 1, "random_bernoulli: the probability {} is not in [0, 1] (at {})", p,
                call.name);
  return {{call.attrs.shape("shape"), call.attrs.dtype("dtype")}};
}

// Calls row(T*, step, first index, index step, count) for every row of the output, with its global element
// indices.
template <class Row>
void for_each_row(KernelContext& ctx, Row row) {
  const View& out = ctx.out[0];
  const std::vector<std::int64_t> strides = index_strides(out, [](const std::string&) { return true; });
  Nest<2> nest;
  for (std::size_t d = 0; d < strides.size(); ++d) nest.add(out.shape[d].size, {out.stride[d], strides[d]});
  with_type(out.dtype, [&]<class T>() {
    nest.rows({0, first_index(out, strides)}, [&](auto at, std::int64_t count, auto step) {
      row(out.as<T>() + at[0], step[0], at[1], step[1], count);
    });
  });
}

// Fills the output with value(element index).
template <class Value>
void fill_by_index(KernelContext& ctx, Value value) {
  for_each_row(
      ctx, [&]<class T>(T* out, std::int64_t step, std::int64_t first, std::int64_t by, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) {
          out[i * step] = element_from<T>(value(static_cast<std::uint64_t>(first + i * by)));
        }
      });
}

// Fills the output with value(uniform number of the element).
template <class Value>
void fill_from_uniform(KernelContext& ctx, Value value) {
  const RandomKey key = key_of(ctx);
  for_each_row(
      ctx, [&]<class T>(T* out, std::int64_t step, std::int64_t first, std::int64_t by, std::int64_t count) {
        float uniform[kBlock];
        for (std::int64_t done = 0; done < count; done += kBlock) {
          const std::int64_t n = std::min(kBlock, count - done);
          draw_row(key, first + done * by, by, n, uniform);
          for (std::int64_t i = 0; i < n; ++i) out[(done + i) * step] = element_from<T>(value(uniform[i]));
        }
      });
}

// low + (high - low) u may round up to `high`; in f32 and f64 the largest number below it takes its place.
double below(double value, double high, DType dtype) {
  if (dtype == DType::F64)
    return value < high ? value : std::nextafter(high, -std::numeric_limits<double>::infinity());
  const float rounded = static_cast<float>(value), top = static_cast<float>(high);
  return rounded < top ? rounded : std::nextafter(top, -std::numeric_limits<float>::infinity());
}

void kernel_uniform(KernelContext& ctx) {
  const double low = ctx.call.attrs.number("low"), high = ctx.call.attrs.number("high");
  const DType dtype = ctx.out[0].dtype;
  fill_from_uniform(ctx,
                    [=](float u) { return low < high ? below(low + (high - low) * u, high, dtype) : low; });
}

void kernel_normal(KernelContext& ctx) {
  const RandomKey key = key_of(ctx);
  const double mean = ctx.call.attrs.number("mean"), stddev = ctx.call.attrs.number("stddev");
  fill_by_index(ctx, [=](std::uint64_t index) { return mean + stddev * random_normal_at(key, index); });
}

void kernel_truncated_normal(KernelContext& ctx) {
  const RandomKey key = key_of(ctx);
  const double mean = ctx.call.attrs.number("mean"), stddev = ctx.call.attrs.number("stddev");
  fill_by_index(ctx,
                [=](std::uint64_t index) { return mean + stddev * random_truncated_normal_at(key, index); });
}

void kernel_bernoulli(KernelContext& ctx) {
  const double probability = ctx.call.attrs.number("probability");
  fill_from_uniform(ctx, [=](float u) { return u < probability ? 1.0 : 0.0; });
}

Attrs with_shape(Attrs attrs, Shape shape, DType dtype) {
  attrs.set("shape", std::move(shape));
  attrs.set("dtype", dtype);
  return attrs;
}

std::vector<Sample> samples_of(const Attrs& attrs) {
  return {
      {.in = {}, .attrs = with_shape(attrs, Shape{{"rows", 3}, {"cols", 5}}, DType::F32)},
      {.in = {}, .attrs = with_shape(attrs, Shape{{"rows", 2}, {"cols", 7}, {"depth", 3}}, DType::BF16)},
      {.in = {}, .attrs = with_shape(attrs, Shape{{"rows", 11}}, DType::F64)},
  };
}

std::vector<Sample> samples_uniform() {
  return samples_of({{"low", -1.0}, {"high", 3.0}});
}
std::vector<Sample> samples_normal() {
  return samples_of({{"mean", 0.5}, {"stddev", 2.0}});
}
std::vector<Sample> samples_bernoulli() {
  return samples_of({{"probability", 0.3}});
}

// ------------------------------------------------------------------------------------------------ dropout

std::vector<Type> infer_dropout(const Call& call) {
  check_count(call, 1);
  const double rate = call.attrs.number("rate");
  TESSERA_CHECK(rate >= 0 && rate < 1, "dropout: the rate {} is not in [0, 1) (at {})", rate, call.name);
  TESSERA_CHECK(is_floating(call.in[0].dtype), "dropout: the input is {} (at {}); cast it to a floating type",
                to_string(call.in[0].dtype), call.name);
  for (const std::string& name : call.attrs.texts("noise")) dim_of(call, call.in[0].shape, name, "the input");
  return {call.in[0]};
}

// half[i] = half-word of element first + i * step of the key's mask, as random_half_at.
void draw_halves(RandomKey key, std::int64_t first, std::int64_t step, std::int64_t count,
                 std::uint16_t* half) {
  std::uint64_t counter = static_cast<std::uint64_t>(first) / 8;
  std::array<std::uint32_t, 4> words = philox4x32(key.value, counter);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::uint64_t>(first + i * step);
    if (index / 8 != counter) words = philox4x32(key.value, counter = index / 8);
    half[i] = half_of_words(words, index % 8);
  }
}

template <class T>
void drop_row(RandomKey key, DropoutRate rate, std::int64_t count, const std::array<std::int64_t, 3>& at,
              const std::array<std::int64_t, 3>& step, const T* in, T* out) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto factor = static_cast<Wide>(rate.factor());
  std::uint16_t half[kBlock];
  for (std::int64_t done = 0; done < count; done += kBlock) {
    const std::int64_t n = std::min(kBlock, count - done);
    draw_halves(key, at[2] + done * step[2], step[2], n, half);
    for (std::int64_t i = 0; i < n; ++i) {
      const T value = in[at[0] + (done + i) * step[0]];
      out[at[1] + (done + i) * step[1]] =
          rate.drops(half[i]) ? T(Wide{0}) : T(static_cast<Wide>(value) * factor);
    }
  }
}

void kernel_dropout(KernelContext& ctx) {
  const View &in = ctx.in[0], &out = ctx.out[0];
  const RandomKey key = key_of(ctx);
  const DropoutRate rate(ctx.call.attrs.number("rate"));
  const Strings& noise = ctx.call.attrs.texts("noise");
  const std::vector<std::int64_t> strides = index_strides(out, [&](const std::string& name) {
    return noise.empty() || std::find(noise.begin(), noise.end(), name) != noise.end();
  });
  Nest<3> nest;
  for (std::size_t d = 0; d < strides.size(); ++d) {
    nest.add(out.shape[d].size, {in.stride[d], out.stride[d], strides[d]});
  }
  auto run = [&]<class T>() {
    nest.rows({0, 0, first_index(out, strides)}, [&](const auto& at, std::int64_t count, const auto& step) {
      drop_row<T>(key, rate, count, at, step, in.as<T>(), out.as<T>());
    });
  };
  if (out.dtype == DType::F32) run.operator()<float>();
  if (out.dtype == DType::BF16) run.operator()<bf16>();
  if (out.dtype == DType::F64) run.operator()<double>();
}

void grad_dropout(GradContext& g) {
  const Tensor dx = g.graph.add(*g.node.op, {g.dy()}, g.node.attrs, g.node.where)[0];
  g.graph.mutable_node(dx.node()).key = g.node.key;
  g.set(0, dx);
}

std::vector<Sample> samples_dropout() {
  return {
      {.in = {"f32[batch:3;length:5;d_model:4]"}, .attrs = {{"rate", 0.5}, {"noise", Strings{}}}},
      {.in = {"f32[batch:4;length:3;d_model:5]"},
       .attrs = {{"rate", 0.25}, {"noise", Strings{"batch", "d_model"}}}},
      {.in = {"bf16[length:7;batch:2]"}, .attrs = {{"rate", 0.1}, {"noise", Strings{"length"}}}},
  };
}

}  // namespace

const Op kRandomUniform{
    .name = "random_uniform",
    .doc = "Uniform in [low, high), in steps of 2^-24 (high - low); bf16 rounds and may give high.",
    .infer = infer_random,
    .kernel = kernel_uniform,
    .random = true,
    .samples = samples_uniform,
};

const Op kRandomNormal{
    .name = "random_normal",
    .doc = "mean + stddev times a standard normal value.",
    .infer = infer_random,
    .kernel = kernel_normal,
    .random = true,
    .samples = samples_normal,
};

const Op kRandomTruncatedNormal{
    .name = "random_truncated_normal",
    .doc = "mean + stddev times a standard normal value within [-2, 2] (not rescaled).",
    .infer = infer_random,
    .kernel = kernel_truncated_normal,
    .random = true,
    .samples = samples_normal,
};

const Op kRandomBernoulli{
    .name = "random_bernoulli",
    .doc = "1 (true) with the given probability, else 0; drawn in f32 whatever the type.",
    .infer = infer_bernoulli,
    .kernel = kernel_bernoulli,
    .random = true,
    .samples = samples_bernoulli,
};

const Op kDropout{
    .name = "dropout",
    .doc =
        "x / (1 - rate) where a random mask keeps it, else 0; the rate is taken as the nearest multiple of "
        "2^-16. The mask varies over the dimensions `noise` only (empty: all). The gradient is the same op "
        "on dy with the same key.",
    .infer = infer_dropout,
    .linear = linear_everywhere,
    .grad = grad_dropout,
    .kernel = kernel_dropout,
    .random = true,
    .samples = samples_dropout,
};

Tensor random_uniform(Graph& graph, const Shape& shape, double low, double high, DType dtype, Where where) {
  return graph.add(kRandomUniform, {}, with_shape({{"low", low}, {"high", high}}, shape, dtype), where)[0];
}

Tensor random_normal(Graph& graph, const Shape& shape, double mean, double stddev, DType dtype, Where where) {
  return graph.add(kRandomNormal, {}, with_shape({{"mean", mean}, {"stddev", stddev}}, shape, dtype),
                   where)[0];
}

Tensor random_truncated_normal(Graph& graph, const Shape& shape, double mean, double stddev, DType dtype,
                               Where where) {
  return graph.add(kRandomTruncatedNormal, {}, with_shape({{"mean", mean}, {"stddev", stddev}}, shape, dtype),
                   where)[0];
}

Tensor random_bernoulli(Graph& graph, const Shape& shape, double probability, DType dtype, Where where) {
  return graph.add(kRandomBernoulli, {}, with_shape({{"probability", probability}}, shape, dtype), where)[0];
}

Tensor dropout(Arg x, double rate, const Strings& noise) {
  graph_of(x, "dropout");
  return rate == 0 ? x.tensor : add_one(kDropout, x, {{"rate", rate}, {"noise", noise}});
}

}  // namespace tessera
