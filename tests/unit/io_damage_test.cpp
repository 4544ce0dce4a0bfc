// Damaged and hostile checkpoints: every flipped bit and every exchanged file is found, and what a manifest
// claims is checked before it is believed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/log.h"
#include "base/sha256.h"
#include "tessera/checkpoint.h"
#include "tessera/error.h"
#include "unit/io_checkpoint_model.h"
#include "unit/io_temporary_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void spew(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

class Damage : public ::testing::Test {
 protected:
  Damage() {
    set_log_level(LogLevel::Off);
    CheckpointDir dir(folder_ / "c");
    old_ = ModelSave{4, 0}(dir, 1);
    new_ = ModelSave{4, 0}(dir, 2);
    for (const auto& entry : fs::directory_iterator(new_)) files_.push_back(entry.path().filename());
    std::sort(files_.begin(), files_.end());
  }
  ~Damage() override { set_log_level(LogLevel::Info); }

  // What newest_valid() says about step 2; it must fall back to step 1 if there is anything to say.
  std::string verdict() const {
    const NewestCheckpoint newest = newest_valid(folder_ / "c");
    EXPECT_EQ(newest.path, newest.warnings.empty() ? new_ : old_);
    return newest.warnings.empty() ? "" : newest.warnings[0];
  }

  // The error of opening step 2 after `change` to its manifest, the hash of which is made right again.
  std::string with_manifest(const std::function<void(json&)>& change) const {
    json manifest = json::parse(slurp(new_ + "/MANIFEST.json"));
    change(manifest);
    return with_manifest_text(manifest.dump());
  }
  std::string with_manifest_text(const std::string& text) const {
    const std::string original = slurp(new_ + "/MANIFEST.json"), hash = slurp(new_ + "/MANIFEST.sha256");
    spew(new_ + "/MANIFEST.json", text);
    spew(new_ + "/MANIFEST.sha256", sha256_hex(text) + "  MANIFEST.json\n");
    std::string message;
    try {
      CheckpointReader reader(new_);
    } catch (const UserError& e) {
      EXPECT_EQ(e.code(), ExitCode::BadData);
      message = e.what();
    }
    spew(new_ + "/MANIFEST.json", original);
    spew(new_ + "/MANIFEST.sha256", hash);
    const std::string prefix = "'" + new_ + "/MANIFEST.json': ";
    return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
  }

  const TemporaryFolder folder_;
  std::string old_, new_;
  std::vector<std::string> files_;
};

TEST_F(Damage, AFlippedBitInEveryThirdByteIsFound) {
  const RandomKey key = random_key(5, "flip", 0);
  int flips = 0;
  EXPECT_EQ(files_.size(), 7u);  // manifest, its hash, state, four shards
  for (const std::string& name : files_) {
    const std::string text = slurp(new_ + "/" + name);
    for (std::size_t i = 0; i < text.size(); i += 3) {
      std::string bad = text;
      bad[i] = static_cast<char>(bad[i] ^ (1 << (philox(key, i)[0] % 8)));
      spew(new_ + "/" + name, bad);
      ASSERT_NE(verdict(), "") << name << " byte " << i;
      ++flips;
    }
    spew(new_ + "/" + name, text);
  }
  EXPECT_GT(flips, 1000);
  EXPECT_EQ(verdict(), "");
}

// Without verification of the whole, reading finds it by the checksum of the piece.
TEST_F(Damage, AFlippedBitInTheDataIsFoundWhenItIsRead) {
  const json manifest = json::parse(slurp(new_ + "/MANIFEST.json"));
  int flips = 0;
  for (const json& tensor : manifest["tensors"]) {
    for (const json& block : tensor["blocks"]) {
      const std::string file = manifest["files"][block["file"].get<std::size_t>()]["name"];
      const TensorInfo info = *CheckpointReader(new_).find(tensor["name"].get<std::string>());
      const Box box{block["start"], block["size"]};
      std::string text = slurp(new_ + "/" + file);
      const std::string good = text;
      for (std::size_t i = 0; i < static_cast<std::size_t>(box.elements()) * size_of(info.type.dtype); ++i) {
        text[block["offset"].get<std::size_t>() + i] ^= 1;
        spew(new_ + "/" + file, text);
        const CheckpointReader reader(new_);
        std::vector<char> out(static_cast<std::size_t>(info.type.bytes()));
        try {
          reader.read(info.name, whole_box(info.type.shape), out.data());
          FAIL() << info.name << " byte " << i;
        } catch (const UserError& e) {
          EXPECT_EQ(e.what(), "checkpoint '" + new_ + "' is damaged: file '" + file + "', block " +
                                  to_string(box) + " of tensor '" + info.name +
                                  "', piece 0: the checksum is wrong");
        }
        text = good;
        ++flips;
      }
      spew(new_ + "/" + file, good);
    }
  }
  EXPECT_GT(flips, 200);
}

TEST_F(Damage, FilesOfAnotherLength) {
  for (const std::string& name : files_) {
    const std::string text = slurp(new_ + "/" + name);
    for (const std::string& bad : {std::string(), text.substr(0, 1), text.substr(0, text.size() / 2),
                                   text.substr(0, text.size() - 1), text + "\n", text + text}) {
      spew(new_ + "/" + name, bad);
      EXPECT_THAT(verdict(), HasSubstr("checkpoint '" + new_ + "' is damaged: "))
          << name << " " << bad.size();
    }
    spew(new_ + "/" + name, text);
  }
  spew(new_ + "/shard-00001-of-00004.safetensors", "x");
  EXPECT_THAT(verdict(),
              HasSubstr("is damaged: file 'shard-00001-of-00004.safetensors' has 1 bytes instead of "));
}

TEST_F(Damage, FilesThatAreGone) {
  for (const std::string& name : files_) {
    fs::rename(new_ + "/" + name, folder_ / "aside");
    EXPECT_EQ(verdict(), "checkpoint '" + new_ + "' is damaged: cannot open '" + new_ + "/" + name +
                             "': No such file or directory");
    fs::rename(folder_ / "aside", new_ + "/" + name);
  }
}

TEST_F(Damage, FilesThatAreExchanged) {
  const std::string a = "/shard-00002-of-00004.safetensors", b = "/shard-00003-of-00004.safetensors";
  const std::string text_a = slurp(new_ + a), text_b = slurp(new_ + b);
  spew(new_ + a, text_b);
  spew(new_ + b, text_a);
  EXPECT_THAT(verdict(), HasSubstr("is damaged"));
  spew(new_ + b, text_b);
  // The shard of an older step has the same name, size and header.
  const std::string older = slurp(old_ + a);
  ASSERT_EQ(older.size(), text_a.size());
  spew(new_ + a, older);
  EXPECT_EQ(verdict(),
            "checkpoint '" + new_ +
                "' is damaged: file 'shard-00002-of-00004.safetensors' does not have the hash that stands in "
                "the manifest");
  spew(new_ + a, text_a);
  spew(new_ + "/state.json", slurp(old_ + "/state.json"));
  EXPECT_EQ(verdict(),
            "checkpoint '" + new_ +
                "' is damaged: file 'state.json' does not have the hash that stands in the manifest");
}

TEST_F(Damage, FilesThatDoNotBelong) {
  spew(new_ + "/notes.txt", "x");
  EXPECT_EQ(verdict(), "checkpoint '" + new_ + "' is damaged: file 'notes.txt' does not belong to it");
}

TEST_F(Damage, WholeCheckpointUnderAnotherStep) {
  fs::remove_all(new_);
  fs::copy(old_, new_, fs::copy_options::recursive);
  EXPECT_EQ(verdict(), "checkpoint '" + new_ + "' is damaged: its manifest is of step 1");
}

TEST_F(Damage, LinksPipesAndDevices) {
  for (const std::string& name : files_) {
    const std::string path = new_ + "/" + name, aside = folder_ / "aside";
    fs::rename(path, aside);
    fs::create_symlink(aside, path);
    EXPECT_NE(verdict(), "") << name;
    fs::remove(path);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    EXPECT_THAT(verdict(), HasSubstr("is not a regular file")) << name;  // and it did not wait
    fs::remove(path);
    fs::create_directory(path);
    EXPECT_NE(verdict(), "") << name;
    fs::remove(path);
    fs::rename(aside, path);
  }
  EXPECT_EQ(verdict(), "");
}

// ---- Manifests that are well hashed but wrong ----

TEST_F(Damage, VersionsAndFormats) {
  EXPECT_EQ(with_manifest([](json&) {}), "");
  EXPECT_EQ(with_manifest([](json& m) { m["version"] = 2; }),
            "the checkpoint has format version 2, this program reads version 1");
  EXPECT_EQ(with_manifest([](json& m) { m["byte_order"] = "big"; }),
            "the checkpoint has byte order 'big', this program reads 'little'");
  EXPECT_EQ(with_manifest([](json& m) { m["format"] = "x"; }),
            "it is not the manifest of a Tessera checkpoint");
  EXPECT_EQ(with_manifest([](json& m) { m["run"] = "x"; }), "unknown field 'run'");
  EXPECT_EQ(with_manifest([](json& m) { m.erase("finite"); }), "field 'finite' is missing (true or false)");
}

TEST_F(Damage, NumbersThatAreNone) {
  for (const json& bad :
       {json(-1), json(1.0), json(1e3), json("4"), json(nullptr), json(18446744073709551615ull)}) {
    EXPECT_EQ(with_manifest([&](json& m) { m["step"] = bad; }), "field 'step' is not a non-negative integer");
    EXPECT_EQ(with_manifest([&](json& m) { m["tensors"][1]["blocks"][0]["start"][0] = bad; }),
              "field 'start' is not a list of non-negative integers");
  }
  EXPECT_EQ(with_manifest([](json& m) { m["tensors"][0]["hash"] = "0123"; }),
            "field 'hash' is not a number of 16 hexadecimal digits");
  EXPECT_EQ(with_manifest([](json& m) { m["files"][0]["sha256"] = "00"; }),
            "the hash of file 'shard-00000-of-00004.safetensors' has not 64 digits");
}

TEST_F(Damage, JsonForms) {
  EXPECT_EQ(with_manifest_text("{"), "no valid JSON at byte 2");
  EXPECT_EQ(with_manifest_text("[]"), "a JSON object is due instead of array");
  EXPECT_EQ(with_manifest_text(R"({"step":1,"step":2})"), "the key 'step' occurs twice in one object");
  EXPECT_EQ(with_manifest_text(std::string(100'000, '[')), "JSON nested too deeply");
  EXPECT_EQ(with_manifest_text("{\"a\":\"\xff\"}"), "no valid JSON at byte 7");
}

TEST_F(Damage, FileNamesStayInTheFolder) {
  for (const char* name : {"../c", "/etc/passwd", "a/b", ".hidden", "", "a b", "caf\xC3\xA9"}) {
    EXPECT_EQ(
        with_manifest([&](json& m) { m["files"][0]["name"] = name; }),
        "file name '" + std::string(name) + "' is not made of at most 128 letters, digits, '.', '_' and '-'");
  }
  EXPECT_THAT(with_manifest([](json& m) { m["files"][0]["name"] = "a\x1b[2J"; }), HasSubstr("'a\\x1b[2J'"));
  EXPECT_EQ(with_manifest([](json& m) { m["files"][1]["name"] = m["files"][0]["name"]; }),
            "file 'shard-00000-of-00004.safetensors' occurs twice");
  EXPECT_EQ(with_manifest([](json& m) { m["state"]["name"] = "MANIFEST.json"; }),
            "the state has the name of the manifest");
}

TEST_F(Damage, TensorsAndBlocks) {
  const auto w = [](json& m) -> json& { return m["tensors"][1]; };  // decoder/w, 5 x 7
  EXPECT_EQ(with_manifest([&](json& m) { w(m)["dtype"] = "f16"; }),
            "tensor 'decoder/w': 'f16' is no element type; use one of f32, bf16, f64, i32, bool");
  EXPECT_THAT(with_manifest([&](json& m) { w(m)["shape"] = "rows:4294967296;cols:4294967296"; }),
              HasSubstr("tensor 'decoder/w': "));
  EXPECT_EQ(with_manifest([&](json& m) { w(m)["blocks"][0]["file"] = 4; }),
            "tensor 'decoder/w': a block lies in file 4 of 4");
  EXPECT_EQ(with_manifest([&](json& m) { w(m)["blocks"][0]["size"] = {5}; }),
            "tensor 'decoder/w': a block has not the 2 dimensions of the tensor");
  EXPECT_EQ(with_manifest([&](json& m) { w(m)["blocks"][0]["start"][1] = 9223372036854775807; }),
            "tensor 'decoder/w': a block leaves the tensor in dimension 'cols'");
  EXPECT_EQ(with_manifest([&](json& m) { w(m)["blocks"][0]["size"][1] = 9223372036854775807; }),
            "tensor 'decoder/w': a block leaves the tensor in dimension 'cols'");
  EXPECT_THAT(with_manifest([&](json& m) { w(m)["blocks"].back()["offset"] = 9223372036854775807; }),
              ::testing::MatchesRegex(
                  "tensor 'decoder/w': a block ends behind the [0-9]+ bytes of 'shard-00003-of-00004."
                  "safetensors'"));
  EXPECT_EQ(with_manifest([&](json& m) { w(m)["blocks"].back()["crc"].push_back(1); }),
            "tensor 'decoder/w': a block has not one checksum for each 4 MiB");
  EXPECT_EQ(with_manifest([&](json& m) { w(m)["blocks"].erase(w(m)["blocks"].size() - 1); }),
            "tensor 'decoder/w' is not covered exactly once: the blocks hold 15 of 35 elements");
  EXPECT_EQ(with_manifest([&](json& m) { w(m)["blocks"].push_back(w(m)["blocks"].back()); }),
            "tensor 'decoder/w' is not covered exactly once: blocks [0:5, 3:7] and [0:5, 3:7] overlap");
  EXPECT_EQ(with_manifest([&](json& m) { m["tensors"].push_back(w(m)); }),
            "tensor 'decoder/w' occurs twice or out of order");
  EXPECT_EQ(with_manifest([&](json& m) {
              json copy = w(m);
              copy["name"] = "zzz";
              m["tensors"].push_back(copy);
            }),
            "two blocks lie on the same bytes of 'shard-00001-of-00004.safetensors'");
}

// Very many blocks in one tensor: refused after work that grows with their number only.
TEST_F(Damage, ManyBlocksDoNotTakeForEver) {
  json blocks = json::array();
  for (int i = 0; i < 20'000; ++i) {
    blocks.push_back(
        {{"file", 0}, {"offset", 0}, {"start", {0, 0}}, {"size", {0, 0}}, {"crc", json::array()}});
  }
  EXPECT_EQ(with_manifest([&](json& m) { m["tensors"][1]["blocks"] = blocks; }),
            "tensor 'decoder/w' is not covered exactly once: the blocks hold 0 of 35 elements");
}

TEST_F(Damage, VerifyNamesEveryProblem) {
  spew(new_ + "/a", "");
  std::string text = slurp(new_ + "/shard-00000-of-00004.safetensors");
  text[10] ^= 1;  // in its header, which loading does not need
  spew(new_ + "/shard-00000-of-00004.safetensors", text);
  EXPECT_THAT(CheckpointReader(new_).verify(),
              ::testing::ElementsAre(
                  "checkpoint '" + new_ +
                      "' is damaged: file 'shard-00000-of-00004.safetensors' does not have the hash "
                      "that stands in the manifest",
                  "checkpoint '" + new_ + "' is damaged: file 'a' does not belong to it"));
}

// A manifest that is consistent but whose recorded content hash is another one.
TEST_F(Damage, ContentHashIsCompared) {
  json manifest = json::parse(slurp(new_ + "/MANIFEST.json"));
  manifest["tensors"][1]["hash"] = "0000000000000000";
  const std::string text = manifest.dump();
  spew(new_ + "/MANIFEST.json", text);
  spew(new_ + "/MANIFEST.sha256", sha256_hex(text) + "  MANIFEST.json\n");
  const CheckpointReader reader(new_);
  EXPECT_THAT(reader.verify(VerifyDepth::Files), IsEmpty());
  EXPECT_THAT(reader.verify(),
              ::testing::ElementsAre("checkpoint '" + new_ +
                                     "' is damaged: tensor 'decoder/w' does not have the hash that "
                                     "stands in the manifest"));
}

}  // namespace
}  // namespace tessera
