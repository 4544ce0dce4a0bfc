// What tests do with tensor values: parts by box, other types, comparisons.
#pragma once

#include <string>

#include "lang/reference.h"
#include "tessera/array.h"
#include "tessera/box.h"

namespace tessera::testing {

View view_of(const Array& array);
Array converted(const Array& array, DType type);
Array part_of(const Array& array, const Box& box);              // the elements of the box
void put_part(Array& into, const Array& part, const Box& box);  // and back
Box whole_box(const Shape& shape);
bool same_bits(const Array& a, const Array& b);  // types and bytes; NaNs count as equal to NaNs

// "" when |a - b| <= absolute + relative * |b| everywhere (NaN equals NaN), else the first difference.
std::string difference(const Array& a, const Array& b, double relative, double absolute);

}  // namespace tessera::testing
