// The mask of dropout: 16 bits an element, by its global index; the same in the op's reference and fast
// kernels, in attention, its gradient and their expansions, for every target of vectors, wherever a shard
// begins.
#include <fmt/format.h>
#include <hwy/highway.h>

#include <array>
#include <cmath>

#include "cpu_harness.h"
#include "support/samples.h"
#include "tessera/random.h"

namespace tessera::testing {
namespace {

template <class F>
void for_each_target(F f) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    f();
  }
  hwy::SetSupportedTargetsForTest(0);
}

// Half-words of the published answer for key 0 and counter 0, and of the counter behind it.
TEST(DropoutMask, ElementsTakeHalfWordsInOrder) {
  const std::uint16_t halves[] = {0xe8d5, 0x6627, 0xc58d, 0xe169, 0xac4c, 0xbc57, 0xdbd8, 0x9b00};
  for (std::uint64_t i = 0; i < 8; ++i) EXPECT_EQ(random_half_at({0}, i), halves[i]) << i;
  const RandomKey key = random_key(5, "mask", 2);
  for (std::uint64_t i = 0; i < 8; ++i) {
    const std::uint32_t word = philox(key, (std::uint64_t{1} << 40) + 3)[i / 2];
    EXPECT_EQ(random_half_at(key, (std::uint64_t{1} << 43) + 24 + i),
              i % 2 == 0 ? word & 0xffff : word >> 16);
  }
}

TEST(DropoutMask, RateIsTheNearestMultipleOf2ToTheMinus16) {
  const std::pair<double, int> rates[] = {
      {0, 0},       {0x1p-18, 0}, {0x1p-16, 1},         {1.4 * 0x1p-16, 1}, {0.1, 6554},
      {0.5, 32768}, {0.9, 58982}, {1 - 0x1p-16, 65535}, {1e-300, 0},        {1 - 0x1p-30, 65535}};
  for (const auto& [rate, dropped] : rates) EXPECT_EQ(DropoutRate(rate).dropped, dropped) << rate;
  EXPECT_THROW(DropoutRate(1), InternalError);
  EXPECT_THROW(DropoutRate(-0.1), InternalError);
}

// Over all half-words the mean of a scaled mask is 1, though few rates are multiples of 2^-16.
TEST(DropoutMask, ScaleKeepsTheExpectedValue) {
  for (const double rate : {0.0, 1e-9, 1.4 * 0x1p-16, 0.1, 1.0 / 3, 0.9, 0.99999, 1 - 1e-12}) {
    const DropoutRate r(rate);
    double sum = 0;
    for (int half = 0; half < 65536; ++half)
      sum += r.drops(static_cast<std::uint16_t>(half)) ? 0 : r.factor();
    EXPECT_NEAR(sum / 65536, 1, 1e-10) << rate;
  }
}

TEST(DropoutMask, DrawsHaveTheRateAtEveryPlaceOfACounter) {
  constexpr std::uint64_t kCounters = 100'000;
  for (const double rate : {0.1, 0.5, 0.97}) {
    const DropoutRate r(rate);
    const RandomKey key = random_key(1, "mask", 0);
    std::array<double, 8> dropped{};
    for (std::uint64_t i = 0; i < 8 * kCounters; ++i) dropped[i % 8] += r.drops(random_half_at(key, i));
    const double bound = 5 * std::sqrt(kCounters * rate * (1 - rate));
    for (const double count : dropped) EXPECT_NEAR(count, kCounters * rate, bound);
  }
}

// Neighbours in one word, in one counter and beyond are dropped together as often as their rates say.
TEST(DropoutMask, NeighboursAreIndependent) {
  constexpr std::uint64_t kElements = 800'000;
  constexpr double kRate = 0.25, kBoth = kRate * kRate;
  const DropoutRate rate(kRate);
  const RandomKey key = random_key(2, "mask", 0);
  std::vector<char> dropped(kElements);
  for (std::uint64_t i = 0; i < kElements; ++i) dropped[i] = rate.drops(random_half_at(key, i));
  for (std::uint64_t lag = 1; lag <= 17; ++lag) {
    std::array<double, 2> both{};  // by whether the first is the lower half of its word
    for (std::uint64_t i = 0; i + lag < kElements; ++i)
      both[i % 2] += dropped[i] != 0 && dropped[i + lag] != 0;
    const double n = kElements / 2.0, bound = 5 * std::sqrt(n * kBoth * (1 - kBoth));
    for (const double count : both) EXPECT_NEAR(count, n * kBoth, bound) << lag;
  }
}

// Ones dropped by `kernel` from element `start` of a row on.
Array dropped_ones(double rate, DType dtype, std::int64_t start, std::int64_t n, bool fast) {
  const Array ones({{{"n", n}}, dtype}, std::vector<double>(static_cast<std::size_t>(n), 1.0));
  Array out(ones.type);
  const Call call = make_call("dropout", {ones}, {{"rate", rate}, {"noise", Strings{}}});
  std::vector<View> in{view_of(ones)}, outs{view_of(out)};
  in[0].start = outs[0].start = {start};
  in[0].full = outs[0].full = {start + n};
  const RandomState random;
  KernelContext context{call, in, outs, random.seed, random.step, &random.key};
  if (fast) {
    find_kernel("dropout")->prepare(KernelSite{call, in, outs, 1})(context, nullptr);
  } else {
    run_reference(*call.op, context);
  }
  return out;
}

TEST(DropoutMask, KernelsFollowTheDefinition) {
  const RandomState random;
  const RandomKey key = random_key(random.seed, random.key, random.step);
  const auto expect_row = [&](double rate, DType dtype, std::int64_t start, bool fast) {
    SCOPED_TRACE(
        fmt::format("rate {} {} from {} {}", rate, to_string(dtype), start, fast ? "fast" : "reference"));
    const DropoutRate r(rate);
    Array factor({Shape(), dtype});
    factor.set(0, dtype == DType::F64 ? r.factor() : static_cast<float>(r.factor()));
    const std::int64_t n = 1500;
    const Array out = dropped_ones(rate, dtype, start, n, fast);
    for (std::int64_t i = 0; i < n; ++i) {
      const bool drops = r.drops(random_half_at(key, static_cast<std::uint64_t>(start + i)));
      ASSERT_EQ(out.get(i), drops ? 0 : factor.get(0)) << i;
    }
  };
  for (const double rate : {0.3, 1e-9, 0.9999, 1 - 1e-12}) {
    for (const DType dtype : {DType::F32, DType::BF16, DType::F64}) {
      for (const std::int64_t start : {0, 1, 4, 7, 8, 1021}) {
        expect_row(rate, dtype, start, false);
        for_each_target([&] { expect_row(rate, dtype, start, true); });
      }
    }
  }
}

// ------------------------------------------------------------------------------------------ attention

// Of a whole tensor of weights the part that a call sees. Dimensions: batch, length, heads, memory_length.
struct Part {
  std::array<std::int64_t, 4> full{}, start{}, size{};
};
const char* const kWeightDims[] = {"batch", "length", "heads", "memory_length"};

// Queries are zeros, so every weight is 1 / memory; values and dy pick one position each: y[q][m] and
// dv[m][q] are the mask's, times its factor, over the memory.
struct UniformAttention {
  UniformAttention(const Part& p, DType dtype, double rate, const Strings& noise) : part(p) {
    const auto [batch, length, heads, memory] = p.size;
    const Dim b{"batch", batch}, h{"heads", heads}, d{"d_kv", std::max(length, memory)};
    const Type q{{b, {"length", length}, h, d}, dtype}, k{{b, {"memory_length", memory}, h, d}, dtype};
    const Strings none;
    const Attrs attrs = {{"query", "length"},
                         {"memory", "memory_length"},
                         {"feature", "d_kv"},
                         {"scale", 1.0},
                         {"distance", "distance"},
                         {"causal", false},
                         {"rate", rate},
                         {"noise", noise},
                         {"with", none}};
    forward = {zeros(q), zeros(k), picks(k)};
    call = make_call("attention", forward, attrs);
    backward = forward;
    backward.push_back(zeros(q));
    backward.emplace_back(call.out[1], std::vector<double>(static_cast<std::size_t>(batch * length * heads),
                                                           std::log(static_cast<double>(memory))));
    backward.push_back(picks(q));
    grad_call = make_call("attention_grad", backward, attrs);
  }

  std::vector<Array> run(const Call& of, const std::vector<Array>& inputs, int threads) const {
    std::vector<Array> outputs;
    for (const Type& type : of.out) outputs.emplace_back(type);
    std::vector<View> in, out;
    for (const Array& x : inputs) in.push_back(placed(x));
    for (const Array& x : outputs) out.push_back(placed(x));
    const RandomState random;
    KernelContext context{of, in, out, random.seed, random.step, &random.key};
    if (threads == 0) {
      run_reference(*of.op, context);
      return outputs;
    }
    const CpuKernel* kernel = find_kernel(of.op->name);
    AlignedBuffer scratch(static_cast<std::size_t>(kernel->workspace(of, of.in, of.out, threads)) + 64);
    Team team(threads);
    const Team::Use use(team);
    kernel->prepare(KernelSite{of, in, out, threads})(context, scratch.data());
    return outputs;
  }

  static Array zeros(const Type& type) {
    return {type, std::vector<double>(static_cast<std::size_t>(type.shape.elements()), 0.0)};
  }
  // 1 where the feature is the position.
  static Array picks(const Type& type) {
    Array array = zeros(type);
    const std::int64_t features = type.shape[3].size, heads = type.shape[2].size;
    for (std::int64_t row = 0; row < array.elements() / features; ++row)
      array.set(row * features + row / heads % type.shape[1].size, 1);
    return array;
  }
  View placed(const Array& x) const {
    View view = view_of(x);
    for (std::size_t d = 0; d < view.shape.count(); ++d) {
      for (std::size_t w = 0; w < 4; ++w) {
        if (view.shape[d].name == kWeightDims[w]) view.start[d] = part.start[w], view.full[d] = part.full[w];
      }
    }
    return view;
  }

  Part part;
  std::vector<Array> forward, backward;
  Call call, grad_call;
};

std::uint64_t mask_index(const Part& p, const std::array<std::int64_t, 4>& at, const Strings& noise) {
  std::int64_t index = 0;
  for (std::size_t w = 0; w < 4; ++w) {
    const bool varies = noise.empty() || std::find(noise.begin(), noise.end(), kWeightDims[w]) != noise.end();
    if (varies) index = index * p.full[w] + p.start[w] + at[w];
  }
  return static_cast<std::uint64_t>(index);
}

void expect_mask(const UniformAttention& a, double rate, const Strings& noise, const Array& y,
                 const Array& dv) {
  const RandomState random;
  const RandomKey key = random_key(random.seed, random.key, random.step);
  const DropoutRate r(rate);
  const auto [batch, length, heads, memory] = a.part.size;
  const std::int64_t features = std::max(length, memory);
  for (std::int64_t i = 0; i < batch * length * heads * memory; ++i) {
    const std::int64_t m = i % memory, h = i / memory % heads, l = i / memory / heads % length,
                       b = i / memory / heads / length;
    const bool drops = r.drops(random_half_at(key, mask_index(a.part, {b, l, h, m}, noise)));
    const double want = drops ? 0 : r.factor() / static_cast<double>(memory);
    ASSERT_NEAR(y.get(((b * length + l) * heads + h) * features + m), want, 0.01 * want) << l << ", " << m;
    ASSERT_NEAR(dv.get(((b * memory + m) * heads + h) * features + l), want, 0.01 * want) << l << ", " << m;
  }
}

const Strings kNoises[] = {
    {}, {"batch", "heads", "memory_length"}, {"length", "heads"}, {"heads"}, {"length", "memory_length"}};

TEST(DropoutMask, AttentionDrawsByTheGlobalIndex) {
  // Whole, with lengths that divide and that do not; shards of the batch, of queries, of heads; a window of
  // memory.
  const Part parts[] = {{{1, 100, 2, 128}, {}, {1, 100, 2, 128}},
                        {{2, 37, 3, 131}, {}, {2, 37, 3, 131}},
                        {{3, 107, 2, 101}, {1, 3, 1, 0}, {2, 104, 1, 101}},
                        {{2, 5, 3, 133}, {1, 4, 0, 0}, {1, 1, 3, 133}},
                        {{1, 9, 2, 300}, {0, 2, 0, 101}, {1, 7, 2, 199}}};
  for (const Part& part : parts) {
    for (const Strings& noise : kNoises) {
      for (const DType dtype : {DType::F32, DType::BF16, DType::F64}) {
        SCOPED_TRACE(fmt::format("[{}] of [{}] noise {} {}", fmt::join(part.size, ","),
                                 fmt::join(part.full, ","), fmt::join(noise, ","), to_string(dtype)));
        const UniformAttention a(part, dtype, 0.4, noise);
        const auto expect = [&](int threads) {
          expect_mask(a, 0.4, noise, a.run(a.call, a.forward, threads)[0],
                      a.run(a.grad_call, a.backward, threads)[2]);
        };
        expect(0);
        if (dtype == DType::F64) continue;
        for_each_target([&] { expect(1); });
        expect(3);
      }
    }
  }
}

TEST(DropoutMask, AttentionIsItsExpansion) {
  for (const double rate : {0.25, 1e-9, 0.99}) {
    for (const Strings& noise : kNoises) {
      const UniformAttention a({{2, 7, 3, 13}, {}, {2, 7, 3, 13}}, DType::F32, rate, noise);
      expect_mask(a, rate, noise, run_expansion(a.call, a.forward)[0],
                  run_expansion(a.grad_call, a.backward)[2]);
      expect_mask(a, rate, noise, a.run(a.call, a.forward, 1)[0], a.run(a.grad_call, a.backward, 1)[2]);
    }
  }
}

}  // namespace
}  // namespace tessera::testing
