// The contractions of a Transformer: the einsum kernel against oneDNN's matrix product on dense operands of
// the same sizes. One thread. Prints GFLOP/s.
#include <benchmark/benchmark.h>

#include <oneapi/dnnl/dnnl.hpp>

#include "kernel_case.h"

namespace tessera::benchmarks {
namespace {

struct Form {
  const char* name;
  const char *a, *b;
  Strings out;
  std::int64_t batch, m, n, k;  // of the matrix product that it comes down to
};

const std::vector<Form>& forms() {
  static const std::vector<Form> all = {
      {"projection", "b:8;l:128;d:512", "d:512;h:8;k:64", {"b", "l", "h", "k"}, 1, 1024, 512, 512},
      {"heads_apart", "b:8;l:128;d:512", "d:512;h:8;k:64", {"b", "h", "l", "k"}, 1, 1024, 512, 512},
      {"scores", "b:8;l:128;h:8;k:64", "b:8;m:128;h:8;k:64", {"b", "h", "l", "m"}, 64, 128, 128, 64},
      {"values", "b:8;h:8;l:128;m:128", "b:8;m:128;h:8;k:64", {"b", "l", "h", "k"}, 64, 128, 64, 128},
      {"output", "b:8;l:128;h:8;k:64", "h:8;k:64;d:512", {"b", "l", "d"}, 1, 1024, 512, 512},
      {"feed_forward", "b:8;l:128;d:512", "d:512;f:2048", {"b", "l", "f"}, 1, 1024, 2048, 512},
      {"feed_forward_back", "b:8;l:128;f:2048", "d:512;f:2048", {"b", "l", "d"}, 1, 1024, 512, 2048},
      {"weight_gradient", "b:8;l:128;d:512", "b:8;l:128;f:2048", {"d", "f"}, 1, 512, 2048, 1024},
      {"logits", "b:8;l:128;d:512", "v:8000;d:512", {"b", "l", "v"}, 1, 1024, 8000, 512},
      {"logits_back", "b:8;l:128;v:8000", "v:8000;d:512", {"b", "l", "d"}, 1, 1024, 512, 8000},
      {"embedding_gradient", "b:8;l:128;v:8000", "b:8;l:128;d:512", {"v", "d"}, 1, 8000, 512, 1024},
      {"decode_projection", "b:8;d:512", "d:512;f:2048", {"b", "f"}, 1, 8, 2048, 512},
      {"decode_scores", "b:8;h:8;k:64", "b:8;m:128;h:8;k:64", {"b", "h", "m"}, 64, 1, 128, 64},
  };
  return all;
}

void kernel(benchmark::State& state, const Form& form, DType dtype) {
  KernelCase work("einsum", {form.a, form.b}, {dtype, dtype}, {{"output", form.out}});
  for (auto _ : state) work.run();
  state.counters["GFLOP/s"] =
      benchmark::Counter(work.flops() * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

void one_dnn(benchmark::State& state, const Form& form) {
  using dnnl::memory;
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const auto dense = [&](std::int64_t rows, std::int64_t columns) {
    return memory::desc({form.batch, rows, columns}, memory::data_type::f32,
                        memory::dims{rows * columns, columns, 1});
  };
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc plan(engine, dense(form.m, form.k), dense(form.k, form.n),
                                          dense(form.m, form.n));
#else
  const dnnl::matmul::primitive_desc plan(
      {dense(form.m, form.k), dense(form.k, form.n), dense(form.m, form.n)}, engine);
#endif
  const dnnl::matmul primitive(plan);
  std::vector<float> a(static_cast<std::size_t>(form.batch * form.m * form.k), 0.5f),
      b(static_cast<std::size_t>(form.batch * form.k * form.n), 0.5f),
      c(static_cast<std::size_t>(form.batch * form.m * form.n));
  memory ma(plan.src_desc(), engine, a.data()), mb(plan.weights_desc(), engine, b.data()),
      mc(plan.dst_desc(), engine, c.data());
  for (auto _ : state) {
    primitive.execute(stream, {{DNNL_ARG_SRC, ma}, {DNNL_ARG_WEIGHTS, mb}, {DNNL_ARG_DST, mc}});
  }
  const double flops = 2e-9 * static_cast<double>(form.batch * form.m * form.n * form.k);
  state.counters["GFLOP/s"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace
}  // namespace tessera::benchmarks

int main(int argc, char** argv) {
  using namespace tessera::benchmarks;
  for (const Form& form : forms()) {
    const std::string name = form.name;
    benchmark::RegisterBenchmark((name + "/oneDNN_f32").c_str(),
                                 [&form](benchmark::State& s) { one_dnn(s, form); });
    benchmark::RegisterBenchmark((name + "/f32").c_str(),
                                 [&form](benchmark::State& s) { kernel(s, form, tessera::DType::F32); });
    benchmark::RegisterBenchmark((name + "/bf16").c_str(),
                                 [&form](benchmark::State& s) { kernel(s, form, tessera::DType::BF16); });
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
