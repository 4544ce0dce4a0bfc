// Strict reading of JSON files that may be hostile.
#include "io/strict_json.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>

#include "base/check.h"
#include "base/text.h"

namespace tessera {

using nlohmann::json;

json parse_strict_json(std::string_view text, const std::string& path) {
  constexpr int kMostDepth = 32;
  const auto fail = [&](const std::string& reason) {
    throw UserError(fmt::format("'{}': {}", printable(path), reason), ExitCode::BadData);
  };
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const json::parser_callback_t watch = [&](int depth, json::parse_event_t event, json& value) {
    if (depth > kMostDepth) fail("JSON nested too deeply");
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      fail(fmt::format("the key '{}' occurs twice in one object", printable(value.get<std::string>())));
    }
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (const json::parse_error& e) {
    fail(fmt::format("no valid JSON at byte {}", e.byte));
  }
  return {};
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
