// nlohmann-json with the limits that hostile files need: bounded depth, no key twice, fields of a known type.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Throws UserError (BadData) "'<path>': ..." for anything that is not one JSON value of that form.
nlohmann::json parse_strict_json(std::string_view text, const std::string& path);

// Fields of an object, with the same errors. `path` names the file.
class JsonFields {
 public:
  JsonFields(const nlohmann::json& object, const std::string& path);

  std::string text(const char* key) const;
  std::int64_t integer(const char* key) const;  // 0 to 2^63 - 1
  bool boolean(const char* key) const;
  const nlohmann::json& array(const char* key) const;
  const nlohmann::json& object(const char* key) const;
  std::vector<std::int64_t> integers(const char* key) const;
  std::uint64_t hexadecimal(const char* key) const;  // 16 digits
  void allow_only(std::initializer_list<const char*> keys) const;

 private:
  const nlohmann::json& get(const char* key, const char* type) const;
  [[noreturn]] void fail(const char* key, std::string_view reason) const;

  const nlohmann::json& object_;
  const std::string& path_;
};

}  // namespace tessera
