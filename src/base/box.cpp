// Boxes of global indices and the copy between two row-major buffers.
#include "tessera/box.h"

#include <algorithm>
#include <cstring>

#include "base/box_runs.h"
#include "base/check.h"

namespace tessera {
namespace {

// `count` runs of `bytes` bytes at fixed strides. The constant sizes turn into single moves.
void copy_row(const char* from, std::int64_t from_stride, char* to, std::int64_t to_stride,
              std::int64_t count, std::size_t bytes) {
  const auto loop = [&](auto copy) {
    for (std::int64_t i = 0; i < count; ++i) copy(to + i * to_stride, from + i * from_stride);
  };
  switch (bytes) {
    case 1:
      return loop([](char* t, const char* f) { *t = *f; });
    case 2:
      return loop([](char* t, const char* f) { std::memcpy(t, f, 2); });
    case 4:
      return loop([](char* t, const char* f) { std::memcpy(t, f, 4); });
    case 8:
      return loop([](char* t, const char* f) { std::memcpy(t, f, 8); });
    default:
      return loop([bytes](char* t, const char* f) { std::memcpy(t, f, bytes); });
  }
}

bool contains(const Box& outer, const Box& inner) {
  for (std::size_t d = 0; d < inner.size.size(); ++d) {
    if (inner.start[d] < outer.start[d] || inner.end(d) > outer.end(d)) return false;
  }
  return true;
}

}  // namespace

std::int64_t Box::elements() const {
  std::int64_t product = 1;
  for (std::int64_t s : size) product *= s;
  return product;
}

Box intersect(const Box& a, const Box& b) {
  TESSERA_ASSERT(a.size.size() == b.size.size(), "boxes of {} and {} dimensions meet", a.size.size(),
                 b.size.size());
  Box result = a;
  for (std::size_t d = 0; d < a.size.size(); ++d) {
    result.start[d] = std::max(a.start[d], b.start[d]);
    result.size[d] = std::max<std::int64_t>(0, std::min(a.end(d), b.end(d)) - result.start[d]);
  }
  return result;
}

std::string to_string(const Box& box) {
  std::string text = "[";
  for (std::size_t d = 0; d < box.size.size(); ++d) {
    text += fmt::format("{}{}:{}", d ? ", " : "", box.start[d], box.end(d));
  }
  return text + "]";
}

BoxRuns::BoxRuns(const Box& from_box, const Box& to_box, const Box& part) {
  std::size_t d = part.size.size();
  TESSERA_ASSERT(from_box.size.size() == d && to_box.size.size() == d,
                 "part {} of {} and {}: different numbers of dimensions", to_string(part),
                 to_string(from_box), to_string(to_box));
  if (part.empty()) return;
  TESSERA_ASSERT(contains(from_box, part) && contains(to_box, part), "part {} of {} and {}: not inside",
                 to_string(part), to_string(from_box), to_string(to_box));
  std::int64_t from_stride = 1, to_stride = 1;
  std::vector<Dimension> dimensions(d);
  while (d-- > 0) {
    dimensions[d] = {part.size[d], from_stride, to_stride};
    from_offset_ += (part.start[d] - from_box.start[d]) * from_stride;
    to_offset_ += (part.start[d] - to_box.start[d]) * to_stride;
    from_stride *= from_box.size[d];
    to_stride *= to_box.size[d];
  }
  // A dimension joins the run while everything inside it is whole in both buffers; strides tell.
  length_ = 1;
  while (!dimensions.empty()) {
    const Dimension last = dimensions.back();
    if (last.count != 1 && (last.from_stride != length_ || last.to_stride != length_)) break;
    length_ *= last.count;
    dimensions.pop_back();
  }
  if (dimensions.empty()) return;
  row_ = dimensions.back();
  dimensions.pop_back();
  outer_ = std::move(dimensions);
}

void copy_box(const void* from, const Box& from_box, void* to, const Box& to_box, const Box& part,
              std::size_t element) {
  const BoxRuns runs(from_box, to_box, part);
  const auto bytes = static_cast<std::int64_t>(element);
  runs.for_each_row([&](std::int64_t read, std::int64_t write) {
    copy_row(static_cast<const char*>(from) + read * bytes, runs.row_from_stride() * bytes,
             static_cast<char*>(to) + write * bytes, runs.row_to_stride() * bytes, runs.row_count(),
             static_cast<std::size_t>(runs.length()) * element);
  });
}

}  // namespace tessera
