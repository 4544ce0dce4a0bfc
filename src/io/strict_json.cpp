// Strict reading of JSON files that may be hostile.
#include "io/strict_json.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/check.h"
#include "base/text.h"

namespace tessera {

using nlohmann::json;

namespace {

// Builds the value as the parser reports its pieces. The library's own parser with a callback would do, but
// it looks through the whole array at the end of every element.
class StrictBuilder final : public nlohmann::json_sax<json> {
 public:
  explicit StrictBuilder(const std::string& path) : path_(path) {}

  json take() { return std::move(root_); }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(std::int64_t value) override { return put(value); }
  bool number_unsigned(std::uint64_t value) override { return put(value); }
  bool number_float(double value, const std::string&) override { return put(value); }
  bool string(std::string& value) override { return put(std::move(value)); }
  bool binary(json::binary_t&) override { return false; }  // JSON text has none
  bool start_object(std::size_t) override { return open(json::object()); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    if (open_.back()->contains(name)) {
      fail(fmt::format("the key '{}' occurs twice in one object", printable(name)));
    }
    key_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const json::exception&) override {
    fail(fmt::format("no valid JSON at byte {}", position));
  }

 private:
  static constexpr std::size_t kMostDepth = 32;

  [[noreturn]] void fail(const std::string& reason) const {
    throw UserError(fmt::format("'{}': {}", printable(path_), reason), ExitCode::BadData);
  }

  json* add(json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    json& parent = *open_.back();
    if (parent.is_object()) return &(parent[key_] = std::move(value));
    parent.push_back(std::move(value));
    return &parent.back();
  }
  bool put(json value) {
    add(std::move(value));
    return true;
  }
  bool open(json value) {
    if (open_.size() >= kMostDepth) fail("JSON nested too deeply");
    open_.push_back(add(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& path_;
  json root_;
  std::vector<json*> open_;  // the objects and arrays around the place, outermost first
  std::string key_;
};

}  // namespace

json parse_strict_json(std::string_view text, const std::string& path) {
  StrictBuilder builder(path);
  json::sax_parse(text, &builder);
  return builder.take();
}

JsonFields::JsonFields(const json& object, const std::string& path) : object_(object), path_(path) {
  if (!object.is_object()) {
    throw UserError(
        fmt::format("'{}': a JSON object is due instead of {}", printable(path), object.type_name()),
        ExitCode::BadData);
  }
}

void JsonFields::fail(const char* key, std::string_view reason) const {
  throw UserError(fmt::format("'{}': field '{}' {}", printable(path_), key, reason), ExitCode::BadData);
}

const json& JsonFields::get(const char* key, const char* type) const {
  const auto found = object_.find(key);
  if (found == object_.end()) fail(key, fmt::format("is missing ({})", type));
  return *found;
}

std::string JsonFields::text(const char* key) const {
  const json& value = get(key, "a string");
  if (!value.is_string()) fail(key, "is not a string");
  return value.get<std::string>();
}

std::int64_t JsonFields::integer(const char* key) const {
  const json& value = get(key, "an integer");
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMost)
    fail(key, "is not a non-negative integer");
  return value.get<std::int64_t>();
}

bool JsonFields::boolean(const char* key) const {
  const json& value = get(key, "true or false");
  if (!value.is_boolean()) fail(key, "is not true or false");
  return value.get<bool>();
}

const json& JsonFields::array(const char* key) const {
  const json& value = get(key, "an array");
  if (!value.is_array()) fail(key, "is not an array");
  return value;
}

const json& JsonFields::object(const char* key) const {
  const json& value = get(key, "an object");
  if (!value.is_object()) fail(key, "is not an object");
  return value;
}

std::vector<std::int64_t> JsonFields::integers(const char* key) const {
  std::vector<std::int64_t> values;
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  for (const json& value : array(key)) {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMost) {
      fail(key, "is not a list of non-negative integers");
    }
    values.push_back(value.get<std::int64_t>());
  }
  return values;
}

std::uint64_t JsonFields::hexadecimal(const char* key) const {
  const std::string digits = text(key);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (digits.size() != 16 || error != std::errc() || end != digits.data() + digits.size()) {
    fail(key, "is not a number of 16 hexadecimal digits");
  }
  return value;
}

void JsonFields::allow_only(std::initializer_list<const char*> keys) const {
  for (const auto& [key, value] : object_.items()) {
    const auto same = [&, &name = key](const char* allowed) { return name == allowed; };
    if (std::none_of(keys.begin(), keys.end(), same)) {
      throw UserError(fmt::format("'{}': unknown field '{}'", printable(path_), printable(key)),
                      ExitCode::BadData);
    }
  }
}

}  // namespace tessera
