// Which elements go from whose shard to whose: the one engine behind every reshard, exchange and local move.
//
// Works in the refined index space of a Move: the receiver's box and a sender's box each restrict the refined
// dimensions; what remains is a list of boxes that are strided regions in both local buffers.
#include "spmd/pieces.h"

#include <algorithm>

#include "base/check.h"

namespace tessera {
namespace {

using RefinedBox = std::vector<Interval>;  // per refined dimension

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a >= 0 ? (a + b - 1) / b : -(-a / b);
}

// Decomposes the flat interval [low, high) over extents[k..] (row-major) into boxes; appends to `boxes`.
void decompose(const std::vector<std::int64_t>& extents, std::size_t k, std::int64_t low, std::int64_t high,
               RefinedBox& prefix, std::vector<RefinedBox>& boxes) {
  if (low >= high) return;
  std::int64_t inner = 1;
  for (std::size_t j = k + 1; j < extents.size(); ++j) inner *= extents[j];
  auto emit_rest_whole = [&](std::int64_t begin, std::int64_t end) {
    RefinedBox box = prefix;
    box.push_back({begin, end});
    for (std::size_t j = k + 1; j < extents.size(); ++j) box.push_back({0, extents[j]});
    boxes.push_back(std::move(box));
  };
  if (k + 1 == extents.size()) return emit_rest_whole(low, high);
  std::int64_t first = low / inner, last = (high - 1) / inner;
  auto emit_row = [&](std::int64_t row, std::int64_t from, std::int64_t to) {
    prefix.push_back({row, row + 1});
    decompose(extents, k + 1, from, to, prefix, boxes);
    prefix.pop_back();
  };
  if (first == last) {
    if (low % inner == 0 && high % inner == 0) return emit_rest_whole(first, first + 1);
    return emit_row(first, low - first * inner, high - first * inner);
  }
  std::int64_t begin = first, end = last + 1;
  if (low % inner != 0) {
    emit_row(first, low - first * inner, inner);
    ++begin;
  }
  if (high % inner != 0) --end;
  if (begin < end) emit_rest_whole(begin, end);
  if (high % inner != 0) emit_row(last, 0, high - last * inner);
}

// Restricts `regions` to refined indices whose tensor index lies in [part.begin, part.end).
std::vector<RefinedBox> restrict_to(const std::vector<RefinedBox>& regions, const Affine& affine,
                                    Interval part, const std::vector<std::int64_t>& extent) {
  std::int64_t low = part.begin - affine.offset, high = part.end - affine.offset;
  if (affine.parts.empty()) return low <= 0 && 0 < high ? regions : std::vector<RefinedBox>{};
  std::vector<RefinedBox> allowed;  // over the refined dimensions of affine.parts
  if (affine.parts.size() == 1) {
    const Affine::Part& p = affine.parts[0];
    std::int64_t n = extent[static_cast<std::size_t>(p.refined)];
    allowed.push_back({{std::clamp<std::int64_t>(ceil_div(low, p.stride), 0, n),
                        std::clamp<std::int64_t>(ceil_div(high, p.stride), 0, n)}});
  } else {
    std::vector<std::int64_t> extents;
    std::int64_t total = 1;
    for (const Affine::Part& p : affine.parts) {
      extents.push_back(extent[static_cast<std::size_t>(p.refined)]);
      total *= extents.back();
    }
    RefinedBox prefix;
    if (total > 0)
      decompose(extents, 0, std::max<std::int64_t>(low, 0), std::min(high, total), prefix, allowed);
  }
  std::vector<RefinedBox> result;
  for (const RefinedBox& region : regions) {
    for (const RefinedBox& a : allowed) {
      RefinedBox cut = region;
      bool empty = false;
      for (std::size_t k = 0; k < a.size(); ++k) {
        Interval& r = cut[static_cast<std::size_t>(affine.parts[k].refined)];
        r = {std::max(r.begin, a[k].begin), std::min(r.end, a[k].end)};
        empty = empty || r.begin >= r.end;
      }
      if (!empty) result.push_back(std::move(cut));
    }
  }
  return result;
}

std::vector<RefinedBox> restrict_to_box(std::vector<RefinedBox> regions, const std::vector<Affine>& affines,
                                        const Box& box, const std::vector<std::int64_t>& extent) {
  for (std::size_t d = 0; d < affines.size() && !regions.empty(); ++d) {
    regions = restrict_to(regions, affines[d], {box.start[d], box.end(d)}, extent);
  }
  return regions;
}

std::vector<std::int64_t> row_major_strides(const Box& box) {
  std::vector<std::int64_t> stride(box.size.size(), 1);
  for (std::size_t d = box.size.size(); d-- > 1;) stride[d - 1] = stride[d] * box.size[d];
  return stride;
}

// Offset of the region's first element in a local buffer, and the stride of every refined dimension there.
std::int64_t locate(const std::vector<Affine>& affines, const Box& box, const RefinedBox& region,
                    std::vector<std::int64_t>& refined_stride) {
  std::vector<std::int64_t> stride = row_major_strides(box);
  refined_stride.assign(region.size(), 0);
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < affines.size(); ++d) {
    std::int64_t index = affines[d].offset;
    for (const Affine::Part& p : affines[d].parts) {
      auto r = static_cast<std::size_t>(p.refined);
      index += p.stride * region[r].begin;
      refined_stride[r] += p.stride * stride[d];
    }
    offset += (index - box.start[d]) * stride[d];
  }
  return offset;
}

CopyPiece piece_of(const Move& move, const RefinedBox& region, const Box& from, const Box& to, int peer) {
  CopyPiece piece;
  piece.peer = peer;
  std::vector<std::int64_t> from_stride, to_stride;
  piece.from = locate(move.in, from, region, from_stride);
  piece.to = locate(move.out, to, region, to_stride);
  for (std::size_t r = 0; r < region.size(); ++r) {
    std::int64_t n = region[r].size();
    if (n == 1) continue;
    // Merge with the dimension before when both sides are contiguous across the border.
    if (!piece.extent.empty() && piece.from_stride.back() == n * from_stride[r] &&
        piece.to_stride.back() == n * to_stride[r]) {
      piece.extent.back() *= n;
      piece.from_stride.back() = from_stride[r];
      piece.to_stride.back() = to_stride[r];
      continue;
    }
    piece.extent.push_back(n);
    piece.from_stride.push_back(from_stride[r]);
    piece.to_stride.push_back(to_stride[r]);
  }
  return piece;
}

// The mesh axes that cut a tensor anywhere.
std::vector<int> cutting_axes(const Placement& placement) {
  std::vector<int> axes;
  for (const Cut& cut : placement.cuts) axes.insert(axes.end(), cut.axes.begin(), cut.axes.end());
  std::sort(axes.begin(), axes.end());
  return axes;
}

}  // namespace

Move identity_move(const Shape& shape) {
  Move move;
  for (std::size_t d = 0; d < shape.count(); ++d) {
    move.extent.push_back(shape[d].size);
    Affine affine{0, {{static_cast<int>(d), 1}}};
    move.in.push_back(affine);
    move.out.push_back(affine);
  }
  return move;
}

std::vector<CopyPiece> pieces_for(const Mesh& mesh, const Move& move, const Shape& from,
                                  const Placement& from_placement, const Shape& to,
                                  const Placement& to_placement, int rank) {
  Box mine = box_of(mesh, to, to_placement, rank);
  RefinedBox all;
  for (std::int64_t n : move.extent) all.push_back({0, n});
  bool nothing = std::any_of(move.extent.begin(), move.extent.end(), [](std::int64_t n) { return n == 0; });
  std::vector<RefinedBox> wanted;
  if (!nothing && !mine.empty()) wanted = restrict_to_box({all}, move.out, mine, move.extent);
  std::vector<CopyPiece> pieces;
  if (wanted.empty()) return pieces;
  for (int peer : mesh.group(cutting_axes(from_placement), rank)) {
    Box theirs = box_of(mesh, from, from_placement, peer);
    if (theirs.empty()) continue;
    for (const RefinedBox& region : restrict_to_box(wanted, move.in, theirs, move.extent)) {
      pieces.push_back(piece_of(move, region, theirs, mine, peer));
    }
  }
  return pieces;
}

}  // namespace tessera
