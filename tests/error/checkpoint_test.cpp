// Checkpoints that cannot be loaded: the whole text, the exit code for bad data, and no file changed by
// looking.
#include "tessera/checkpoint.h"

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/sha256.h"
#include "error/files.h"
#include "error/refused.h"
#include "unit/io_checkpoint_model.h"
#include "unit/io_temporary_folder.h"

namespace tessera::testing {
namespace {

using nlohmann::json;

void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

class Checkpoints : public ::testing::Test {
 protected:
  Checkpoints() {
    set_log_level(LogLevel::Off);
    CheckpointDir dir(folder_ / "c");
    path_ = ModelSave{2, 0}(dir, 7);
  }
  ~Checkpoints() override { set_log_level(LogLevel::Info); }

  // FOLDER in the message stands for the folder of all checkpoints.
  void refuses(const std::string& text, const std::function<void()>& use, ExitCode code = ExitCode::BadData) {
    const std::string message = std::regex_replace(text, std::regex("FOLDER"), folder_ / "c");
    const auto before = contents(folder_.path());
    expect_refused(message, code, use);
    EXPECT_EQ(contents(folder_.path()), before) << "a file changed: " << message;
  }
  void refuses(const std::string& message) {
    refuses(message, [&] { CheckpointReader reader(path_); });
  }
  // A manifest that was edited, with a hash that fits.
  void edit(const std::function<void(json&)>& change) {
    json manifest = json::parse(original_manifest());
    change(manifest);
    write_file(path_ + "/MANIFEST.json", manifest.dump());
    write_file(path_ + "/MANIFEST.sha256", sha256_hex(manifest.dump()) + "  MANIFEST.json\n");
  }
  const std::string& original_manifest() {
    if (manifest_.empty()) manifest_ = read_text(real_vfs(), path_ + "/MANIFEST.json", 1 << 20);
    return manifest_;
  }

  const TemporaryFolder folder_;
  std::string path_, manifest_;
};

TEST_F(Checkpoints, FilesThatAreGoneOrChanged) {
  const std::string manifest = original_manifest();
  write_file(path_ + "/MANIFEST.json", manifest + " ");
  refuses(
      "checkpoint 'FOLDER/step-000000007' is damaged: 'MANIFEST.json' does not have the hash that stands in "
      "'MANIFEST.sha256'");
  write_file(path_ + "/MANIFEST.json", manifest);
  const std::string shard = path_ + "/shard-00001-of-00002.safetensors";
  std::filesystem::resize_file(shard, 100);
  refuses(
      "checkpoint 'FOLDER/step-000000007' is damaged: file 'shard-00001-of-00002.safetensors' has 100 bytes "
      "instead of 735");
  std::filesystem::remove(shard);
  refuses(
      "checkpoint 'FOLDER/step-000000007' is damaged: cannot open "
      "'FOLDER/step-000000007/shard-00001-of-00002.safetensors': No such file or directory");
  std::filesystem::remove(path_ + "/MANIFEST.sha256");
  refuses(
      "checkpoint 'FOLDER/step-000000007' is damaged: cannot open 'FOLDER/step-000000007/MANIFEST.sha256': "
      "No such file or directory");
  refuses("there is no checkpoint 'FOLDER/none'", [&] { CheckpointReader reader(folder_ / "c/none"); });
}

TEST_F(Checkpoints, ManifestsOfAnotherKind) {
  edit([](json& m) { m["version"] = 2; });
  refuses(
      "'FOLDER/step-000000007/MANIFEST.json': the checkpoint has format version 2, this program reads "
      "version 1");
  edit([](json& m) { m["format"] = "pickle"; });
  refuses("'FOLDER/step-000000007/MANIFEST.json': it is not the manifest of a Tessera checkpoint");
  edit([](json& m) { m["byte_order"] = "big"; });
  refuses(
      "'FOLDER/step-000000007/MANIFEST.json': the checkpoint has byte order 'big', this program reads "
      "'little'");
  edit([](json& m) { m.erase("tensors"); });
  refuses("'FOLDER/step-000000007/MANIFEST.json': field 'tensors' is missing (an array)");
  edit([](json& m) { m["tensors"][1]["dtype"] = "f16"; });
  refuses(
      "'FOLDER/step-000000007/MANIFEST.json': tensor 'decoder/w': 'f16' is no element type; use one of f32, "
      "bf16, f64, i32, bool");
  edit([](json& m) { m["finite"] = false; });
  refuses(
      "checkpoint 'FOLDER/step-000000007' holds values that are not finite; allow them explicitly to load "
      "it");
}

TEST_F(Checkpoints, TensorsThatTheModelDoesNotHave) {
  const CheckpointReader reader(path_);
  std::vector<TensorInfo> wanted = model_tensors();
  wanted[1].type.shape = Shape{{"rows", 5}, {"cols", 8}};
  wanted.push_back({"head/b", {Shape{{"n", 2}}, DType::F32}});
  refuses(
      "checkpoint 'FOLDER/step-000000007' does not fit the model (2 differences):\n  differs: decoder/w is "
      "f32[rows:5;cols:7] here, f32[rows:5;cols:8] in the model\n  missing: head/b f32[n:2]",
      [&] { reader.check_tensors(wanted); });
  float x[64];
  refuses("checkpoint 'FOLDER/step-000000007' has no tensor 'decoder/v'", [&] {
    reader.read("decoder/v", Box{{0, 0}, {1, 1}}, x);
  });
  refuses(
      "checkpoint 'FOLDER/step-000000007': the box [4:6, 0:7] does not lie in tensor 'decoder/w' [0:5, 0:7]",
      [&] {
        reader.read("decoder/w", Box{{4, 0}, {2, 7}}, x);
      },
      ExitCode::Usage);
}

}  // namespace
}  // namespace tessera::testing
