// Copying and combining strided boxes.
#include "comm/pieces.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"

namespace tessera {
namespace {

constexpr std::size_t kMaxDims = 16;

// Calls f(from offset, to offset) for every index of all dimensions but the last `inner`.
template <class F>
void for_each_outer(const Piece& piece, std::size_t inner, F f) {
  const std::size_t dims = piece.extent.size() - std::min(inner, piece.extent.size());
  TESSERA_ASSERT(dims <= kMaxDims, "a box of {} dimensions", dims);
  std::array<std::int64_t, kMaxDims> index{};
  std::int64_t from = piece.from, to = piece.to;
  while (true) {
    f(from, to);
    std::size_t d = dims;
    for (; d > 0; --d) {
      from += piece.from_stride[d - 1];
      to += piece.to_stride[d - 1];
      if (++index[d - 1] < piece.extent[d - 1]) break;
      index[d - 1] = 0;
      from -= piece.from_stride[d - 1] * piece.extent[d - 1];
      to -= piece.to_stride[d - 1] * piece.extent[d - 1];
    }
    if (d == 0) return;
  }
}

bool inner_contiguous(const Piece& piece) {
  return piece.extent.empty() || (piece.from_stride.back() == 1 && piece.to_stride.back() == 1);
}

template <class Word>
void copy_strided(const Piece& piece, const void* from, void* to) {
  const auto* source = static_cast<const Word*>(from);
  auto* target = static_cast<Word*>(to);
  const std::int64_t count = piece.extent.back(), from_stride = piece.from_stride.back(),
                     to_stride = piece.to_stride.back();
  for_each_outer(piece, 1, [&](std::int64_t f, std::int64_t t) {
    for (std::int64_t i = 0; i < count; ++i) target[t + i * to_stride] = source[f + i * from_stride];
  });
}

}  // namespace

void simplify(Piece& piece) {
  std::vector<std::int64_t> extent, from_stride, to_stride;
  for (std::size_t d = 0; d < piece.extent.size(); ++d) {
    const std::int64_t size = piece.extent[d], from = piece.from_stride[d], to = piece.to_stride[d];
    if (size == 1) continue;
    if (!extent.empty() && from_stride.back() == from * size && to_stride.back() == to * size) {
      extent.back() *= size;
      from_stride.back() = from;
      to_stride.back() = to;
    } else {
      extent.push_back(size);
      from_stride.push_back(from);
      to_stride.push_back(to);
    }
  }
  piece.extent = std::move(extent);
  piece.from_stride = std::move(from_stride);
  piece.to_stride = std::move(to_stride);
}

bool is_contiguous(const Piece& piece) {
  return piece.extent.size() <= 1 && inner_contiguous(piece);
}

bool is_empty(const Piece& piece) {
  return elements(piece) == 0;
}

std::int64_t elements(const Piece& piece) {
  std::int64_t count = 1;
  for (std::int64_t size : piece.extent) count *= size;
  return count;
}

void copy_piece(const Piece& piece, const void* from, void* to, std::size_t size) {
  if (is_empty(piece)) return;
  if (inner_contiguous(piece)) {
    const auto bytes = size * static_cast<std::size_t>(piece.extent.empty() ? 1 : piece.extent.back());
    for_each_outer(piece, 1, [&](std::int64_t f, std::int64_t t) {
      std::memcpy(static_cast<char*>(to) + t * static_cast<std::int64_t>(size),
                  static_cast<const char*>(from) + f * static_cast<std::int64_t>(size), bytes);
    });
    return;
  }
  switch (size) {
    case 1:
      return copy_strided<std::uint8_t>(piece, from, to);
    case 2:
      return copy_strided<std::uint16_t>(piece, from, to);
    case 4:
      return copy_strided<std::uint32_t>(piece, from, to);
    case 8:
      return copy_strided<std::uint64_t>(piece, from, to);
    default:
      TESSERA_ASSERT(false, "an element of {} bytes", size);
  }
}

bool stays(const Piece& piece, const void* from, const void* to, std::size_t size) {
  const auto bytes = static_cast<std::int64_t>(size);
  return piece.from_stride == piece.to_stride && static_cast<const char*>(from) + piece.from * bytes ==
                                                     static_cast<const char*>(to) + piece.to * bytes;
}

void swap_piece(const Piece& piece, void* from, void* to, std::size_t size, std::int64_t index,
                std::int64_t parts) {
  TESSERA_ASSERT(is_contiguous(piece), "a swap of {} dimensions", piece.extent.size());
  const std::int64_t count = elements(piece), bytes = static_cast<std::int64_t>(size);
  const std::int64_t begin = slice_begin(count, parts, index) * bytes,
                     end = slice_begin(count, parts, index + 1) * bytes;
  char *theirs = static_cast<char*>(from) + piece.from * bytes,
       *mine = static_cast<char*>(to) + piece.to * bytes;
  std::array<char, 8192> block;  // stays in the first cache
  for (std::int64_t at = begin; at < end; at += static_cast<std::int64_t>(block.size())) {
    const std::size_t n = std::min(block.size(), static_cast<std::size_t>(end - at));
    std::memcpy(block.data(), mine + at, n);
    std::memcpy(mine + at, theirs + at, n);
    std::memcpy(theirs + at, block.data(), n);
  }
}

std::int64_t slice_begin(std::int64_t count, std::int64_t parts, std::int64_t index) {
  constexpr std::int64_t kGrain = 64;
  const std::int64_t units = (count + kGrain - 1) / kGrain;
  return std::min(count, kGrain * (index * units / parts));
}

void combine_piece(const Piece& piece, Combine combine, DType dtype, std::span<const void* const> from,
                   void* to) {
  if (is_empty(piece)) return;
  if (inner_contiguous(piece)) {
    const std::int64_t count = piece.extent.empty() ? 1 : piece.extent.back();
    for_each_outer(piece, 1, [&](std::int64_t f, std::int64_t t) {
      combine_run(combine, dtype, from, f, to, t, count);
    });
    return;
  }
  for_each_outer(piece, 0,
                 [&](std::int64_t f, std::int64_t t) { combine_run(combine, dtype, from, f, to, t, 1); });
}

}  // namespace tessera
