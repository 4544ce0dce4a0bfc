// The four formats, their consistency checks and the policy on ill-formed UTF-8.
#include "data/examples.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "data/data_error.h"
#include "data/utf8.h"

namespace tessera::data {
namespace {

void check_source(const DataSource& source) {
  const bool parallel = source.format == DataSource::Format::Parallel;
  if (source.files.empty()) bad_data("data: no files; name at least one in the configuration");
  if (parallel && source.files.size() != source.target_files.size()) {
    bad_data("data: {} source files but {} target files; parallel files come in pairs", source.files.size(),
             source.target_files.size());
  }
  if (!parallel && !source.target_files.empty()) {
    bad_data(
        "data: target files are given, but only parallel files have them; TSV and JSON lines hold both "
        "sides");
  }
  if (!source.document_files.empty() && source.document_files.size() != source.files.size()) {
    bad_data("data: {} files but {} document files; give one per file or none", source.files.size(),
             source.document_files.size());
  }
  if (!source.origins.empty() && source.document_files.empty()) {
    bad_data("data: origins are chosen ('{}', ...), but there are no document files to read them from",
             printable(source.origins.front()));
  }
  if (source.max_line_bytes < 1)
    bad_data("data: max_line_bytes is {}, but a line has at least 1 byte", source.max_line_bytes);
}

bool has_origin(std::string_view document, const std::vector<std::string>& origins) {
  return std::any_of(origins.begin(), origins.end(), [&](const std::string& origin) {
    return document.size() > origin.size() && document.starts_with(origin) && document[origin.size()] == ':';
  });
}

}  // namespace

ExampleReader::ExampleReader(const DataSource& source) : source_(source) {
  check_source(source_);
}

bool ExampleReader::has_target() const {
  return source_.format != DataSource::Format::Text &&
         !(source_.format == DataSource::Format::Jsonl && source_.target_key.empty());
}

std::string ExampleReader::where() const {
  return main_ ? fmt::format("line {} of '{}'", main_->number(), printable(main_->path()))
               : "the start of the data";
}

bool ExampleReader::next_file() {
  if (file_ == source_.files.size()) {
    if (!source_.origins.empty() && !any_origin_) {
      bad_data("data: no line of '{}' has an origin '{}'; its lines look like 'origin:document'",
               printable(source_.document_files.front()), printable(source_.origins.front()));
    }
    return false;
  }
  const std::size_t i = file_++;
  main_ = std::make_unique<LineReader>(source_.files[i], source_.max_line_bytes);
  if (!source_.target_files.empty()) {
    target_ = std::make_unique<LineReader>(source_.target_files[i], source_.max_line_bytes);
  }
  if (!source_.document_files.empty()) {
    documents_ = std::make_unique<LineReader>(source_.document_files[i], source_.max_line_bytes);
  }
  return true;
}

// The main file is at its end: so must be those beside it.
void ExampleReader::check_parallel_end() const {
  for (LineReader* other : {target_.get(), documents_.get()}) {
    std::string_view line;
    if (other == nullptr || !other->next(line)) continue;
    std::int64_t count = other->number();
    while (other->next(line)) count = other->number();
    bad_data("data: '{}' has {} lines but '{}' has {}; they must match line by line",
             printable(main_->path()), main_->number(), printable(other->path()), count);
  }
}

void ExampleReader::split_tsv(std::string_view line, TextExample& example) const {
  const std::size_t tab = line.find('\t');
  if (tab == std::string_view::npos || line.find('\t', tab + 1) != std::string_view::npos) {
    bad_data("data: {} has {} columns; TSV needs two, source <tab> target", where(),
             1 + std::count(line.begin(), line.end(), '\t'));
  }
  example.source = line.substr(0, tab);
  example.target = line.substr(tab + 1);
}

void ExampleReader::split_json(std::string_view line, TextExample& example) const {
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(line);
  } catch (const nlohmann::json::parse_error& error) {
    bad_data("data: {} is not JSON (byte {} of the line); each line must be one object", where(), error.byte);
  }
  if (!object.is_object())
    bad_data("data: {} is JSON but not an object; each line must be one object", where());
  const auto text_of = [&](const std::string& key) {
    const auto hit = object.find(key);
    if (hit == object.end())
      bad_data("data: {} has no key '{}'; set the keys in the configuration", where(), printable(key));
    if (!hit->is_string())
      bad_data("data: '{}' in {} is a {}, not a string", printable(key), where(), hit->type_name());
    return hit->get<std::string>();
  };
  example.source = text_of(source_.source_key);
  if (has_target()) example.target = text_of(source_.target_key);
}

bool ExampleReader::check_utf8(const LineReader& reader, std::string& text, std::int64_t offset_in_line) {
  const std::size_t bad = first_invalid_utf8(text);
  if (bad == kAllValid) return true;
  if (source_.invalid_utf8 == InvalidUtf8::Error) {
    bad_data(
        "data: line {} of '{}' is not UTF-8 at byte {} of the file; convert it, or choose invalid_utf8 = "
        "replace or skip",
        reader.number(), printable(reader.path()),
        reader.offset() + offset_in_line + static_cast<std::int64_t>(bad));
  }
  if (source_.invalid_utf8 == InvalidUtf8::Skip) return false;
  text = replace_invalid_utf8(text);
  ++replaced_;
  return true;
}

// False at the end of the file. `wanted` is false for a row that is left out.
bool ExampleReader::read_row(TextExample& example, bool& wanted) {
  std::string_view line, other;
  if (!main_->next(line)) {
    check_parallel_end();
    return false;
  }
  const auto must_follow = [&](LineReader& reader) {
    if (reader.next(other)) return;
    std::int64_t count = main_->number();
    while (main_->next(line)) count = main_->number();
    bad_data("data: '{}' has {} lines but '{}' has {}; they must match line by line",
             printable(main_->path()), count, printable(reader.path()), reader.number());
  };
  if (documents_) {
    must_follow(*documents_);
    wanted = source_.origins.empty() || has_origin(other, source_.origins);
    any_origin_ = any_origin_ || wanted;
  }
  if (target_) must_follow(*target_);
  if (!wanted) return true;
  example.source = line;
  example.target.clear();
  switch (source_.format) {
    case DataSource::Format::Text:
      break;
    case DataSource::Format::Parallel:
      example.target = other;
      break;
    case DataSource::Format::Tsv:
      split_tsv(line, example);
      break;
    case DataSource::Format::Jsonl: {
      std::string whole(
          line);  // checked before parsing: the parser would report ill-formed text in its own way
      wanted = check_utf8(*main_, whole, 0);
      if (wanted) split_json(whole, example);
      break;
    }
  }
  const std::int64_t target_offset =
      source_.format == DataSource::Format::Tsv ? static_cast<std::int64_t>(example.source.size()) + 1 : 0;
  if (wanted && source_.format != DataSource::Format::Jsonl) {
    wanted = check_utf8(*main_, example.source, 0) &&
             check_utf8(target_ ? *target_ : *main_, example.target, target_offset);
  }
  if (!wanted) ++skipped_;
  return true;
}

bool ExampleReader::next(TextExample& example) {
  while (main_ || next_file()) {
    bool wanted = true;
    if (!read_row(example, wanted)) {
      main_ = nullptr;
      target_ = nullptr;
      documents_ = nullptr;
    } else if (wanted) {
      return true;
    }
  }
  return false;
}

}  // namespace tessera::data

namespace tessera {
namespace {

template <class Value, std::size_t N>
Value parse_choice(const std::pair<const char*, Value> (&names)[N], std::string_view text, const char* what) {
  std::string known;
  for (const auto& [name, value] : names) {
    if (text == name) return value;
    known += known.empty() ? name : std::string(", ") + name;
  }
  throw UserError(fmt::format("data: unknown {} '{}'; use one of: {}", what, printable(text), known));
}

constexpr std::pair<const char*, InvalidUtf8> kInvalidUtf8[] = {
    {"error", InvalidUtf8::Error}, {"replace", InvalidUtf8::Replace}, {"skip", InvalidUtf8::Skip}};
constexpr std::pair<const char*, TooLong> kTooLong[] = {
    {"drop", TooLong::Drop}, {"cut", TooLong::Cut}, {"error", TooLong::Error}};

}  // namespace

const char* to_string(InvalidUtf8 policy) {
  return kInvalidUtf8[static_cast<int>(policy)].first;
}
const char* to_string(TooLong policy) {
  return kTooLong[static_cast<int>(policy)].first;
}
InvalidUtf8 parse_invalid_utf8(std::string_view text) {
  return parse_choice(kInvalidUtf8, text, "invalid_utf8 policy");
}
TooLong parse_too_long(std::string_view text) {
  return parse_choice(kTooLong, text, "too_long policy");
}

DataSource text_files(std::vector<std::string> files) {
  DataSource source;
  source.files = std::move(files);
  return source;
}

DataSource parallel_files(std::vector<std::string> files, std::vector<std::string> target_files) {
  DataSource source = text_files(std::move(files));
  source.format = DataSource::Format::Parallel;
  source.target_files = std::move(target_files);
  return source;
}

DataSource tsv_files(std::vector<std::string> files) {
  DataSource source = text_files(std::move(files));
  source.format = DataSource::Format::Tsv;
  return source;
}

DataSource jsonl_files(std::vector<std::string> files, std::string source_key, std::string target_key) {
  DataSource source = text_files(std::move(files));
  source.format = DataSource::Format::Jsonl;
  source.source_key = std::move(source_key);
  source.target_key = std::move(target_key);
  return source;
}

std::vector<TextExample> read_examples(const DataSource& source) {
  std::vector<TextExample> examples;
  data::ExampleReader reader(source);
  for (TextExample example; reader.next(example);) examples.push_back(example);
  return examples;
}

}  // namespace tessera
