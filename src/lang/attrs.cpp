// Typed look-up of attributes and the text form of one value.
#include "tessera/attrs.h"

#include "base/check.h"
#include "lang/text.h"

namespace tessera {
namespace {

template <class T, class Print>
std::string list(const char* kind, const std::vector<T>& values, Print print) {
  std::string text = fmt::format("{}(", kind);
  for (std::size_t i = 0; i < values.size(); ++i) text += (i ? "," : "") + print(values[i]);
  return text + ")";
}

struct Printer {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return number_text(value); }
  std::string operator()(const std::string& value) const { return quote(value); }
  std::string operator()(DType value) const { return to_string(value); }
  std::string operator()(const Shape& value) const { return fmt::format("[{}]", to_string(value)); }
  std::string operator()(const Ints& values) const { return list("ints", values, *this); }
  std::string operator()(const Doubles& values) const { return list("numbers", values, *this); }
  std::string operator()(const Strings& values) const { return list("names", values, *this); }
};

}  // namespace

template <class T>
const T& Attrs::get(std::string_view name) const {
  const auto it = values_.find(name);
  TESSERA_ASSERT(it != values_.end(), "attribute '{}' is absent", name);
  const T* value = std::get_if<T>(&it->second);
  TESSERA_ASSERT(value, "attribute '{}' has another type: {}", name, to_string(it->second));
  return *value;
}

bool Attrs::flag(std::string_view name) const {
  return get<bool>(name);
}
std::int64_t Attrs::integer(std::string_view name) const {
  return get<std::int64_t>(name);
}
double Attrs::number(std::string_view name) const {
  return get<double>(name);
}
const std::string& Attrs::text(std::string_view name) const {
  return get<std::string>(name);
}
DType Attrs::dtype(std::string_view name) const {
  return get<DType>(name);
}
const Shape& Attrs::shape(std::string_view name) const {
  return get<Shape>(name);
}
const Ints& Attrs::integers(std::string_view name) const {
  return get<Ints>(name);
}
const Doubles& Attrs::numbers(std::string_view name) const {
  return get<Doubles>(name);
}
const Strings& Attrs::texts(std::string_view name) const {
  return get<Strings>(name);
}

std::string to_string(const AttrValue& value) {
  return std::visit(Printer{}, value);
}

}  // namespace tessera
