// Attributes of an op: a typed map from names to plain values that prints to text and parses back.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/dim.h"

namespace tessera {

using Ints = std::vector<std::int64_t>;
using Doubles = std::vector<double>;
using Strings = std::vector<std::string>;
using AttrValue = std::variant<bool, std::int64_t, double, std::string, DType, Shape, Ints, Doubles, Strings>;

class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<const std::string, AttrValue>> values) : values_(values) {}

  bool has(std::string_view name) const { return values_.find(name) != values_.end(); }
  void set(const std::string& name, AttrValue value) { values_[name] = std::move(value); }

  // Throws InternalError when the attribute is absent or of another type: only builders set attributes.
  bool flag(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  DType dtype(std::string_view name) const;
  const Shape& shape(std::string_view name) const;
  const Ints& integers(std::string_view name) const;
  const Doubles& numbers(std::string_view name) const;
  const Strings& texts(std::string_view name) const;

  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }
  bool operator==(const Attrs&) const = default;

 private:
  template <class T>
  const T& get(std::string_view name) const;
  std::map<std::string, AttrValue, std::less<>> values_;
};

// One value as text: true, 3, 0.5, "name", f32, [a:2;b:3], ints(1,2), numbers(0.5), names("a","b").
std::string to_string(const AttrValue& value);

}  // namespace tessera
