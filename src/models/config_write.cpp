// The resolved configuration as TOML, the list of all keys, and checks across sections.
#include <algorithm>

#include "base/check.h"
#include "models/config_fields.h"

namespace tessera {
namespace {

std::string section_text(const ConfigSection& section) {
  std::string text;
  for (const ConfigField& field : section.fields) {
    const std::string value = field.print();
    if (!value.empty()) text += fmt::format("{} = {}\n", field.key, value);
  }
  return text;
}

void check_data(const Config& config) {
  const DataConfig& data = config.data;
  const std::pair<const char*, const SplitConfig*> splits[] = {
      {"train", &data.train}, {"dev", &data.dev}, {"test", &data.test}};
  for (const auto& [name, split] : splits) {
    if (data.format == "parallel") {
      TESSERA_CHECK(
          split->files.size() == split->target_files.size(),
          "data.{0}.files has {1} entries but data.{0}.target_files has {2}; parallel files come in pairs",
          name, split->files.size(), split->target_files.size());
    } else {
      TESSERA_CHECK(split->target_files.empty(),
                    "data.{}.target_files is given but data.format = \"{}\" has one file "
                    "for both sides; use files, or format = \"parallel\"",
                    name, data.format);
    }
    TESSERA_CHECK(split->documents.empty() || split->documents.size() == split->files.size(),
                  "data.{0}.documents has {1} entries but data.{0}.files has {2}; each file has one", name,
                  split->documents.size(), split->files.size());
    TESSERA_CHECK(split->origins.empty() || !split->documents.empty(),
                  "data.{0}.origins chooses among data.{0}.documents, which is empty; name those files",
                  name);
  }
  if (data.train.files.empty()) return;
  const bool is_lm = config.model.kind == ModelKind::LanguageModel;
  TESSERA_CHECK(is_lm || data.format != "text",
                "model.kind = \"encoder_decoder\" needs pairs but data.format = \"text\"; use parallel, tsv "
                "or jsonl, or "
                "model.kind = \"lm\"");
  TESSERA_CHECK(!is_lm || data.format == "text" || data.format == "jsonl",
                "model.kind = \"lm\" needs text but data.format = \"{}\" holds pairs; use text or jsonl, or "
                "model.kind = "
                "\"encoder_decoder\"",
                data.format);
  if (config.model.positions != Positions::Learned) return;
  TESSERA_CHECK(
      data.max_target_length <= config.model.max_length,
      "data.max_target_length = {} is more than the {} learned positions of model.max_length; make them fit",
      data.max_target_length, config.model.max_length);
  TESSERA_CHECK(
      is_lm || data.max_source_length <= config.model.max_length,
      "data.max_source_length = {} is more than the {} learned positions of model.max_length; make them fit",
      data.max_source_length, config.model.max_length);
}

void check_mesh(const MeshConfig& mesh) {
  try {
    for (const Dim& axis : parse_shape(mesh.shape)) {
      TESSERA_CHECK(axis.size >= 1, "axis '{}' has size {}; it must be at least 1", axis.name, axis.size);
    }
  } catch (const UserError& error) {
    throw UserError(fmt::format("mesh.shape = \"{}\": {}", mesh.shape, error.what()));
  }
}

}  // namespace

void check(const Config& config) {
  check(config.model);
  check_data(config);
  check_mesh(config.mesh);
  const DataConfig& data = config.data;
  TESSERA_CHECK(!data.tokenizer.empty() || data.train.files.empty() || data.vocab_size <= config.model.vocab,
                "data.vocab_size = {} does not fit into model.vocab = {}; make them equal", data.vocab_size,
                config.model.vocab);
  TESSERA_CHECK(data.batch_sentences == 0 || config.train.micro_batches <= data.batch_sentences,
                "train.micro_batches = {} is more than the {} rows of data.batch_sentences; use fewer",
                config.train.micro_batches, data.batch_sentences);
  const std::int64_t longest = std::max(data.max_source_length, data.max_target_length);
  TESSERA_CHECK(
      data.batch_sentences > 0 || data.train.files.empty() || data.batch_tokens >= longest,
      "data.batch_tokens = {} does not hold one sequence of {} tokens; raise it or lower the lengths",
      data.batch_tokens, longest);
}

std::string to_toml(const Config& config) {
  Config copy = config;  // fields refer to what they may change
  std::string text;
  for (const ConfigSection& section : sections_of(copy)) {
    if (!text.empty()) text += "\n";
    text += fmt::format("[{}]\n", section.path);
    if (section.path == "model" && !copy.preset.empty())
      text += fmt::format("preset = {}\n", toml_quoted(copy.preset));
    text += section_text(section);
    if (section.path != "optimizer.adafactor") continue;
    for (ParameterGroup& group : copy.optimizer.config.groups) {
      text += "\n[[optimizer.groups]]\n" + section_text(group_fields(group));
    }
  }
  return text;
}

std::string describe_config() {
  Config config;
  std::string text;
  const auto describe = [&](const std::string& title, const ConfigSection& section) {
    text += title + "\n";
    for (const ConfigField& field : section.fields) {
      const std::string value = field.print();
      text += fmt::format("  {:<28} {} ({}{})\n", field.key, field.about, field.type,
                          value.empty() ? "" : fmt::format("; default {}", value));
    }
  };
  for (const ConfigSection& section : sections_of(config)) describe("[" + section.path + "]", section);
  ParameterGroup group;
  describe("[[optimizer.groups]]", group_fields(group));
  return text;
}

}  // namespace tessera
