// A strict scanner for the small part of JSON that a safetensors header may use: objects and arrays of a
// known form, strings and plain decimal integers. It never recurses and never converts through floating
// point.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

class JsonScanner {
 public:
  // `path` begins every message.
  JsonScanner(std::string_view text, std::string path) : text_(text), path_(std::move(path)) {}

  void expect(char c);                      // after white space; throws if something else comes
  bool accept(char c);                      // after white space; false leaves the place unchanged
  std::string string(std::uint64_t limit);  // valid UTF-8 of at most `limit` bytes
  std::int64_t integer();                   // digits only, below 2^63
  void expect_end();                        // only white space may follow
  [[noreturn]] void fail(std::string_view reason) const;  // UserError (BadData)

 private:
  void skip_space();
  void escape(std::string& out);
  std::uint32_t hex4();

  std::string_view text_;
  std::string path_;
  std::size_t at_ = 0;
};

}  // namespace tessera
