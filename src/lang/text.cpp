// Literals of the text form, printed and read.
#include "lang/text.h"

#include <charconv>
#include <cmath>

#include "base/check.h"

namespace tessera {
namespace {

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool is_word_char(char c) {
  return is_name_char(c) || std::string_view(".-/:+").find(c) != std::string_view::npos;
}

}  // namespace

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".eni") == std::string::npos) text += ".0";
  return text;
}

std::string quote(std::string_view text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
  }
  return result + '"';
}

void TextReader::skip() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
}

void TextReader::fail(std::string_view expected) {
  skip();
  const std::string_view rest = text_.substr(at_, 20);
  throw UserError(fmt::format("{}, column {}: expected {} but found {}", what_, at_ + 1, expected,
                              rest.empty() ? "the end of the line" : fmt::format("'{}'", rest)));
}

bool TextReader::done() {
  skip();
  return at_ == text_.size();
}

bool TextReader::take(std::string_view token) {
  skip();
  if (text_.substr(at_, token.size()) != token) return false;
  at_ += token.size();
  return true;
}

void TextReader::expect(std::string_view token) {
  if (!take(token)) fail(fmt::format("'{}'", token));
}

std::string TextReader::word() {
  skip();
  const std::size_t begin = at_;
  while (at_ < text_.size() && is_word_char(text_[at_])) ++at_;
  if (begin == at_) fail("a name");
  return std::string(text_.substr(begin, at_ - begin));
}

std::string TextReader::name() {
  skip();
  const std::size_t begin = at_;
  while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
  if (begin == at_) fail("a name");
  return std::string(text_.substr(begin, at_ - begin));
}

std::string TextReader::string() {
  expect("\"");
  std::string result;
  while (at_ < text_.size() && text_[at_] != '"') {
    char c = text_[at_++];
    if (c == '\\') {
      if (at_ == text_.size()) break;
      c = text_[at_++];
      if (c == 'n') c = '\n';
    }
    result += c;
  }
  expect("\"");
  return result;
}

std::int64_t TextReader::integer() {
  skip();
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
  if (error != std::errc()) fail("an integer");
  at_ = static_cast<std::size_t>(end - text_.data());
  return value;
}

Shape TextReader::shape() {
  expect("[");
  const std::size_t end = text_.find(']', at_);
  if (end == std::string_view::npos) fail("a shape that ends with ']'");
  const std::string_view inside = text_.substr(at_, end - at_);
  try {
    Shape result = parse_shape(inside);
    at_ = end + 1;
    return result;
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}, column {}: {}", what_, at_ + 1, error.what()));
  }
}

Type TextReader::type() {
  const std::string text = name();
  DType dtype{};
  try {
    dtype = parse_dtype(text);
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}, column {}: {}", what_, at_ + 1, error.what()));
  }
  return {shape(), dtype};
}

template <class T, class Read>
std::vector<T> TextReader::list(Read read) {
  std::vector<T> values;
  if (take(")")) return values;
  do {
    values.push_back(read());
  } while (take(","));
  expect(")");
  return values;
}

AttrValue TextReader::number() {
  skip();
  const char* begin = text_.data() + at_;
  const char* const end = text_.data() + text_.size();
  double value = 0;
  const auto parsed = std::from_chars(begin, end, value);
  if (parsed.ec != std::errc()) fail("a value");
  const std::string_view token(begin, static_cast<std::size_t>(parsed.ptr - begin));
  if (token.find_first_of(".eni") == std::string_view::npos) return integer();
  at_ += token.size();
  return value;
}

AttrValue TextReader::value() {
  skip();
  const char next = at_ < text_.size() ? text_[at_] : '\0';
  if (next == '"') return string();
  if (next == '[') return shape();
  if (take("true")) return true;
  if (take("false")) return false;
  if (take("ints(")) return list<std::int64_t>([this] { return integer(); });
  if (take("names(")) return list<std::string>([this] { return string(); });
  if (take("numbers(")) {
    return list<double>([this] {
      const AttrValue value = number();
      const auto* whole = std::get_if<std::int64_t>(&value);
      return whole ? static_cast<double>(*whole) : std::get<double>(value);
    });
  }
  for (DType type : {DType::F32, DType::BF16, DType::F64, DType::I32, DType::Bool}) {
    if (take(to_string(type))) return type;
  }
  return number();
}

}  // namespace tessera
