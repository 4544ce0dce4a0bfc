// Training steps lowered without tensors: explanations, and the paper's largest language model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "tessera/explain.h"
#include "train/step_graph.h"
#include "train/support.h"

namespace tessera {
namespace {

using testing::small_config;
using testing::TempFolder;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(LowerStep, PaperModelOn512Processors) {
  const auto begin = std::chrono::steady_clock::now();
  const LoweredStep step = lower_training_step(load_config(TESSERA_SOURCE_DIR "/configs/paper_lm.toml"));
  RecordProperty("seconds", static_cast<int>(seconds_since(begin)));
  EXPECT_EQ(step.program.mesh.ranks(), 512);
  EXPECT_NEAR(static_cast<double>(step.parameters.total()) / 1e9, 4.9, 0.05);
  const auto bound_begin = std::chrono::steady_clock::now();
  const BoundProgram bound = bind(step.program, 511);
  EXPECT_EQ(bound.boxes.size(), step.program.values.size());
  RecordProperty("bind_milliseconds", static_cast<int>(1000 * seconds_since(bound_begin)));
  const std::string text = explain(step.program, step.plan);
  EXPECT_THAT(text, ::testing::HasSubstr("all_reduce"));
}

// One text for all meshes: a program has as many steps on 512 ranks as on 2, whether or not the sizes divide.
TEST(LowerStep, StepsDoNotGrowWithTheMesh) {
  const char* const layouts[] = {"batch:all", "batch:all;params.*:all", "heads:all;d_ff:all;vocab:all"};
  for (const char* preset : {"demo", "peers_lm"}) {
    for (const char* sizes : {"d_ff = 1024\nvocab = 8192\n[data]\nbatch_sentences = 1024\n",
                              "d_ff = 1021\nvocab = 8009\n[data]\nbatch_sentences = 1001\n"}) {
      for (const char* layout : layouts) {
        std::vector<std::size_t> steps, values;
        for (int ranks : {2, 32, 512}) {
          const LoweredStep step = lower_training_step(parse_config(
              fmt::format("[model]\npreset = \"{}\"\n{}max_source_length = 32\nmax_target_length = 32\n"
                          "[mesh]\nshape = \"all:{}\"\nlayout = \"{}\"\n",
                          preset, sizes, ranks, layout),
              "test", {}));
          steps.push_back(step.program.steps.size());
          values.push_back(bind(step.program, ranks - 1).boxes.size());
        }
        EXPECT_EQ(steps, std::vector<std::size_t>(3, steps[0])) << preset << " " << layout << "\n" << sizes;
        EXPECT_EQ(values, std::vector<std::size_t>(3, values[0])) << preset << " " << layout << "\n" << sizes;
      }
    }
  }
}

TEST(LowerStep, IsTheProgramOfTheTrainer) {
  const TempFolder run;
  const Strings settings{"mesh.shape=rows:2;cols:2", "mesh.layout=batch:rows;heads:cols;d_ff:cols;vocab:cols",
                         "data.batch_sentences=6"};
  const Config config = small_config(run.path(), settings);
  Trainer trainer(config, {.write_files = false});
  const LoweredStep step = lower_training_step(trainer.model().config());
  const StepCosts costs = trainer.costs();
  const ProgramStats counts = stats(step.program);
  EXPECT_EQ(costs.bytes_per_axis, counts.bytes_per_axis);
  EXPECT_EQ(costs.collectives, counts.count);
  EXPECT_EQ(costs.flops, counts.flops);
  EXPECT_GT(costs.slot_bytes, costs.parameter_bytes);
}

TEST(Explain, TextAndJsonAgree) {
  const TempFolder run;
  const LoweredStep step = lower_training_step(
      small_config(run.path(), {"mesh.shape=rows:2", "mesh.layout=batch:rows;params.*:rows"}));
  const std::string text = explain(step.program, step.plan);
  const nlohmann::json json = nlohmann::json::parse(explain_json(step.program, step.plan));
  const ProgramStats counts = stats(step.program);
  EXPECT_EQ(json["totals"]["bytes_per_axis"]["rows"], counts.bytes_per_axis.at("rows"));
  std::int64_t listed = 0;
  for (const auto& c : json["collectives"]) {
    listed += c["bytes"].get<std::int64_t>();
    EXPECT_FALSE(c["reason"].get<std::string>().empty());
    EXPECT_FALSE(c["op"].get<std::string>().empty());
  }
  EXPECT_EQ(listed, counts.collective_bytes);
  EXPECT_EQ(json["memory"]["arena_bytes"], step.plan.arena_bytes);
  for (const char* part : {"mesh    rows:2 (2 ranks)", "Collectives", "Totals of a step", "Memory of a rank",
                           "Work of a rank", "all_gather", "reduce_scatter"}) {
    EXPECT_THAT(text, ::testing::HasSubstr(part));
  }
  const nlohmann::json program = nlohmann::json::parse(program_json(step.program, &step.plan));
  EXPECT_EQ(program["steps"].size(), step.program.steps.size());
  EXPECT_EQ(program["values"].size(), step.program.values.size());
}

TEST(MicroBatches, CutInMultiplesOfTheParts) {
  const auto sizes = [](std::int64_t batch, std::int64_t count, std::int64_t parts) {
    std::vector<std::int64_t> result;
    std::int64_t at = 0;
    for (const Interval& part : micro_batches(batch, count, parts)) {
      EXPECT_EQ(part.begin, at);
      at = part.end;
      result.push_back(part.size());
    }
    EXPECT_EQ(at, batch);
    return result;
  };
  EXPECT_EQ(sizes(16, 3, 2), (std::vector<std::int64_t>{4, 6, 6}));
  EXPECT_EQ(sizes(7, 2, 2), (std::vector<std::int64_t>{4, 3}));
  EXPECT_EQ(sizes(3, 3, 2), (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(sizes(5, 1, 4), (std::vector<std::int64_t>{5}));
}

TEST(Bench, MeasuresAStep) {
  const TempFolder run;
  const Config config = small_config(
      run.path(), {"model.dtype=f32", "mesh.shape=rows:2", "mesh.layout=batch:rows", "data.buckets=1"});
  const BenchReport report = bench(config, {.steps = 3, .warmup = 1});
  EXPECT_GT(report.step_seconds, 0);
  EXPECT_GT(report.contraction_seconds, 0);
  EXPECT_LT(report.share, 1.5);
  EXPECT_GT(report.contraction_flops, 1e5);
  EXPECT_GE(report.arena_bytes, report.liveness_bound);
  EXPECT_THAT(to_string(report), ::testing::HasSubstr("share"));
}

}  // namespace
}  // namespace tessera
