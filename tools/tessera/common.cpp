// What the sub-commands share: the configuration with its overrides, and lines in and out.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iostream>

#include "command.h"
#include "tessera/error.h"
#include "tessera/models.h"

namespace tessera::command {

std::vector<std::string> Common::overrides() const {
  std::vector<std::string> all = set;
  auto quoted = [](const std::string& text) { return fmt::format("\"{}\"", text); };
  if (!mesh.empty()) all.push_back("mesh.shape=" + quoted(mesh));
  if (!layout.empty()) all.push_back("mesh.layout=" + quoted(layout == "none" ? "" : layout));
  if (!memory.empty()) all.push_back("mesh.memory=" + quoted(memory));
  if (!dtype.empty()) all.push_back("model.dtype=" + quoted(dtype));
  if (seed >= 0) all.push_back(fmt::format("train.seed={}", seed));
  return all;
}

Config Common::config() const {
  if (!preset.empty()) {
    if (!source.empty())
      throw UserError(
          fmt::format("give a configuration file or --preset, not both ('{}' and '{}')", source, preset));
    // A preset stands for the whole experiment: its batch, length, mesh and layout too.
    const Preset& named = tessera::preset(preset);
    std::string text = fmt::format("[model]\npreset = \"{}\"\n", preset);
    if (named.batch > 0) {
      text += fmt::format("[data]\nbatch_sentences = {0}\nmax_source_length = {1}\nmax_target_length = {1}\n",
                          named.batch, named.length);
    }
    if (mesh.empty())
      text += fmt::format("[mesh]\nshape = \"{}\"\nlayout = \"{}\"\n", named.mesh, named.layout);
    return parse_config(text, "--preset", overrides());
  }
  if (source.empty())
    throw UserError("give a configuration file, or --preset NAME (`tessera presets` lists them)");
  std::string file = std::filesystem::is_directory(source) ? source + "/config.resolved.toml" : source;
  return load_config(file, overrides());
}

std::vector<std::string> read_lines(const std::string& path) {
  std::ifstream file;
  bool standard = path.empty() || path == "-";
  if (!standard) {
    file.open(path);
    if (!file)
      throw UserError(fmt::format("cannot read '{}'; give a text file, or - for standard input", path),
                      ExitCode::BadData);
  }
  std::istream& in = standard ? std::cin : file;
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(std::move(line));
  }
  return lines;
}

void write_lines(const std::string& path, const std::vector<std::string>& lines) {
  std::ofstream file;
  bool standard = path.empty() || path == "-";
  if (!standard) {
    file.open(path);
    if (!file) throw SystemError(fmt::format("cannot write '{}'", path));
  }
  std::ostream& out = standard ? std::cout : file;
  for (const std::string& line : lines) out << line << '\n';
  out.flush();
  if (!out) throw SystemError(fmt::format("writing '{}' failed", standard ? "standard output" : path));
}

}  // namespace tessera::command
