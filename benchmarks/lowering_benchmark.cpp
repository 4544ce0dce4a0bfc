// What making a program costs on larger meshes: lowering, binding of one rank, memory plan, against the same
// on 2 ranks in the same loop. `ratio` is the median of the pairs; it should stay below 1.5. `pieces`: the
// same of the pieces that one rank takes from its peers; an all-gather has one a member.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/median.h"
#include "exec/cpu_target.h"
#include "tessera/config.h"
#include "tessera/layout.h"
#include "train/step_graph.h"

namespace tessera::benchmarks {
namespace {

struct Case {
  const char* name;
  const char* preset;
  const char* axis;  // of the mesh's one axis
  const char* layout;
  std::int64_t batch, d_ff, vocab;
};

constexpr Case kCases[] = {
    {"demo/dp/even", "demo", "data", "batch:data", 1024, 1024, 8192},
    {"demo/dp/uneven", "demo", "data", "batch:data", 1001, 1021, 8009},
    {"demo/mp/even", "demo", "model", "heads:model;d_ff:model;vocab:model", 64, 1024, 8192},
    {"demo/mp/uneven", "demo", "model", "heads:model;d_ff:model;vocab:model", 61, 1021, 8009},
    {"peers_lm/fsdp/even", "peers_lm", "data", "batch:data;params.*:data", 512, 2048, 32768},
    {"peers_lm/fsdp/uneven", "peers_lm", "data", "batch:data;params.*:data", 509, 2039, 32003},
};

struct Costs {
  double lower = 0, bind = 0, pieces = 0, plan = 0;
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class Model {
 public:
  explicit Model(const Case& c) : case_(c) {
    config_ = parse_config(
        fmt::format("[model]\npreset = \"{}\"\nd_ff = {}\nvocab = {}\n", c.preset, c.d_ff, c.vocab), c.name,
        {});
    const std::int64_t source = config_.model.kind == ModelKind::EncoderDecoder ? 64 : 0;
    targets_ = build_training_step(graph_, config_,
                                   {.batch = c.batch, .source_length = source, .target_length = 64}, false);
  }

  Costs costs(int ranks) {
    const Mesh mesh({{case_.axis, ranks}});
    const Layout layout = Layout::parse(case_.layout);
    LowerOptions options;
    Costs costs;
    auto begin = std::chrono::steady_clock::now();
    const Program program = lower(graph_, targets_, mesh, layout, options);
    costs.lower = seconds_since(begin);
    begin = std::chrono::steady_clock::now();
    const int rank = ranks / 2;
    benchmark::DoNotOptimize(bind(program, rank));
    costs.bind = seconds_since(begin);
    begin = std::chrono::steady_clock::now();
    for (const Step& step : program.steps) {
      if (step.kind != Step::Kind::Start) continue;
      const ProgramValue &from = program.values[static_cast<std::size_t>(step.in[0])],
                         &to = program.values[static_cast<std::size_t>(step.out[0])];
      benchmark::DoNotOptimize(pieces_for(mesh, step.collective.move, from.type.shape, from.placement,
                                          to.type.shape, to.placement, rank));
    }
    costs.pieces = seconds_since(begin);
    begin = std::chrono::steady_clock::now();
    benchmark::DoNotOptimize(plan_memory(program, CpuTarget(1, true)));
    costs.plan = seconds_since(begin);
    return costs;
  }

 private:
  Case case_;
  Config config_;
  Graph graph_;
  Tensors targets_;
};

void growth(benchmark::State& state, const Case& c) {
  const int ranks = static_cast<int>(state.range(0));
  Model model(c);
  std::vector<double> lower, bind, pieces, plan, all;
  for (auto _ : state) {
    const Costs few = model.costs(2), many = model.costs(ranks);
    lower.push_back(many.lower / few.lower);
    bind.push_back(many.bind / few.bind);
    pieces.push_back(many.pieces / few.pieces);
    plan.push_back(many.plan / few.plan);
    all.push_back((many.lower + many.bind + many.plan) / (few.lower + few.bind + few.plan));
  }
  state.counters["ratio"] = median(all);
  state.counters["lower"] = median(lower);
  state.counters["bind"] = median(bind);
  state.counters["pieces"] = median(pieces);
  state.counters["plan"] = median(plan);
}

const int kRegistered = [] {
  for (const Case& c : kCases) {
    benchmark::RegisterBenchmark(c.name, [&c](benchmark::State& state) { growth(state, c); })
        ->Arg(32)
        ->Arg(512)
        ->Unit(benchmark::kMillisecond);
  }
  return 0;
}();

}  // namespace
}  // namespace tessera::benchmarks

BENCHMARK_MAIN();
