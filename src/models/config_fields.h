// The keys of configuration files: one list that reading, printing and describing share.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/config.h"
#include "toml++/toml.h"

namespace tessera {

struct ConfigField {
  std::string key;
  std::string type;  // "whole number from 1 to 10000", "one of a, b"
  std::string about;
  // Takes the value; returns what is wrong with it, to follow the key's name in a message, or "".
  std::function<std::string(const toml::node& value)> read;
  std::function<std::string()> print;  // the current value as TOML, "" when there is nothing to print
};

struct ConfigSection {
  std::string path;  // "model", "optimizer.adafactor"
  std::vector<ConfigField> fields;

  const ConfigField* find(std::string_view key) const;
};

// Fields refer to `config`, which must outlive them. Groups of the optimizer are fields of ParameterGroup,
// made apart.
std::vector<ConfigSection> sections_of(Config& config);
ConfigSection group_fields(ParameterGroup& group);

std::string toml_text(const toml::node& value);  // for messages, shortened
std::string toml_quoted(const std::string& text);

}  // namespace tessera
