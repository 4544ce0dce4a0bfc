// Pieces of the text form: literals that print and parse back without loss. See docs/language.md for the
// grammar.
#pragma once

#include <string>
#include <string_view>

#include "tessera/attrs.h"
#include "tessera/dim.h"

namespace tessera {

std::string number_text(
    double value);  // shortest text that reads back as the same double, never an integer's
std::string quote(std::string_view text);  // with \" \\ and \n

// Reads tokens from one line. Every read skips blanks first; every failure throws UserError that begins with
// `what` and names the column.
class TextReader {
 public:
  TextReader(std::string_view text, std::string what) : text_(text), what_(std::move(what)) {}

  bool done();
  bool take(std::string_view token);  // consumes the token if it comes next
  void expect(std::string_view token);
  std::string word();    // letters, digits and any of _ . - / : +
  std::string name();    // letters, digits, _
  std::string string();  // a quoted string
  std::int64_t integer();
  Shape shape();  // [a:2;b:3]
  Type type();    // f32[a:2;b:3]
  AttrValue value();
  [[noreturn]] void fail(std::string_view expected);

 private:
  void skip();
  template <class T, class Read>
  std::vector<T> list(Read read);
  AttrValue number();

  std::string_view text_;
  std::string what_;
  std::size_t at_ = 0;
};

}  // namespace tessera
