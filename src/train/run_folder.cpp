// Files of a run folder.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "base/text.h"
#include "train/run_state.h"

namespace tessera {
namespace {

constexpr const char* kConfigFile = "/config.resolved.toml";

// Replaces the file at once: a reader sees the old or the new text.
void replace_file(const std::string& path, const std::string& text) {
  const std::string fresh = fmt::format("{}.new.{}", path, getpid());
  std::ofstream out(fresh, std::ios::binary);
  out << text;
  out.close();
  if (!out || std::rename(fresh.c_str(), path.c_str()) != 0) {
    throw SystemError(fmt::format("cannot write '{}': {}", path, std::strerror(errno)));
  }
}

}  // namespace

void make_folders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw SystemError(fmt::format("cannot make the folder '{}': {}", path, error.message()));
}

RunFolder::RunFolder(std::string path) : path_(std::move(path)) {
  TESSERA_CHECK(!path_.empty(), "train.output is empty; it names the run folder");
}

Config RunFolder::load_config(const Strings& overrides) const {
  if (!std::filesystem::exists(path_ + kConfigFile)) {
    throw UserError(
        fmt::format("'{}' is no run folder: it holds no config.resolved.toml; run 'tessera train' first",
                    printable(path_)),
        ExitCode::BadData);
  }
  Config config = tessera::load_config(path_ + kConfigFile, overrides);
  config.train.output = path_;
  return config;
}

void RunFolder::write_config(const Config& config) const {
  replace_file(path_ + kConfigFile, to_toml(config));
}

void RunFolder::write_tokenizer(const Tokenizer& tokenizer) const {
  if (std::filesystem::exists(this->tokenizer()) &&
      Tokenizer::load(this->tokenizer()).hash() == tokenizer.hash()) {
    return;
  }
  replace_file(this->tokenizer(), tokenizer.model());
}

void RunFolder::add_command(const std::string& command_line) const {
  if (command_line.empty()) return;
  std::ofstream out(path_ + "/command.txt", std::ios::app);
  out << command_line << '\n';
}

}  // namespace tessera
