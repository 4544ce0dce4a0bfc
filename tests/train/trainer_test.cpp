// Training end to end: it learns, resumes exactly, on any mesh, and does not depend on micro-batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <cmath>

#include "tessera/checkpoint.h"
#include "train/support.h"

namespace tessera {
namespace {

using testing::small_config;
using testing::small_lm_config;
using testing::TempFolder;

TEST(Trainer, LossFalls) {
  const TempFolder run;
  Trainer trainer(small_config(run.path(), {"train.steps=60", "model.dtype=f32", "model.dropout=0"}));
  const double before = trainer.evaluate_dev().loss();
  const TrainResult result = trainer.run();
  const Evaluation after = trainer.evaluate_dev();
  EXPECT_EQ(result.code, ExitCode::Done);
  EXPECT_LT(after.loss(), before - 1.5) << "before " << before;
  EXPECT_GT(after.accuracy, 0.1);
  for (const char* file :
       {"config.resolved.toml", "tokenizer.model", "metrics.jsonl", "events", "checkpoints"}) {
    EXPECT_TRUE(std::filesystem::exists(run / file)) << file;
  }
}

TEST(Trainer, EvaluationCountsEveryExampleOnce) {
  const TempFolder run;
  Trainer trainer(small_config(run.path()), {.write_files = false});
  const Evaluation all = trainer.evaluate_dev();
  std::vector<TextExample> examples;
  std::int64_t words = 0;
  for (std::size_t i = 0; i < testing::corpus().dev_sources.size(); ++i) {
    examples.push_back({testing::corpus().dev_sources[i], testing::corpus().dev_targets[i]});
    words += count_words(examples.back().target) + 1;
  }
  double nats = 0;
  std::int64_t tokens = 0;
  for (const ScoredText& text : score(trainer.model(), examples)) {
    nats -= text.log_probability;
    tokens += text.tokens;
  }
  EXPECT_EQ(all.perplexity.tokens, tokens);
  EXPECT_EQ(all.perplexity.words, words);
  EXPECT_NEAR(all.perplexity.nats, nats, 1e-9 * nats);
}

// Four steps, a checkpoint, and two steps more that are lost.
void train_a_part(const Config& config) {
  Trainer trainer(config);
  for (int i = 0; i < 4; ++i) trainer.step();
  trainer.save();
  for (int i = 0; i < 2; ++i) trainer.step();
}

TEST(Trainer, ResumesWithTheSameBits) {
  for (const char* dtype : {"f32", "bf16"}) {
    const TempFolder whole, parts;
    const Strings settings{std::string("model.dtype=") + dtype, "mesh.shape=data:2", "mesh.layout=batch:data",
                           "train.steps=8"};
    Trainer once(small_config(whole.path(), settings));
    const std::vector<double> losses = once.run().losses;
    train_a_part(small_config(parts.path(), settings));
    Trainer again(small_config(parts.path(), settings));
    const TrainResult result = again.run();
    EXPECT_EQ(result.first_step, 4);
    EXPECT_EQ(result.losses, std::vector<double>(losses.begin() + 4, losses.end())) << dtype;
    EXPECT_EQ(state_hash(again.session().store()), state_hash(once.session().store()));
    EXPECT_EQ(CheckpointReader(result.checkpoint).state_hash(), state_hash(once.session().store()));
  }
}

// This process on one core while it lives.
class OneCore {
 public:
  OneCore() {
    cpu_set_t one;
    CPU_ZERO(&one);
    sched_getaffinity(0, sizeof before_, &before_);
    int core = 0;
    while (!CPU_ISSET(core, &before_)) ++core;
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  ~OneCore() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

TEST(Trainer, OneCoreGivesTheSameBits) {
  for (const char* mesh : {"", "data:2", "data:3"}) {
    for (const char* dtype : {"f32", "bf16"}) {
      const Strings settings{std::string("mesh.shape=") + mesh,
                             "mesh.layout=batch:data?",
                             std::string("model.dtype=") + dtype,
                             "train.steps=4",
                             "model.d_model=96",
                             "model.d_ff=160",
                             "data.batch_tokens=600"};
      std::vector<std::string> hashes;
      for (const bool one_core : {false, true}) {
        const auto pinned = one_core ? std::make_unique<OneCore>() : nullptr;
        const TempFolder run;
        Trainer trainer(small_config(run.path(), settings), {.write_files = false});
        trainer.run();
        hashes.push_back(state_hash(trainer.session().store()));
      }
      EXPECT_EQ(hashes[0], hashes[1]) << mesh << " " << dtype;
    }
  }
}

// Saved on each of seven meshes, resumed on each of them.
TEST(Trainer, ResumesOnEveryMesh) {
  const std::vector<std::pair<std::string, std::string>> meshes{
      {"", ""},
      {"rows:2", "batch:rows; params.*:rows"},
      {"rows:3", "heads:rows; d_ff:rows; vocab:rows; slots.*:rows"},
      {"rows:4", "batch:rows; params.*:rows; slots.*:rows"},
      {"rows:2;cols:2", "batch:rows; heads:cols; d_ff:cols; vocab:cols; params.d_model:rows"},
      {"rows:2;cols:3", "batch:rows+cols; slots.*:rows+cols"},
      {"rows:2;cols:4", "batch:rows; d_model:cols"}};
  const auto config = [](const TempFolder& run, const std::pair<std::string, std::string>& where) {
    return small_config(run.path(),
                        {"train.steps=6", "mesh.shape=" + where.first, "mesh.layout=" + where.second});
  };
  const TempFolder whole;
  const std::vector<double> losses = testing::train(config(whole, meshes[0]));
  for (const auto& from : meshes) {
    const TempFolder start;
    train_a_part(config(start, from));
    for (const auto& to : meshes) {
      const TempFolder copy;
      std::filesystem::copy(start.path(), copy.path(), std::filesystem::copy_options::recursive);
      const TrainResult result = Trainer(config(copy, to)).run();
      EXPECT_EQ(result.first_step, 4);
      ASSERT_EQ(result.losses.size(), 2U) << from.first << " to " << to.first;
      for (std::size_t i = 0; i < 2; ++i)
        EXPECT_NEAR(result.losses[i], losses[4 + i], 1e-9 * losses[4 + i])
            << from.first << " to " << to.first;
    }
  }
}

TEST(Trainer, MicroBatchesAreOneBatch) {
  // Uneven parts on two ranks, dropout, rows of different lengths.
  const Strings settings{"mesh.shape=data:2",  "mesh.layout=batch:data", "train.steps=3",
                         "optimizer.kind=sgd", "model.dropout=0.2",      "optimizer.clip_norm=1"};
  std::vector<std::vector<double>> losses;
  std::vector<Array> tables;
  for (const char* count : {"1", "2", "3"}) {
    const TempFolder run;
    Strings all = settings;
    all.push_back(std::string("train.micro_batches=") + count);
    Trainer trainer(small_config(run.path(), all), {.write_files = false});
    losses.push_back(trainer.run().losses);
    tables.push_back(trainer.session().store().read("embedding/table"));
  }
  for (std::size_t m = 1; m < 3; ++m) {
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(losses[m][i], losses[0][i], 1e-12 * losses[0][i]) << m + 1;
    double difference = 0, size = 0;
    for (std::int64_t i = 0; i < tables[0].elements(); ++i) {
      difference += std::pow(tables[m].get(i) - tables[0].get(i), 2);
      size += std::pow(tables[0].get(i), 2);
    }
    EXPECT_LT(std::sqrt(difference / size), 1e-12) << m + 1;
  }
  EXPECT_NE(losses[0][0], losses[0][1]);
}

TEST(Trainer, StopFlagSavesAndEnds) {
  const TempFolder run, whole;
  std::atomic<bool> stop{false};
  TrainOptions options;
  options.stop = &stop;
  options.report = [&stop](const TrainEvent& event) {
    if (event.kind == TrainEvent::Kind::Step && event.step == 3) stop = true;
  };
  const TrainResult first = Trainer(small_config(run.path()), options).run();
  EXPECT_EQ(first.code, ExitCode::Stopped);
  EXPECT_EQ(first.steps, 3);
  EXPECT_EQ(CheckpointReader(first.checkpoint).step(), 3);
  const TrainResult second = Trainer(small_config(run.path())).run();
  EXPECT_EQ(second.code, ExitCode::Done);
  std::vector<double> losses = first.losses;
  losses.insert(losses.end(), second.losses.begin(), second.losses.end());
  EXPECT_EQ(losses, testing::train(small_config(whole.path())));
}

// Makes one element of a parameter NaN and returns the old value.
Array poison(Store& store, const std::string& name) {
  const Array old = store.read(name);
  Array bad = old;
  bad.set(7, NAN);
  store.write(name, bad);
  return old;
}

TEST(Trainer, NanStopsAndNamesTheOp) {
  const TempFolder run;
  Trainer trainer(small_config(run.path(), {"mesh.shape=data:2", "mesh.layout=batch:data"}),
                  {.name_nonfinite = true});
  trainer.step();
  poison(trainer.session().store(), "decoder/layer_000/ffn/wi");
  try {
    trainer.run();
    FAIL() << "a NaN went through";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::Numbers);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("step 2: the gradients are not finite"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("decoder/layer_000/ffn"));
  }
  EXPECT_TRUE(list_checkpoints(run / "checkpoints").empty());
}

TEST(Trainer, NanIsSkippedWithinTheBudget) {
  const TempFolder run;
  int skipped = 0;
  TrainOptions options;
  options.report = [&skipped](const TrainEvent& e) {
    skipped += e.kind == TrainEvent::Kind::Skipped ? 1 : 0;
  };
  Trainer trainer(small_config(run.path(), {"optimizer.nan=skip", "train.nan_budget=2", "mesh.shape=data:2",
                                            "mesh.layout=batch:data"}),
                  options);
  trainer.step();
  Store& store = trainer.session().store();
  const std::string name = "decoder/layer_000/ffn/wi";
  const Array good = poison(store, name);
  const std::string before = state_hash(store);
  trainer.step();
  EXPECT_EQ(skipped, 1);
  EXPECT_EQ(state_hash(store), before) << "a skipped step changed the state";
  store.write(name, good);
  EXPECT_TRUE(std::isfinite(trainer.step().loss));
  poison(store, name);
  trainer.step();
  trainer.step();
  try {
    trainer.step();
    FAIL() << "the budget was not kept";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::Numbers);
    EXPECT_THAT(error.what(),
                ::testing::HasSubstr("3 steps in a row were skipped and train.nan_budget is 2"));
  }
}

TEST(Trainer, RefusesAnotherRunsFolder) {
  const TempFolder run;
  testing::train(small_config(run.path(), {"train.steps=1"}));
  const auto message = [&run](const Strings& overrides) -> std::string {
    try {
      Trainer trainer(small_config(run.path(), overrides));
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::BadData);
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message({"model.d_ff=48", "train.seed=6"}),
              ::testing::AllOf(::testing::HasSubstr("\n  model.d_ff: 40 there, 48 here\n"),
                               ::testing::HasSubstr("\n  train.seed: 5 there, 6 here\n"),
                               ::testing::HasSubstr("another train.output")));
  EXPECT_THAT(message({"data.batch_tokens=200"}),
              ::testing::HasSubstr("data.batch_tokens: 240 there, 200 here"));
  EXPECT_THAT(message({"optimizer.kind=sgd"}),
              ::testing::HasSubstr("optimizer.kind: \"adam\" there, \"sgd\" here"));
  EXPECT_EQ(CheckpointReader(newest_valid(run / "checkpoints").path).step(), 1);
}

TEST(Trainer, WritesATrace) {
  const TempFolder run;
  TrainOptions options;
  options.trace = run / "trace.json";
  testing::train(small_config(run.path(), {"mesh.shape=data:2", "mesh.layout=batch:data"}), options);
  EXPECT_GT(std::filesystem::file_size(options.trace), 1000U);
}

TEST(Trainer, LanguageModelLearns) {
  const TempFolder run;
  Trainer trainer(small_lm_config(run.path(), {"train.steps=40", "model.dtype=f32", "mesh.shape=rows:2",
                                               "mesh.layout=batch:rows"}),
                  {.write_files = false});
  const std::vector<double> losses = trainer.run().losses;
  EXPECT_LT(losses.back(), losses.front() - 1.0);
}

TEST(Trainer, ShuffledSourcesAreWorse) {
  const TempFolder run;
  Trainer trainer(small_config(run.path(), {"train.steps=150", "model.dtype=f32", "model.dropout=0"}),
                  {.write_files = false});
  trainer.run();
  const std::unique_ptr<Dataset> dev = open_split(trainer.model(), trainer.model().config().data.dev);
  const Evaluation own = evaluate(trainer.model(), *dev, {});
  const Evaluation other = evaluate(trainer.model(), *dev, {.shuffle_sources = true});
  EXPECT_EQ(own.perplexity.tokens, other.perplexity.tokens);
  EXPECT_GT(other.loss(), own.loss() + 0.1);
}

}  // namespace
}  // namespace tessera
