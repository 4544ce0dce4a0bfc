// Checkpoints: what was saved comes back on any mesh, by any box; hashes do not depend on the cut; retention,
// lock and leftovers; refusal of what is not whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <thread>

#include "base/file.h"
#include "tessera/checkpoint.h"
#include "tessera/error.h"
#include "tessera/safetensors.h"
#include "unit/io_checkpoint_model.h"
#include "unit/io_temporary_folder.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename Action>
std::string checkpoint_message_of(Action&& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  EXPECT_EQ(real_vfs().list(path, names), 0);
  return names;
}

TEST(Checkpoint, EveryCutComesBackByAnyBox) {
  const TemporaryFolder folder;
  CheckpointDir dir(folder / "ckpt");
  for (int ranks : {1, 2, 3, 4, 7}) {
    for (int cut : {0, 1, 2}) {
      const std::string path = ModelSave{ranks, cut}(dir, 100 + ranks * 10 + cut);
      const CheckpointReader reader(path);
      expect_model(reader, 100 + ranks * 10 + cut);
      EXPECT_THAT(reader.verify(), ElementsAre());
      EXPECT_EQ(reader.mesh(), "rows:2;cols:2");
      EXPECT_EQ(reader.layout(), "batch:rows");
      // Another mesh: each rank reads its boxes only.
      for (const TensorInfo& t : model_tensors()) {
        const std::vector<char> all = model_values(t, reader.step());
        const std::size_t element = size_of(t.type.dtype);
        for (int other : {2, 3, 5}) {
          for (const Box& box : tile(t.type.shape, other, cut + 1)) {
            std::vector<char> have(static_cast<std::size_t>(box.elements()) * element), want(have.size());
            if (box.size.size() != t.type.shape.count()) continue;
            reader.read(t.name, box, have.data());
            copy_box(all.data(), whole_box(t.type.shape), want.data(), box, box, element);
            ASSERT_EQ(have, want) << t.name << to_string(box);
          }
        }
      }
    }
  }
}

TEST(Checkpoint, HashDoesNotDependOnTheCutButOnEveryBit) {
  const TemporaryFolder folder;
  CheckpointDir dir(folder / "ckpt", {.keep_last = 0});
  std::vector<std::string> hashes;
  for (int ranks : {1, 2, 3, 4, 7}) {
    for (int cut : {0, 1, 2}) {
      hashes.push_back(CheckpointReader(ModelSave{ranks, cut}(dir, 5)).state_hash());
    }
  }
  EXPECT_THAT(hashes, ::testing::Each(model_hash(5)));
  EXPECT_NE(model_hash(6), model_hash(5));

  const Type type{Shape{{"a", 3}, {"b", 4}}, DType::F32};
  const Box whole = whole_box(type.shape);
  std::vector<float> x(12, 1.0f);
  const std::uint64_t plain = box_hash(type, whole, x.data(), whole);
  x[5] = std::nextafter(1.0f, 2.0f);
  const std::uint64_t bit = box_hash(type, whole, x.data(), whole);
  x[5] = 1.0f;
  x[6] = std::nextafter(1.0f, 2.0f);  // the same multiset of values, at another place
  const std::uint64_t moved = box_hash(type, whole, x.data(), whole);
  EXPECT_NE(plain, bit);
  EXPECT_NE(bit, moved);
  // Parts of a buffer that holds more than the part.
  const Box left{{0, 0}, {3, 1}}, right{{0, 1}, {3, 3}};
  EXPECT_EQ(box_hash(type, left, x.data(), whole) + box_hash(type, right, x.data(), whole), moved);
}

// More than one piece of 4 MiB, with boxes that begin and end inside pieces, from two blocks.
TEST(Checkpoint, LargeTensorInPieces) {
  const TemporaryFolder folder;
  const Type type{Shape{{"rows", 3001}, {"cols", 1003}}, DType::F32};  // 12 MB
  const Box whole = whole_box(type.shape);
  std::vector<float> x(static_cast<std::size_t>(type.shape.elements()));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 1000003);
  CheckpointDir dir(folder / "ckpt");
  const std::string temporary = dir.begin(1, 0);
  std::vector<std::string> reports;
  const Box left{{0, 0}, {3001, 400}}, right{{0, 400}, {3001, 603}};
  reports.push_back(write_shard(temporary, 0, 2, {{"x", type, left, x.data(), whole}}));
  reports.push_back(write_shard(temporary, 1, 2, {{"x", type, right, x.data(), whole}}));
  const CheckpointReader reader(dir.commit(temporary, {.step = 1}, reports));
  EXPECT_THAT(reader.verify(), ElementsAre());
  for (const Box& box : {Box{{0, 0}, {3001, 1003}}, Box{{2999, 399}, {2, 2}}, Box{{1700, 0}, {900, 1003}},
                         Box{{0, 401}, {3001, 1}}}) {
    std::vector<float> have(static_cast<std::size_t>(box.elements())), want(have.size());
    reader.read("x", box, have.data());
    copy_box(x.data(), whole, want.data(), box, box, 4);
    ASSERT_EQ(have, want) << to_string(box);
  }
}

TEST(Checkpoint, RanksAsThreads) {
  const TemporaryFolder folder;
  CheckpointDir dir(folder / "ckpt");
  const std::string temporary = dir.begin(1, 0);
  const Type type{Shape{{"n", 1000}}, DType::I32};
  std::vector<std::int32_t> x(1000);
  for (int i = 0; i < 1000; ++i) x[static_cast<std::size_t>(i)] = i * i;
  std::vector<std::string> reports(4);
  std::vector<std::thread> ranks;
  for (int r = 0; r < 4; ++r) {
    ranks.emplace_back([&, r] {
      const Box box{{r * 250}, {250}};
      reports[static_cast<std::size_t>(r)] =
          write_shard(temporary, r, 4, {{"x", type, box, x.data() + r * 250, box}});
    });
  }
  for (auto& t : ranks) t.join();
  const CheckpointReader reader(dir.commit(temporary, {.step = 1}, reports));
  std::vector<std::thread> readers;
  for (int r = 0; r < 3; ++r) {
    readers.emplace_back([&] {
      std::vector<std::int32_t> have(500);
      reader.read("x", Box{{123}, {500}}, have.data());
      EXPECT_TRUE(std::equal(have.begin(), have.end(), x.begin() + 123));
    });
  }
  for (auto& t : readers) t.join();
}

TEST(Checkpoint, ReadableAsPlainSafetensors) {
  const TemporaryFolder folder;
  CheckpointDir dir(folder / "ckpt");
  const std::string path = ModelSave{4, 0}(dir, 1);
  const SafetensorsReader shard(path + "/shard-00003-of-00004.safetensors");
  const SafetensorsTensor* w = shard.find("decoder/w[0:5, 3:7]");
  ASSERT_NE(w, nullptr);
  EXPECT_THAT(w->shape, ElementsAre(5, 4));
}

TEST(Checkpoint, ExportsOneFile) {
  const TemporaryFolder folder;
  CheckpointDir dir(folder / "ckpt");
  export_checkpoint(CheckpointReader(ModelSave{3, 1}(dir, 4)), folder / "all.safetensors");
  const SafetensorsReader file(folder / "all.safetensors");
  EXPECT_EQ(file.metadata().at("step"), "4");
  EXPECT_EQ(file.tensors().size(), model_tensors().size());
  for (const TensorInfo& t : model_tensors()) {
    const std::vector<char> want = model_values(t, 4);
    std::vector<char> have(want.size());
    file.read(t.name, whole_box(t.type.shape), have.data());
    EXPECT_EQ(have, want) << t.name;
  }
}

TEST(Checkpoint, RetentionKeepsTheLastAndTheMultiples) {
  const TemporaryFolder folder;
  CheckpointDir dir(folder / "ckpt", {.keep_last = 2, .keep_every = 4});
  for (std::int64_t step = 1; step <= 9; ++step) ModelSave{2, 0}(dir, step);
  EXPECT_THAT(names_in(folder / "ckpt"),
              ElementsAre("LATEST", "LOCK", "step-000000004", "step-000000008", "step-000000009"));
  std::string latest = read_text(real_vfs(), folder / "ckpt/LATEST", 256);
  EXPECT_THAT(latest, ::testing::StartsWith("step-000000009 "));
}

// A run that fell back to step 2 while a damaged step 9 lies there must not lose what it saves now.
TEST(Checkpoint, RetentionSparesTheCommittedOneBelowANewerOne) {
  const TemporaryFolder folder;
  CheckpointDir dir(folder / "ckpt", {.keep_last = 1});
  ModelSave{2, 0}(dir, 2);
  std::filesystem::create_directory(folder / "ckpt/step-000000009");
  ModelSave{2, 0}(dir, 3);
  EXPECT_THAT(names_in(folder / "ckpt"), ElementsAre("LATEST", "LOCK", "step-000000003", "step-000000009"));
  const NewestCheckpoint newest = newest_valid(folder / "ckpt");
  EXPECT_EQ(newest.path, folder / "ckpt/step-000000003");
  EXPECT_EQ(newest.warnings.size(), 1u);
}

TEST(Checkpoint, SameStepIsReplaced) {
  const TemporaryFolder folder;
  CheckpointDir dir(folder / "ckpt");
  ModelSave{2, 0}(dir, 7);
  expect_model(CheckpointReader(ModelSave{3, 1}(dir, 7)), 7);
  EXPECT_THAT(names_in(folder / "ckpt"), ElementsAre("LATEST", "LOCK", "step-000000007"));
}

TEST(Checkpoint, StartRemovesLeftoversOnly) {
  const TemporaryFolder folder;
  std::string path;
  {
    CheckpointDir dir(folder / "ckpt");
    path = ModelSave{2, 0}(dir, 1);
    ModelSave{2, 0}.write_shards(dir.begin(2, 0), 2);  // a run that ends before the commit
  }
  std::filesystem::create_directories(folder / "ckpt/.trash-1/a");
  std::filesystem::create_directory(folder / "ckpt/step-12");  // not our spelling
  const CheckpointDir dir(folder / "ckpt");
  EXPECT_THAT(names_in(folder / "ckpt"), ElementsAre("LATEST", "LOCK", "step-000000001", "step-12"));
  const NewestCheckpoint newest = newest_valid(folder / "ckpt");
  EXPECT_EQ(newest.path, path);
  EXPECT_THAT(newest.warnings, ElementsAre());
}

TEST(Checkpoint, EmptyOrAbsentFolderHasNoNewest) {
  const TemporaryFolder folder;
  EXPECT_EQ(newest_valid(folder / "none").path, "");
  EXPECT_EQ(newest_valid(folder.path()).path, "");
  EXPECT_THAT(newest_valid(folder.path()).warnings, ElementsAre());
}

TEST(Checkpoint, SecondJobIsRefusedByName) {
  const TemporaryFolder folder;
  int ready[2], finish[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(finish), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const CheckpointDir dir(folder / "ckpt");
    char c = 'r';
    if (::write(ready[1], &c, 1) != 1 || ::read(finish[0], &c, 1) < 0) ::_exit(1);
    ::_exit(0);
  }
  char c;
  ASSERT_EQ(::read(ready[0], &c, 1), 1);
  char host[256] = {};
  ::gethostname(host, sizeof(host) - 1);
  EXPECT_EQ(checkpoint_message_of([&] { CheckpointDir dir(folder / "ckpt"); }),
            "checkpoint folder '" + (folder / "ckpt") + "' is in use by another job (process " +
                std::to_string(child) + " on host " + host +
                "); wait for it, end it, or choose another folder");
  ASSERT_EQ(::write(finish[1], &c, 1), 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  const CheckpointDir dir(folder / "ckpt");  // the lock went with the process
}

TEST(Checkpoint, TensorsMustBeCoveredExactlyOnce) {
  const TemporaryFolder folder;
  CheckpointDir dir(folder / "ckpt");
  const Type type{Shape{{"rows", 4}, {"cols", 3}}, DType::F32};
  const std::vector<float> x(12, 1.0f);
  const Box whole = whole_box(type.shape);
  const auto save = [&](const std::vector<Box>& boxes) {
    const std::string temporary = dir.begin(1, 0);
    std::vector<std::string> reports;
    for (std::size_t r = 0; r < boxes.size(); ++r) {
      reports.push_back(write_shard(temporary, static_cast<int>(r), static_cast<int>(boxes.size()),
                                    {{"w", type, boxes[r], x.data(), whole}}));
    }
    dir.commit(temporary, {.step = 1}, reports);
  };
  EXPECT_EQ(checkpoint_message_of([&] {
              save({Box{{0, 0}, {2, 3}}, Box{{1, 0}, {3, 3}}});
            }),
            "'checkpoint': tensor 'w' is not covered exactly once: blocks [0:2, 0:3] and [1:4, 0:3] overlap");
  EXPECT_EQ(checkpoint_message_of([&] {
              save({Box{{0, 0}, {2, 3}}, Box{{3, 0}, {1, 3}}});
            }),
            "'checkpoint': tensor 'w' is not covered exactly once: the blocks hold 9 of 12 elements");
  EXPECT_THAT(names_in(folder / "ckpt"), ElementsAre("LOCK"));  // nothing is left of them
  save({Box{{0, 0}, {4, 2}}, Box{{0, 2}, {3, 1}}, Box{{3, 2}, {1, 1}}});
}

TEST(Checkpoint, RanksThatDisagreeAreRefused) {
  const TemporaryFolder folder;
  CheckpointDir dir(folder / "ckpt");
  const std::vector<float> x(4, 1.0f);
  const Type a{Shape{{"n", 4}}, DType::F32}, b{Shape{{"n", 4}}, DType::I32};
  const std::string temporary = dir.begin(1, 0);
  const Box first{{0}, {2}}, second{{2}, {2}}, whole{{0}, {4}};
  const std::vector<std::string> reports = {
      write_shard(temporary, 0, 2, {{"w", a, first, x.data(), whole}}),
      write_shard(temporary, 1, 2, {{"w", b, second, x.data(), whole}})};
  EXPECT_EQ(
      checkpoint_message_of([&] { dir.commit(temporary, {.step = 1}, reports); }),
      "'checkpoint': tensor 'w' is f32[n:4] in one shard but i32[n:4] in 'shard-00001-of-00002.safetensors'");
}

TEST(Checkpoint, NonFiniteValuesAreRefused) {
  const TemporaryFolder folder;
  for (DType dtype : {DType::F32, DType::F64, DType::BF16}) {
    for (double value : {std::nan(""), -std::numeric_limits<double>::infinity()}) {
      const Type type{Shape{{"n", 3}}, dtype};
      std::vector<char> bytes(24, 0);
      const auto f = static_cast<float>(value);
      const bf16 h(f);
      if (dtype == DType::F32) std::memcpy(bytes.data() + 8, &f, 4);
      if (dtype == DType::F64) std::memcpy(bytes.data() + 16, &value, 8);
      if (dtype == DType::BF16) std::memcpy(bytes.data() + 4, &h, 2);
      const Box whole{{0}, {3}};
      const auto save = [&](bool allow) {
        CheckpointDir dir(folder / "ckpt", {.allow_nonfinite = allow});
        const std::string temporary = dir.begin(1, 0);
        return dir.commit(temporary, {.step = 1},
                          {write_shard(temporary, 0, 1, {{"w", type, whole, bytes.data(), whole}})});
      };
      EXPECT_EQ(checkpoint_message_of([&] { save(false); }),
                "checkpoint 1 is refused: a tensor holds NaN or infinity");
      const std::string path = save(true);
      EXPECT_EQ(
          checkpoint_message_of([&] { CheckpointReader reader(path); }),
          "checkpoint '" + path + "' holds values that are not finite; allow them explicitly to load it");
      EXPECT_FALSE(CheckpointReader(path, {.allow_nonfinite = true}).finite());
      EXPECT_EQ(newest_valid(folder / "ckpt").path, "");
      std::filesystem::remove_all(path);
    }
  }
}

TEST(Checkpoint, DifferencesFromTheModelAreListed) {
  const TemporaryFolder folder;
  CheckpointDir dir(folder / "ckpt");
  const CheckpointReader reader(ModelSave{2, 0}(dir, 1));
  std::vector<TensorInfo> wanted = model_tensors();
  wanted.erase(wanted.begin() + 3);                                        // mask
  wanted[1].type.shape = Shape{{"rows", 5}, {"cols", 8}};                  // decoder/w
  wanted[2].type.shape = Shape{{"words", 11}, {"heads", 2}, {"d_kv", 3}};  // another name of a dimension
  wanted.push_back({"head/b", {Shape{{"n", 2}}, DType::F32}});
  EXPECT_EQ(checkpoint_message_of([&] { reader.check_tensors(wanted); }),
            "checkpoint '" + reader.path() +
                "' does not fit the model (4 differences):\n"
                "  differs: decoder/w is f32[rows:5;cols:7] here, f32[rows:5;cols:8] in the model\n"
                "  differs: encoder/table is bf16[vocab:11;heads:2;d_kv:3] here, "
                "bf16[words:11;heads:2;d_kv:3] in the model\n"
                "  missing: head/b f32[n:2]\n"
                "  not in the model: mask bool[length:9]");
  for (int i = 0; i < 30; ++i) wanted.push_back({"extra" + std::to_string(i), {Shape{}, DType::F32}});
  EXPECT_THAT(checkpoint_message_of([&] { reader.check_tensors(wanted); }),
              ::testing::EndsWith("\n  and 14 more"));
}

TEST(Checkpoint, AbandonMayComeTwiceAndSaysNothing) {
  const TemporaryFolder folder;
  CheckpointDir dir(folder / "ckpt");
  const std::string temporary = dir.begin(1, 0);
  ModelSave{}.write_shards(temporary, 1);
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(dir.commit(temporary, {.step = 1, .state = "{"}, {}), UserError);
  dir.abandon(temporary);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_THAT(names_in(folder / "ckpt"), ElementsAre("LOCK"));
}

TEST(Checkpoint, WrongRequestsAreExplained) {
  const TemporaryFolder folder;
  CheckpointDir dir(folder / "ckpt");
  const CheckpointReader reader(ModelSave{2, 0}(dir, 1));
  float x[64];
  EXPECT_EQ(checkpoint_message_of([&] {
              reader.read("decoder/v", Box{{0, 0}, {1, 1}}, x);
            }),
            "checkpoint '" + reader.path() + "' has no tensor 'decoder/v'");
  EXPECT_EQ(
      checkpoint_message_of([&] {
        reader.read("decoder/w", Box{{4, 0}, {2, 7}}, x);
      }),
      "checkpoint '" + reader.path() + "': the box [4:6, 0:7] does not lie in tensor 'decoder/w' [0:5, 0:7]");
  EXPECT_THROW(dir.commit(dir.begin(2, 0), {.step = 2, .state = "{not json"}, {}), UserError);
  EXPECT_THAT(checkpoint_message_of([&] { dir.begin(3, ~std::uint64_t{0}); }),
              HasSubstr("no room for checkpoint 3 in '" + (folder / "ckpt") +
                        "': it needs 18446744073709551615 bytes, "));
  EXPECT_EQ(names_in(folder / "ckpt").size(), 3u);
}

}  // namespace
}  // namespace tessera
