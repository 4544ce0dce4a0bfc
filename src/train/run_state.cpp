// The state of a run in checkpoints, and comparisons between runs.
#include "train/run_state.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/check.h"

namespace tessera {
namespace {

constexpr int kVersion = 1;

// Settings of the model that may change between runs of the same parameters; wide_attention_logits is one of
// older versions.
bool may_change(const std::string& key) {
  static const std::set<std::string> keys{"model.preset",
                                          "model.dtype",
                                          "model.dropout",
                                          "model.dropout_shared_over_length",
                                          "model.label_smoothing",
                                          "model.z_loss",
                                          "model.wide_attention_logits",
                                          "model.recompute"};
  return keys.count(key) != 0;
}

void compare(const std::string& what, const std::string& there, const std::string& here,
             Strings& differences) {
  if (there != here) {
    differences.push_back(fmt::format("{}: {} there, {} here", what, there.empty() ? "none" : there,
                                      here.empty() ? "none" : here));
  }
}

// The settings whose names begin with `prefix`.
void compare_section(const RunState& state, const Config& config, const std::string& prefix,
                     const std::function<bool(const std::string&)>& skip, Strings& differences) {
  const auto here = flat_config(config);
  const auto value = [](const std::map<std::string, std::string>& values, const std::string& key) {
    const auto at = values.find(key);
    return at == values.end() ? std::string() : at->second;
  };
  std::set<std::string> keys;
  for (const auto* side : {&here, &state.config}) {
    for (const auto& [key, text] : *side) {
      if (key.rfind(prefix, 0) == 0 && !skip(key)) keys.insert(key);
    }
  }
  for (const std::string& key : keys) compare(key, value(state.config, key), value(here, key), differences);
}

}  // namespace

std::map<std::string, std::string> flat_config(const Config& config) {
  std::map<std::string, std::string> result;
  std::istringstream lines(to_toml(config));
  std::string section;
  int group = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("[[", 0) == 0) {
      section = fmt::format("{}.{}", line.substr(2, line.size() - 4), group++);
    } else if (!line.empty() && line[0] == '[') {
      section = line.substr(1, line.size() - 2);
    } else if (const std::size_t at = line.find(" = "); at != std::string::npos) {
      result[section + "." + line.substr(0, at)] = line.substr(at + 3);
    }
  }
  return result;
}

std::string to_json(const RunState& state) {
  const nlohmann::json json{{"version", kVersion},
                            {"step", state.step},
                            {"tokens", state.tokens},
                            {"skipped", state.skipped},
                            {"skipped_in_a_row", state.skipped_in_a_row},
                            {"seconds", state.seconds},
                            {"data", state.data},
                            {"tokenizer", state.tokenizer},
                            {"config", state.config}};
  return json.dump(1);
}

RunState parse_run_state(const std::string& text, const std::string& path) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    const int version = json.at("version").get<int>();
    if (version != kVersion) {
      throw UserError(fmt::format("checkpoint '{}': its state has version {}, this program reads version {}",
                                  path, version, kVersion),
                      ExitCode::BadData);
    }
    RunState state;
    state.step = json.at("step").get<std::int64_t>();
    state.tokens = json.at("tokens").get<std::int64_t>();
    state.skipped = json.at("skipped").get<std::int64_t>();
    state.skipped_in_a_row = json.at("skipped_in_a_row").get<std::int64_t>();
    state.seconds = json.at("seconds").get<double>();
    state.data = json.at("data").get<std::string>();
    state.tokenizer = json.at("tokenizer").get<std::string>();
    state.config = json.at("config").get<std::map<std::string, std::string>>();
    return state;
  } catch (const nlohmann::json::exception& error) {
    throw UserError(fmt::format("checkpoint '{}': its state.json was not written by a training run ({})",
                                path, error.what()),
                    ExitCode::BadData);
  }
}

Strings model_differences(const RunState& state, const Config& config, const Tokenizer& tokenizer) {
  Strings differences;
  Config resolved = config;
  resolved.model.vocab = tokenizer.vocabulary();
  compare_section(state, resolved, "model.", may_change, differences);
  compare("tokenizer (SHA-256)", state.tokenizer.substr(0, 16), tokenizer.hash().substr(0, 16), differences);
  return differences;
}

Strings run_differences(const RunState& state, const Config& config, const Tokenizer& tokenizer,
                        const std::string& data) {
  Strings differences = model_differences(state, config, tokenizer);
  const auto only = [](const std::string& wanted) {
    return [wanted](const std::string& key) { return key != wanted; };
  };
  compare_section(state, config, "train.", only("train.seed"), differences);
  compare_section(state, config, "optimizer.", only("optimizer.kind"), differences);
  if (state.data == data) return differences;
  compare("data (SHA-256 of texts and batches)", state.data.substr(0, 16), data.substr(0, 16), differences);
  const auto other = [](const std::string& key) {
    return key == "data.cache" || key == "data.tokenizer" || key.rfind("data.dev", 0) == 0 ||
           key.rfind("data.test", 0) == 0;
  };
  compare_section(state, config, "data.", other, differences);
  return differences;
}

void refuse_differences(const Strings& differences, const std::string& checkpoint,
                        const std::string& advice) {
  if (differences.empty()) return;
  throw UserError(fmt::format("checkpoint '{}' does not belong to this configuration:\n  {}{}", checkpoint,
                              fmt::join(differences, "\n  "), advice.empty() ? "" : "\n" + advice),
                  ExitCode::BadData);
}

}  // namespace tessera
