// A checkpoint survives whatever stops the process or the machine: a kill at every call, an error at every
// call, and power cuts that drop what was not synced.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>

#include "base/log.h"
#include "tessera/checkpoint.h"
#include "tessera/error.h"
#include "unit/io_checkpoint_model.h"
#include "unit/io_fault_vfs.h"
#include "unit/io_memory_vfs.h"
#include "unit/io_temporary_folder.h"

namespace tessera {
namespace {

// Damaged checkpoints are what these tests make by the thousand.
class Crash : public ::testing::Test {
 protected:
  Crash() { set_log_level(LogLevel::Off); }
  ~Crash() override { set_log_level(LogLevel::Info); }
};

// One life of a job: opens the folder, saves the step with four ranks, removes an older one.
void save_once(Vfs& vfs, const std::string& path, std::int64_t step) {
  CheckpointDir dir(path, {.keep_last = 2, .vfs = &vfs});
  ModelSave{4, static_cast<int>(step), &vfs}(dir, step);
}

int calls_of_a_save(const std::string& path, std::int64_t step) {
  FaultVfs vfs(real_vfs());
  save_once(vfs, path, step);
  return vfs.calls();
}

void expect_step_is_right(const std::string& path) {
  expect_model(CheckpointReader(path), CheckpointReader(path).step());
}

// Two older checkpoints; then the third save is stopped at every call in turn: new step, or again the newest
// one.
void kill_at_every_call(std::int64_t third) {
  TemporaryFolder counted;
  for (std::int64_t step : {1, 2}) save_once(real_vfs(), counted / "c", step);
  const int calls = calls_of_a_save(counted / "c", third);
  ASSERT_GT(calls, 80);
  int old_ones = 0, new_ones = 0;
  for (int call = 1; call <= calls; ++call) {
    const TemporaryFolder folder;
    for (std::int64_t step : {1, 2}) save_once(real_vfs(), folder / "c", step);
    const pid_t child = ::fork();
    if (child == 0) {
      FaultVfs vfs(real_vfs());
      vfs.kill_at(call);
      save_once(vfs, folder / "c", third);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "call " << call << " was not reached";

    const NewestCheckpoint newest = newest_valid(folder / "c");
    EXPECT_THAT(newest.warnings, ::testing::IsEmpty()) << call;
    ASSERT_NE(newest.path, "") << call;
    const std::int64_t step = CheckpointReader(newest.path).step();
    ASSERT_TRUE(step == 2 || step == third) << call;
    (step == 2 ? old_ones : new_ones)++;
    expect_step_is_right(newest.path);
    // The next job clears up and goes on.
    save_once(real_vfs(), folder / "c", 4);
    expect_step_is_right(folder / "c/step-000000004");
    for (const auto& entry : std::filesystem::directory_iterator(folder / "c")) {
      const std::string name = entry.path().filename();
      EXPECT_TRUE(name == "LOCK" || name == "LATEST" || name.starts_with("step-")) << name << " at " << call;
    }
  }
  EXPECT_GT(old_ones, 50);
  if (third != 2) {
    EXPECT_GT(new_ones, 10);
  }
}

TEST_F(Crash, KillAtEveryCallOfASave) {
  kill_at_every_call(3);
}
TEST_F(Crash, KillAtEveryCallOfSavingTheSameStepAgain) {
  kill_at_every_call(2);
}

// The error is reported, or it hit something after the commit that is only a warning; the older ones stay,
// nothing is left behind, and the next save works.
TEST_F(Crash, ErrorAtEveryCallOfASave) {
  TemporaryFolder counted;
  for (std::int64_t step : {1, 2}) save_once(real_vfs(), counted / "c", step);
  const int calls = calls_of_a_save(counted / "c", 3);
  int reported = 0;
  for (int error : {EIO, ENOSPC}) {
    for (int call = 1; call <= calls; ++call) {
      const TemporaryFolder folder;
      for (std::int64_t step : {1, 2}) save_once(real_vfs(), folder / "c", step);
      FaultVfs vfs(real_vfs());
      vfs.fail_at(call, error);
      bool threw = false;
      try {
        save_once(vfs, folder / "c", 3);
      } catch (const SystemError& e) {
        threw = true;
        EXPECT_EQ(e.code(), ExitCode::Storage);
        EXPECT_THAT(e.what(),
                    ::testing::HasSubstr(error == EIO ? "Input/output error" : "No space left on device"));
      }
      reported += threw;
      const NewestCheckpoint newest = newest_valid(folder / "c");
      ASSERT_NE(newest.path, "") << call;
      EXPECT_THAT(newest.warnings, ::testing::IsEmpty()) << call;
      expect_step_is_right(newest.path);
      if (!threw) {
        EXPECT_EQ(CheckpointReader(newest.path).step(), 3) << call;
      }
      EXPECT_TRUE(std::filesystem::exists(folder / "c/step-000000002")) << call;
      save_once(vfs, folder / "c", 4);
      expect_step_is_right(folder / "c/step-000000004");
    }
  }
  EXPECT_GT(reported, 110);
}

TEST_F(Crash, ErrorsLeaveNoTemporaryFolder) {
  TemporaryFolder counted;
  CheckpointDir counting(counted / "c");
  FaultVfs counter(real_vfs());
  const auto save = [](FaultVfs& vfs, CheckpointDir& dir) { ModelSave{2, 0, &vfs}(dir, 1); };
  const int calls = [&] {
    CheckpointDir dir(counted / "d", {.vfs = &counter});
    const int before = counter.calls();
    save(counter, dir);
    return counter.calls() - before;
  }();
  int failed = 0;
  for (int call = 1; call <= calls; ++call) {
    const TemporaryFolder folder;
    FaultVfs vfs(real_vfs());
    CheckpointDir dir(folder / "c", {.vfs = &vfs});
    vfs.fail_at(call, ENOSPC);
    try {
      save(vfs, dir);
    } catch (const SystemError&) {
      ++failed;
    }
    for (const auto& entry : std::filesystem::directory_iterator(folder / "c")) {
      EXPECT_FALSE(entry.path().filename().string().starts_with(".tmp-"))
          << entry.path() << " at call " << call;
    }
  }
  EXPECT_GT(failed, 30);
}

TEST_F(Crash, ShortAndInterruptedTransfers) {
  const TemporaryFolder folder;
  FaultVfs vfs(real_vfs());
  vfs.stutter();
  save_once(vfs, folder / "c", 1);
  const CheckpointReader reader(folder / "c/step-000000001", {.vfs = &vfs});
  expect_model(reader, 1);
  EXPECT_THAT(reader.verify(), ::testing::IsEmpty());
}

// ---- Power cuts ----

struct History {
  MemoryVfs vfs;
  std::vector<std::pair<std::size_t, std::int64_t>>
      acknowledged;  // (changes so far, step) when a commit returned
};

// Saves with other numbers of ranks, retention, a restart and a step that is saved again.
void make_history(History& history) {
  const auto life = [&](std::initializer_list<std::int64_t> steps) {
    CheckpointDir dir("run", {.keep_last = 2, .vfs = &history.vfs});
    for (std::int64_t step : steps) {
      ModelSave{static_cast<int>(1 + step % 4), static_cast<int>(step), &history.vfs}(dir, step);
      history.acknowledged.emplace_back(history.vfs.changes(), step);
    }
  };
  life({1, 2, 3, 3});
  life({4, 5});
}

struct CutResult {
  int states = 0, lost = 0, damaged = 0;
};

CutResult cut_power(const History& history, int states_per_change, bool check_contents) {
  CutResult result;
  const RandomKey key = random_key(11, "power", 0);
  std::uint64_t drawn = 0;
  const auto chance = [&] { return static_cast<double>(random_uniform_at(key, drawn++)); };
  constexpr double kSurvival[] = {0, 0.5, 1, 0.1, 0.9};
  for (std::size_t count = 0; count <= history.vfs.changes(); ++count) {
    std::int64_t least = 0;
    for (const auto& [changes, step] : history.acknowledged) {
      if (changes <= count) least = std::max(least, step);
    }
    for (int s = 0; s < states_per_change; ++s) {
      const auto cut = history.vfs.after_power_cut(count, kSurvival[s % 5], chance);
      ++result.states;
      const NewestCheckpoint newest = newest_valid("run", true, cut.get());
      result.damaged += !newest.warnings.empty();
      std::int64_t step = 0;
      if (!newest.path.empty()) {
        const CheckpointReader reader(newest.path, {.vfs = cut.get()});
        step = reader.step();
        EXPECT_EQ(reader.state_hash(), model_hash(step));
        if (check_contents) expect_model(reader, step);
      }
      result.lost += step < least;
      if (!check_contents || s > 0 || count == 0) continue;
      save_once(*cut, "run", 9);  // the next job goes on from whatever is there
      EXPECT_EQ(newest_valid("run", true, cut.get()).path, "run/step-000000009");
    }
  }
  return result;
}

TEST_F(Crash, PowerCutsLoseNothingThatWasAcknowledged) {
  History history;
  make_history(history);
  const CutResult result = cut_power(history, 40, true);
  EXPECT_EQ(result.lost, 0);
  EXPECT_EQ(result.damaged, 0);
  EXPECT_GT(result.states, 10'000);
  std::cout << result.states << " states after power cuts, none lost, none damaged\n";
}

// Without these the test above would prove nothing.
TEST_F(Crash, PowerCutsFindAMissingFileSync) {
  History history;
  history.vfs.ignore_file_sync = true;
  make_history(history);
  const CutResult result = cut_power(history, 3, false);
  EXPECT_GT(result.damaged, 50);
}

TEST_F(Crash, PowerCutsFindAMissingFolderSync) {
  History history;
  history.vfs.ignore_folder_sync = true;
  make_history(history);
  const CutResult result = cut_power(history, 3, false);
  EXPECT_GT(result.lost, 50);
}

}  // namespace
}  // namespace tessera
