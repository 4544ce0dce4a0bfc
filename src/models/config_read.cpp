// Reading configuration files: documents are applied one after another, so later ones win and every message
// can name the file and line of the value at fault.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/check.h"
#include "models/config_fields.h"

namespace tessera {
namespace {

constexpr std::size_t kLargestFile = 1 << 20;

// One parsed text: a file, or an override given on the command line.
struct Document {
  std::string name;
  bool is_override = false;
  toml::table table;

  std::string place(const toml::node& node) const {
    return is_override ? name : fmt::format("{}:{}", name, node.source().begin.line);
  }
  [[noreturn]] void fail(const toml::node& node, const std::string& message) const {
    throw UserError(fmt::format("{}: {}", place(node), message));
  }
};

std::string suggestion(std::string_view name, const std::vector<std::string>& known) {
  const std::string near = nearest_name(name, known);
  return near.empty() ? fmt::format("; known are {}", fmt::join(known, ", "))
                      : fmt::format("; did you mean '{}'?", near);
}

class Reader {
 public:
  explicit Reader(Config& config) : config_(config), sections_(sections_of(config)) {}

  void file(const std::string& path) {
    const std::filesystem::path file(path);
    std::error_code error;
    const std::string canonical = std::filesystem::weakly_canonical(file, error).string();
    TESSERA_CHECK(std::find(open_.begin(), open_.end(), canonical) == open_.end(),
                  "{}: the file includes itself (through {}); remove one of the includes", path,
                  fmt::join(open_, ", "));
    open_.push_back(canonical);
    text(contents(path), path);
    open_.pop_back();
  }

  void text(std::string_view text, const std::string& name) {
    Document document{name, false, {}};
    try {
      document.table = toml::parse(text, name);
    } catch (const toml::parse_error& error) {
      const toml::source_position at = error.source().begin;
      throw UserError(fmt::format("{}:{}:{}: not TOML: {}", name, at.line, at.column, error.description()));
    }
    apply(document);
  }

  void override_text(const std::string& text) {
    const std::size_t equals = text.find('=');
    TESSERA_CHECK(equals != std::string::npos && equals > 0,
                  "--set {}: expected section.key=value, for example train.steps=100", text);
    const std::string key = text.substr(0, equals), value = text.substr(equals + 1);
    const bool is_key =
        key.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789.") == std::string::npos &&
        key.front() != '.' && key.back() != '.' && key.find("..") == std::string::npos;
    TESSERA_CHECK(is_key, "--set {}: '{}' is no key; expected section.key=value", text, key);
    Document document{"--set " + text, true, {}};
    try {
      document.table = toml::parse(fmt::format("{} = {}", key, value));
    } catch (const toml::parse_error&) {
      document.table = toml::parse(fmt::format("{} = {}", key, toml_quoted(value)));
    }
    apply(document);
  }

 private:
  static std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    TESSERA_CHECK(file.good(), "cannot read configuration '{}': {}", path, std::strerror(errno));
    std::string text(kLargestFile + 1, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    TESSERA_CHECK(!file.bad() && !(file.fail() && !file.eof()), "cannot read configuration '{}': {}", path,
                  std::strerror(errno));
    text.resize(static_cast<std::size_t>(file.gcount()));
    TESSERA_CHECK(text.size() <= kLargestFile,
                  "configuration '{}' is larger than 1 MiB; it is not what it should be", path);
    return text;
  }

  void apply(const Document& document) {
    if (const toml::node* include = document.table.get("include")) includes(document, *include);
    if (const toml::node* name = document.table.at_path("model.preset").node()) apply_preset(document, *name);
    for (const auto& [key, value] : document.table) {
      if (key == "include") continue;
      section(document, std::string(key.str()), value);
    }
  }

  void includes(const Document& document, const toml::node& value) {
    std::vector<std::string> paths;
    if (value.is_string()) paths.push_back(value.as_string()->get());
    if (value.is_array()) {
      for (const toml::node& item : *value.as_array()) {
        if (!item.is_string())
          document.fail(item, "include must be a list of file names, not " + toml_text(value));
        paths.push_back(item.as_string()->get());
      }
    }
    if (document.is_override || (!value.is_string() && !value.is_array())) {
      document.fail(value,
                    "include must be a list of file names at the top of a file, not " + toml_text(value));
    }
    for (const std::string& path : paths) {
      const std::filesystem::path full = std::filesystem::path(document.name).parent_path() / path;
      if (!std::filesystem::exists(full)) {
        document.fail(value, fmt::format("include '{}': there is no file {}", path, full.string()));
      }
      file(full.string());
    }
  }

  void apply_preset(const Document& document, const toml::node& name) {
    if (!name.is_string()) document.fail(name, "model.preset must be a string, not " + toml_text(name));
    try {
      const Preset& chosen = preset(name.as_string()->get());
      config_.preset = chosen.name;
      config_.model = chosen.model;
      config_.optimizer.config.kind = parse_optimizer_kind(chosen.optimizer);
      config_.optimizer.schedule = Schedule::parse(chosen.schedule);
      config_.data.vocab_size = chosen.model.vocab;
    } catch (const UserError& error) {
      document.fail(name, fmt::format("model.preset: {}", error.what()));
    }
  }

  const ConfigSection* find(const std::string& path) const {
    for (const ConfigSection& s : sections_) {
      if (s.path == path) return &s;
    }
    return nullptr;
  }

  // Names of the keys and sub-sections that may follow `path`.
  std::vector<std::string> known_keys(const std::string& path) const {
    std::vector<std::string> names;
    if (const ConfigSection* known = find(path)) {
      for (const ConfigField& field : known->fields) names.push_back(field.key);
    }
    const std::string prefix = path.empty() ? "" : path + ".";
    for (const ConfigSection& s : sections_) {
      if (s.path.rfind(prefix, 0) == 0 && s.path.find('.', prefix.size()) == std::string::npos &&
          s.path != path) {
        names.push_back(s.path.substr(prefix.size()));
      }
    }
    if (path == "model") names.push_back("preset");
    if (path == "optimizer") names.push_back("groups");
    return names;
  }

  void section(const Document& document, const std::string& path, const toml::node& value) {
    const ConfigSection* known = find(path);
    if (!known) {
      document.fail(value, fmt::format("there is no section [{}]{}", path, suggestion(path, known_keys(""))));
    }
    if (!value.is_table())
      document.fail(value, fmt::format("{} must be a section, not {}", path, toml_text(value)));
    for (const auto& [key, item] : *value.as_table()) entry(document, *known, std::string(key.str()), item);
  }

  void entry(const Document& document, const ConfigSection& known, const std::string& key,
             const toml::node& value) {
    const std::string path = known.path + "." + key;
    if (path == "model.preset") return;
    if (path == "optimizer.groups") return groups(document, value);
    if (find(path)) return section(document, path, value);
    const ConfigField* field = known.find(key);
    if (!field) {
      document.fail(value, fmt::format("{} is no key of [{}]{}", path, known.path,
                                       suggestion(key, known_keys(known.path))));
    }
    read(document, *field, path, value);
  }

  static void read(const Document& document, const ConfigField& field, const std::string& path,
                   const toml::node& value) {
    const std::string wrong = field.read(value);
    if (!wrong.empty()) document.fail(value, path + wrong);
  }

  void groups(const Document& document, const toml::node& value) {
    const bool tables =
        value.is_array() && std::all_of(value.as_array()->begin(), value.as_array()->end(),
                                        [](const toml::node& item) { return item.is_table(); });
    if (!tables) {
      document.fail(value, "optimizer.groups must be tables [[optimizer.groups]], not " + toml_text(value));
    }
    std::vector<ParameterGroup> list;
    for (const toml::node& item : *value.as_array()) {
      ParameterGroup group;
      const ConfigSection known = group_fields(group);
      for (const auto& [key, field_value] : *item.as_table()) {
        const ConfigField* field = known.find(std::string(key.str()));
        const std::string path = known.path + "." + std::string(key.str());
        if (!field) {
          std::vector<std::string> names;
          for (const ConfigField& f : known.fields) names.push_back(f.key);
          document.fail(field_value, fmt::format("{} is no key of [[{}]]{}", path, known.path,
                                                 suggestion(std::string(key.str()), names)));
        }
        read(document, *field, path, field_value);
      }
      if (group.pattern.empty())
        document.fail(item, "a group of [[optimizer.groups]] needs a pattern of names");
      list.push_back(std::move(group));
    }
    config_.optimizer.config.groups = std::move(list);
  }

  Config& config_;
  std::vector<ConfigSection> sections_;
  std::vector<std::string> open_;  // files being read, the outer ones first
};

Config finish(Config&& config, Reader& reader, const std::string& name, const Strings& overrides) {
  for (const std::string& text : overrides) reader.override_text(text);
  try {
    check(config);
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", name, error.what()));
  }
  return std::move(config);
}

}  // namespace

Config load_config(const std::string& path, const Strings& overrides) {
  Config config;
  Reader reader(config);
  reader.file(path);
  return finish(std::move(config), reader, path, overrides);
}

Config parse_config(std::string_view text, const std::string& name, const Strings& overrides) {
  Config config;
  Reader reader(config);
  reader.text(text, name);
  return finish(std::move(config), reader, name, overrides);
}

void set_config(Config& config, const std::string& override_text) {
  Config changed = config;
  Reader(changed).override_text(override_text);
  try {
    check(changed);
  } catch (const UserError& error) {
    throw UserError(fmt::format("--set {}: {}", override_text, error.what()));
  }
  config = std::move(changed);
}

}  // namespace tessera
