// Boxes of global indices and the copy between two row-major buffers.
#include "tessera/box.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace tessera {
namespace {

// `count` runs of `bytes` bytes at fixed strides. The constant sizes turn into single moves.
void copy_runs(const char* from, std::size_t from_stride, char* to, std::size_t to_stride, std::int64_t count,
               std::size_t bytes) {
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

// A row-major buffer seen from the first element of the part.
struct Side {
  std::vector<std::size_t> stride;  // bytes per step of a dimension
  std::size_t offset = 0;

  Side(const Box& box, const Box& part, std::size_t element) : stride(box.size.size()) {
    std::size_t bytes = element;
    for (std::size_t d = stride.size(); d-- > 0;) {
      stride[d] = bytes;
      offset += static_cast<std::size_t>(part.start[d] - box.start[d]) * bytes;
      bytes *= static_cast<std::size_t>(box.size[d]);
    }
  }
};

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

void copy_box(const void* from, const Box& from_box, void* to, const Box& to_box, const Box& part,
              std::size_t element) {
  const std::size_t rank = part.size.size();
  TESSERA_ASSERT(from_box.size.size() == rank && to_box.size.size() == rank,
                 "copy of {} from {} to {}: different numbers of dimensions", to_string(part),
                 to_string(from_box), to_string(to_box));
  if (part.empty()) return;
  TESSERA_ASSERT(contains(from_box, part) && contains(to_box, part), "copy of {} from {} to {}: not inside",
                 to_string(part), to_string(from_box), to_string(to_box));
  const Side source(from_box, part, element), target(to_box, part, element);

  // Dimensions [outer, rank) are one contiguous run on both sides: all but the first of them are whole in
  // both.
  std::size_t outer = rank, run = element;
  while (outer > 0) {
    --outer;
    run *= static_cast<std::size_t>(part.size[outer]);
    if (part.size[outer] != from_box.size[outer] || part.size[outer] != to_box.size[outer]) break;
  }
  const char* read = static_cast<const char*>(from) + source.offset;
  char* write = static_cast<char*>(to) + target.offset;
  if (outer == 0) {
    std::memcpy(write, read, run);
    return;
  }

  // The last outer dimension is the inner loop; the ones before it count up like an odometer.
  const std::size_t inner = outer - 1;
  std::vector<std::int64_t> index(inner, 0);
  while (true) {
    copy_runs(read, source.stride[inner], write, target.stride[inner], part.size[inner], run);
    std::size_t d = inner;
    for (; d > 0; --d) {
      read += source.stride[d - 1];
      write += target.stride[d - 1];
      if (++index[d - 1] < part.size[d - 1]) break;
      index[d - 1] = 0;
      read -= source.stride[d - 1] * static_cast<std::size_t>(part.size[d - 1]);
      write -= target.stride[d - 1] * static_cast<std::size_t>(part.size[d - 1]);
    }
    if (d == 0) return;
  }
}

}  // namespace tessera
