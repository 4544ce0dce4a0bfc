// Attention, forward and gradient, against its own matrix products alone (exec/bare_products.h), measured in
// turns, with and without dropout of weights. `of_matmul` is the median ratio: what part of the time the
// products of visible pairs would take.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/cores.h"
#include "base/median.h"
#include "exec/bare_products.h"
#include "exec/team.h"
#include "kernel_case.h"

namespace tessera::benchmarks {
namespace {

constexpr std::int64_t kTokens = 8192, kHeads = 8, kFeatures = 64;

struct AttentionForm {
  std::int64_t length = 256;
  bool causal = false;
  DType dtype = DType::F32;
  double dropout = 0;
};

double seconds_of(KernelCase& work) {
  const auto begin = std::chrono::steady_clock::now();
  work.run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Attrs attrs_of(const AttentionForm& form) {
  Strings with;
  if (form.causal) with = {"query_positions", "memory_positions"};
  return {{"query", std::string("l")},
          {"memory", std::string("m")},
          {"feature", std::string("d")},
          {"distance", std::string("distance")},
          {"causal", form.causal},
          {"scale", 1 / std::sqrt(static_cast<double>(kFeatures))},
          {"rate", form.dropout},
          {"noise", Strings{}},
          {"with", with}};
}

// A forward and a backward pass over sequences of one length, together kTokens long.
class AttentionWork {
 public:
  AttentionWork(const AttentionForm& form, int threads)
      : forward_("attention", shapes(form, false), types(form, false), attrs_of(form), threads),
        backward_("attention_grad", shapes(form, true), types(form, true), attrs_of(form), threads) {
    if (form.causal) {
      for (KernelCase* work : {&forward_, &backward_}) {
        for (const std::size_t i : {3, 4}) {
          for (std::int64_t p = 0; p < form.length; ++p)
            work->in(i).as<std::int32_t>()[p] = static_cast<std::int32_t>(p);
        }
      }
    }
    for (const std::size_t i : {0, 1, 2}) copy(forward_.in(i), backward_.in(i));
    forward_.run();
    const std::size_t tail = form.causal ? 5 : 3;
    for (const std::size_t o : {0, 1}) copy(forward_.out(o), backward_.in(tail + o));
  }

  double run() { return seconds_of(forward_) + seconds_of(backward_); }

  std::vector<Product> products() const {
    std::vector<Product> all;
    for (const KernelCase* work : {&forward_, &backward_}) {
      for (const Product& p : work->call().op->products(work->call())) all.push_back(p);
    }
    return all;
  }

 private:
  static std::vector<std::string> shapes(const AttentionForm& form, bool backward) {
    const std::int64_t batch = std::max<std::int64_t>(1, kTokens / form.length);
    const std::string n = std::to_string(form.length), item = "h:" + std::to_string(kHeads) + ";",
                      rows = "b:" + std::to_string(batch) + ";l:" + n + ";" + item;
    const std::string q = rows + "d:" + std::to_string(kFeatures), k = "b:" + std::to_string(batch) +
                                                                       ";m:" + n + ";" + item +
                                                                       "d:" + std::to_string(kFeatures);
    std::vector<std::string> all{q, k, k};
    if (form.causal) all.insert(all.end(), {"l:" + n, "m:" + n});
    if (backward) all.insert(all.end(), {q, rows, q});
    return all;
  }

  static std::vector<DType> types(const AttentionForm& form, bool backward) {
    std::vector<DType> all(3, form.dtype);
    if (form.causal) all.insert(all.end(), 2, DType::I32);
    if (backward) all.insert(all.end(), {form.dtype, DType::F32, form.dtype});
    return all;
  }

  static void copy(const View& from, const View& to) {
    std::memcpy(to.data, from.data, static_cast<std::size_t>(from.elements()) * size_of(from.dtype));
  }

  KernelCase forward_, backward_;
};

void attention(benchmark::State& state, const AttentionForm& form, int threads) {
  Team team(threads);
  const Team::Use use(team);
  AttentionWork work(form, threads);
  const std::vector<Product> products = work.products();
  BareProducts bare(products, 1);
  double flops = 0;
  for (const Product& p : products) flops += p.flops();
  std::vector<double> ratios, times, bare_times;
  for (auto _ : state) {
    times.push_back(work.run());
    bare_times.push_back(bare.run());
    ratios.push_back(bare_times.back() / times.back());
    state.SetIterationTime(times.back());
  }
  state.counters["of_matmul"] = median(ratios);
  state.counters["GFLOP/s"] = flops * 1e-9 / median(times);
  state.counters["matmul_GFLOP/s"] = flops * 1e-9 / median(bare_times);
}

}  // namespace
}  // namespace tessera::benchmarks

int main(int argc, char** argv) {
  using namespace tessera::benchmarks;
  for (const tessera::DType dtype : {tessera::DType::F32, tessera::DType::BF16}) {
    for (const bool causal : {false, true}) {
      for (std::int64_t length = 256; length <= 8192; length *= 2) {
        for (const double dropout : {0.0, 0.1}) {
          const AttentionForm form{length, causal, dtype, dropout};
          const std::string name = std::string("attention/") + to_string(dtype) +
                                   (causal ? "/causal/" : "/full/") + std::to_string(length) +
                                   (dropout > 0 ? "/dropout" : "");
          benchmark::RegisterBenchmark(
              name.c_str(),
              [form](benchmark::State& state) { attention(state, form, tessera::usable_cores()); })
              ->UseManualTime()
              ->Iterations(5)
              ->Unit(benchmark::kMillisecond);
        }
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
