// Kernels that are bound by memory or by elementary functions: fused loops, softmax, norms, cross-entropy,
// dropout. One thread. Prints bytes read and written per second.
#include <benchmark/benchmark.h>

#include "exec/cpu/fused.h"
#include "kernel_case.h"

namespace tessera::benchmarks {
namespace {

void kernel(benchmark::State& state, KernelCase& work) {
  for (auto _ : state) work.run();
  state.SetBytesProcessed(state.iterations() * work.bytes());
}

void register_kernel(const std::string& name, std::vector<std::string> shapes, std::vector<DType> types,
                     const Attrs& attrs) {
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    KernelCase work(name.substr(0, name.find('/')), shapes, types, attrs);
    kernel(state, work);
  });
}

// Scalar code written down instruction by instruction.
struct Writer {
  ScalarCode code;
  int emit(Scalar op, int a, int b = -1) {
    code.code.push_back({op, a, b, -1, 0, DType::F32});
    return code.inputs + static_cast<int>(code.code.size()) - 1;
  }
  int number(double value) {
    code.code.push_back({Scalar::Const, -1, -1, -1, value, DType::F32});
    return code.inputs + static_cast<int>(code.code.size()) - 1;
  }
};

// Adam over (p, m, v, g) with a scalar rate: three outputs.
ScalarCode adam() {
  Writer w{{5, {}, {}}};
  const int m =
      w.emit(Scalar::Add, w.emit(Scalar::Mul, 1, w.number(0.9)), w.emit(Scalar::Mul, 3, w.number(0.1)));
  const int square = w.emit(Scalar::Mul, 3, 3);
  const int v = w.emit(Scalar::Add, w.emit(Scalar::Mul, 2, w.number(0.999)),
                       w.emit(Scalar::Mul, square, w.number(0.001)));
  const int root = w.emit(Scalar::Add, w.emit(Scalar::Sqrt, v), w.number(1e-8));
  const int p = w.emit(Scalar::Sub, 0, w.emit(Scalar::Mul, 4, w.emit(Scalar::Div, m, root)));
  w.code.results = {p, m, v};
  return w.code;
}

ScalarCode gelu() {
  Writer w{{1, {}, {}}};
  const int cube = w.emit(Scalar::Mul, w.emit(Scalar::Mul, 0, 0), 0);
  const int inner = w.emit(Scalar::Add, 0, w.emit(Scalar::Mul, cube, w.number(0.044715)));
  const int t = w.emit(Scalar::Tanh, w.emit(Scalar::Mul, inner, w.number(0.79788456)));
  w.code.results = {
      w.emit(Scalar::Mul, w.emit(Scalar::Mul, 0, w.number(0.5)), w.emit(Scalar::Add, t, w.number(1)))};
  return w.code;
}

ScalarCode add() {
  Writer w{{2, {}, {}}};
  w.code.results = {w.emit(Scalar::Add, 0, 1)};
  return w.code;
}

// `scalars` of the inputs at the end are broadcast; the first outputs overwrite the first inputs.
void fused(benchmark::State& state, const ScalarCode& code, std::int64_t n, int scalars, DType dtype) {
  FusedSpec spec;
  spec.code = code;
  spec.extent = {n};
  std::vector<AlignedBuffer> buffers;
  std::vector<void*> in, out;
  std::int64_t bytes = 0;
  for (int i = 0; i < code.inputs; ++i) {
    const bool scalar = i >= code.inputs - scalars;
    buffers.emplace_back(static_cast<std::size_t>(n) * size_of(dtype), AlignedBuffer::Fill::Zero);
    in.push_back(buffers.back().data());
    spec.in_types.push_back(dtype);
    spec.in_strides.push_back({scalar ? 0 : 1});
    bytes += scalar ? 0 : n * static_cast<std::int64_t>(size_of(dtype));
  }
  for (std::size_t o = 0; o < code.results.size(); ++o) {
    out.push_back(in[o]);
    spec.out_types.push_back(dtype);
    spec.out_strides.push_back({1});
    bytes += n * static_cast<std::int64_t>(size_of(dtype));
  }
  const FusedLoop loop(spec);
  for (auto _ : state) loop.run(in.data(), out.data(), nullptr);
  state.SetBytesProcessed(state.iterations() * bytes);
}

void copy(benchmark::State& state, std::int64_t n) {
  std::vector<float> a(static_cast<std::size_t>(n), 1.0f), b(static_cast<std::size_t>(n));
  for (auto _ : state) {
    std::copy(a.begin(), a.end(), b.begin());
    benchmark::DoNotOptimize(b.data());
  }
  state.SetBytesProcessed(state.iterations() * n * 8);
}

}  // namespace
}  // namespace tessera::benchmarks

int main(int argc, char** argv) {
  using namespace tessera;
  using namespace tessera::benchmarks;
  constexpr std::int64_t kMany = 8 << 20;
  benchmark::RegisterBenchmark("copy_8M", [](benchmark::State& s) { copy(s, kMany); });
  benchmark::RegisterBenchmark("fused_add_8M",
                               [](benchmark::State& s) { fused(s, add(), kMany, 0, DType::F32); });
  benchmark::RegisterBenchmark("fused_add_8M/bf16",
                               [](benchmark::State& s) { fused(s, add(), kMany, 0, DType::BF16); });
  benchmark::RegisterBenchmark("fused_adam_8M",
                               [](benchmark::State& s) { fused(s, adam(), kMany, 1, DType::F32); });
  benchmark::RegisterBenchmark("fused_gelu_2M",
                               [](benchmark::State& s) { fused(s, gelu(), 2 << 20, 0, DType::F32); });
  const std::string rows = "r:8192;n:128", hidden = "r:4096;n:512";
  const Strings n{"n"};
  for (DType t : {DType::F32, DType::BF16}) {
    const std::string type = std::string("/") + to_string(t);
    register_kernel("softmax" + type, {rows}, {t}, {{"dim", "n"}});
    register_kernel("softmax_grad" + type, {rows, rows}, {t, t}, {{"dim", "n"}});
    register_kernel("rms_norm" + type, {hidden, "n:512"}, {t, t}, {{"dim", "n"}, {"epsilon", 1e-6}});
    register_kernel("rms_norm_grad" + type, {hidden, "n:512", "r:4096", hidden}, {t, t, DType::F32, t},
                    {{"dim", "n"}});
    register_kernel("rms_norm_scale_grad" + type, {hidden, "r:4096", hidden}, {t, DType::F32, t},
                    {{"output", n}});
    const Attrs loss = {{"dim", "n"}, {"label_smoothing", 0.1}, {"z_loss", 0.0}};
    register_kernel("cross_entropy" + type, {"r:512;n:8000", "r:512"}, {t, DType::I32}, loss);
    register_kernel("cross_entropy_grad" + type, {"r:512;n:8000", "r:512", "r:512", "r:512"},
                    {t, DType::I32, DType::F32, DType::F32}, loss);
    register_kernel("dropout" + type, {hidden}, {t}, {{"rate", 0.1}, {"noise", Strings{}}});
    register_kernel("reduce_sum" + type, {hidden}, {t}, {{"dims", n}});
    register_kernel("reduce_sum/across" + type, {hidden}, {t}, {{"dims", Strings{"r"}}});
    register_kernel("scatter_add" + type, {"r:4096", "r:4096;n:512"}, {DType::I32, t},
                    {{"dim", "v"}, {"shape", Shape{{"v", 8000}, {"n", 512}}}});
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
