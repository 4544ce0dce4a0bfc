// Dimensions and shapes: checks, look-up, broadcasting and their text form.
#include "tessera/dim.h"

#include <algorithm>
#include <charconv>

#include "base/check.h"

namespace tessera {
namespace {

constexpr std::int64_t kLargest = std::int64_t{1} << 62;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}
bool is_separator(char c) {
  return c == ';' || c == ',' || is_space(c);
}

bool is_name(std::string_view text) {
  return !text.empty() && is_letter(text[0]) &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_letter(c) || is_digit(c); });
}

void check_dims(const std::vector<Dim>& dims) {
  std::int64_t product = 1;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const Dim& dim = dims[i];
    TESSERA_CHECK(
        is_name(dim.name),
        "shape: '{}' is not a dimension name; use letters, digits and '_', not beginning with a digit",
        dim.name);
    TESSERA_CHECK(dim.size >= 0, "shape: dimension '{}' has the negative size {}; sizes start at 0", dim.name,
                  dim.size);
    for (std::size_t j = 0; j < i; ++j) {
      TESSERA_CHECK(dims[j].name != dim.name,
                    "shape: dimension '{}' occurs twice (sizes {} and {}); rename one of them", dim.name,
                    dims[j].size, dim.size);
    }
    // Empty dimensions count as one here, so that cutting or gathering another dimension cannot overflow
    // either.
    const std::int64_t size = std::max<std::int64_t>(dim.size, 1);
    TESSERA_CHECK(product <= kLargest / size, "shape: {} has more than 2^62 elements; check the sizes",
                  fmt::format("'{}:{}' and the dimensions before it", dim.name, dim.size));
    product *= size;
  }
}

// Reads "name:size" at `at` and moves `at` behind it.
Dim read_dim(std::string_view text, std::size_t& at) {
  const std::size_t begin = at;
  while (at < text.size() && (is_letter(text[at]) || is_digit(text[at]))) ++at;
  Dim dim{std::string(text.substr(begin, at - begin)), 0};
  TESSERA_CHECK(is_name(dim.name), "shape '{}': expected a dimension name at position {}; write name:size",
                text, begin + 1);
  while (at < text.size() && is_space(text[at])) ++at;
  TESSERA_CHECK(at < text.size() && text[at] == ':',
                "shape '{}': expected ':' and a size after '{}' at position {}; write name:size", text,
                dim.name, at + 1);
  ++at;
  while (at < text.size() && is_space(text[at])) ++at;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), dim.size);
  TESSERA_CHECK(error == std::errc(), "shape '{}': expected the size of '{}' at position {}; write name:size",
                text, dim.name, at + 1);
  at = static_cast<std::size_t>(end - text.data());
  TESSERA_CHECK(at == text.size() || is_separator(text[at]),
                "shape '{}': expected ';' between dimensions at position {}", text, at + 1);
  return dim;
}

bool covers(const Shape& big, const Shape& small) {
  return std::all_of(small.begin(), small.end(), [&](const Dim& d) { return big.has(d.name); });
}

}  // namespace

Shape::Shape(std::initializer_list<Dim> dims) : dims_(dims) {
  check_dims(dims_);
}

Shape::Shape(std::vector<Dim> dims) : dims_(std::move(dims)) {
  check_dims(dims_);
}

std::int64_t Shape::elements() const {
  std::int64_t product = 1;
  for (const Dim& d : dims_) product *= d.size;
  return product;
}

int Shape::find(std::string_view name) const {
  for (std::size_t i = 0; i < dims_.size(); ++i) {
    if (dims_[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

const Dim& Shape::get(std::string_view name) const {
  const int at = find(name);
  TESSERA_CHECK(at >= 0, "there is no dimension '{}' in [{}]", name, to_string(*this));
  return dims_[static_cast<std::size_t>(at)];
}

Shape Shape::with(const Dim& dim) const {
  std::vector<Dim> dims = dims_;
  dims.push_back(dim);
  return Shape(std::move(dims));
}

Shape Shape::without(std::string_view name) const {
  get(name);
  std::vector<Dim> dims;
  for (const Dim& d : dims_) {
    if (d.name != name) dims.push_back(d);
  }
  return Shape(std::move(dims));
}

Shape Shape::replaced(std::string_view name, const Dim& dim) const {
  get(name);
  std::vector<Dim> dims = dims_;
  dims[static_cast<std::size_t>(find(name))] = dim;
  return Shape(std::move(dims));
}

bool same_dims(const Shape& a, const Shape& b) {
  return a.count() == b.count() && std::all_of(a.begin(), a.end(), [&](const Dim& d) {
           const int at = b.find(d.name);
           return at >= 0 && b[static_cast<std::size_t>(at)].size == d.size;
         });
}

Shape broadcast_shape(const Shape& a, const Shape& b) {
  for (const Dim& d : b) {
    const int at = a.find(d.name);
    TESSERA_CHECK(at < 0 || a[static_cast<std::size_t>(at)].size == d.size,
                  "dimension '{}' has size {} in [{}] but {} in [{}]; rename one or fix the size", d.name,
                  a[static_cast<std::size_t>(at)].size, to_string(a), d.size, to_string(b));
  }
  if (covers(a, b)) return a;
  if (covers(b, a)) return b;
  std::vector<Dim> dims = a.dims();
  for (const Dim& d : b) {
    if (!a.has(d.name)) dims.push_back(d);
  }
  return Shape(std::move(dims));
}

std::string to_string(const Shape& shape) {
  std::string text;
  for (const Dim& d : shape) text += fmt::format("{}{}:{}", text.empty() ? "" : ";", d.name, d.size);
  return text;
}

Shape parse_shape(std::string_view text) {
  std::vector<Dim> dims;
  std::size_t at = 0;
  while (true) {
    while (at < text.size() && is_separator(text[at])) ++at;
    if (at == text.size()) break;
    dims.push_back(read_dim(text, at));
  }
  return Shape(std::move(dims));
}

std::string to_string(const Type& type) {
  return fmt::format("{}[{}]", to_string(type.dtype), to_string(type.shape));
}

}  // namespace tessera
