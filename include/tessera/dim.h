// Dimensions and shapes. A dimension is a name and a size; a shape is a list of dimensions with different
// names. Plain values: copy them freely, use them from any thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/dtype.h"

namespace tessera {

struct Dim {
  std::string name;       // matches [A-Za-z_][A-Za-z0-9_]*
  std::int64_t size = 0;  // >= 0

  bool operator==(const Dim&) const = default;
};

class Shape {
 public:
  Shape() = default;  // a scalar
  // Throws UserError on a bad name, a negative size, a name that occurs twice or a product beyond 2^62.
  Shape(std::initializer_list<Dim> dims);
  explicit Shape(std::vector<Dim> dims);

  const std::vector<Dim>& dims() const { return dims_; }
  std::size_t count() const { return dims_.size(); }  // number of dimensions
  bool is_scalar() const { return dims_.empty(); }
  const Dim& operator[](std::size_t i) const { return dims_[i]; }
  auto begin() const { return dims_.begin(); }
  auto end() const { return dims_.end(); }

  std::int64_t elements() const;          // product of the sizes, 1 for a scalar
  int find(std::string_view name) const;  // position, or -1
  bool has(std::string_view name) const { return find(name) >= 0; }
  const Dim& get(std::string_view name) const;  // throws UserError when absent
  std::int64_t size(std::string_view name) const { return get(name).size; }

  Shape with(const Dim& dim) const;                             // appended
  Shape without(std::string_view name) const;                   // throws UserError when absent
  Shape replaced(std::string_view name, const Dim& dim) const;  // same position; throws UserError when absent

  bool operator==(const Shape&) const = default;  // order matters

 private:
  std::vector<Dim> dims_;
};

// True when both have the same dimensions in any order.
bool same_dims(const Shape& a, const Shape& b);

// Output shape of a broadcasting op: if one holds all dimensions of the other, that one; else the dimensions
// of `a`, then those of `b` that `a` lacks. Throws UserError if a shared name has two sizes.
Shape broadcast_shape(const Shape& a, const Shape& b);

// "batch:128;hidden:1024"; "" for a scalar. parse_shape also takes ',' and white space between dimensions.
std::string to_string(const Shape& shape);
Shape parse_shape(std::string_view text);  // throws UserError with the position of the fault

struct Type {
  Shape shape;
  DType dtype = DType::F32;

  bool operator==(const Type&) const = default;
  std::int64_t bytes() const { return shape.elements() * static_cast<std::int64_t>(size_of(dtype)); }
};

std::string to_string(const Type& type);  // "f32[batch:128;hidden:1024]"

}  // namespace tessera
