// Which elements go from whose shard to whose: the one engine behind every reshard, exchange and local move.
//
// Works in the refined index space of a Move: the receiver's box and a sender's box each restrict the refined
// dimensions; what remains is a list of boxes that are strided regions in both local buffers.
#include "spmd/pieces.h"

#include <algorithm>

#include "base/check.h"
#include "spmd/cuts.h"

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

// Restricts one refined dimension of the regions; those that become empty go.
void restrict_dimension(std::vector<RefinedBox>& regions, std::size_t refined, Interval allowed) {
  std::erase_if(regions, [&](RefinedBox& region) {
    Interval& r = region[refined];
    r = {std::max(r.begin, allowed.begin), std::min(r.end, allowed.end)};
    return r.begin >= r.end;
  });
}

// Restricts several refined dimensions that together number a tensor dimension: what is allowed of them is a
// list of boxes.
std::vector<RefinedBox> restrict_mixed(const std::vector<RefinedBox>& regions, const Affine& affine,
                                       std::int64_t low, std::int64_t high,
                                       const std::vector<std::int64_t>& extent) {
  std::vector<std::int64_t> extents;
  std::int64_t total = 1;
  for (const Affine::Part& p : affine.parts) {
    extents.push_back(extent[static_cast<std::size_t>(p.refined)]);
    total *= extents.back();
  }
  std::vector<RefinedBox> allowed;  // over the refined dimensions of affine.parts
  RefinedBox prefix;
  if (total > 0)
    decompose(extents, 0, std::max<std::int64_t>(low, 0), std::min(high, total), prefix, allowed);
  std::vector<RefinedBox> result;
  for (const RefinedBox& region : regions) {
    for (const RefinedBox& a : allowed) {
      std::vector<RefinedBox> cut{region};
      for (std::size_t k = 0; k < a.size() && !cut.empty(); ++k)
        restrict_dimension(cut, static_cast<std::size_t>(affine.parts[k].refined), a[k]);
      if (!cut.empty()) result.push_back(std::move(cut[0]));
    }
  }
  return result;
}

// Restricts the regions to refined indices whose tensor indices lie in the box.
void restrict_to_box(std::vector<RefinedBox>& regions, const std::vector<Affine>& affines, const Box& box,
                     const std::vector<std::int64_t>& extent) {
  for (std::size_t d = 0; d < affines.size() && !regions.empty(); ++d) {
    const Affine& affine = affines[d];
    const std::int64_t low = box.start[d] - affine.offset, high = box.end(d) - affine.offset;
    if (affine.parts.empty()) {
      if (low > 0 || high <= 0) regions.clear();
    } else if (affine.parts.size() == 1) {
      const Affine::Part& p = affine.parts[0];
      restrict_dimension(regions, static_cast<std::size_t>(p.refined),
                         {ceil_div(low, p.stride), ceil_div(high, p.stride)});
    } else {
      regions = restrict_mixed(regions, affine, low, high, extent);
    }
  }
}

// Offset of the region's first element in a local buffer, and the stride of every refined dimension there.
std::int64_t locate(const std::vector<Affine>& affines, const Box& box, const RefinedBox& region,
                    std::vector<std::int64_t>& refined_stride) {
  refined_stride.assign(region.size(), 0);
  std::int64_t offset = 0, stride = 1;
  for (std::size_t d = affines.size(); d-- > 0; stride *= box.size[d]) {
    std::int64_t index = affines[d].offset;
    for (const Affine::Part& p : affines[d].parts) {
      auto r = static_cast<std::size_t>(p.refined);
      index += p.stride * region[r].begin;
      refined_stride[r] += p.stride * stride;
    }
    offset += (index - box.start[d]) * stride;
  }
  return offset;
}

// Makes pieces; keeps its memory from one to the next: there are as many as peers.
class PieceMaker {
 public:
  PieceMaker(const Move& move, const Box& to) : move_(move), to_(to) {}

  CopyPiece piece(const RefinedBox& region, const Box& from, int peer) {
    CopyPiece piece;
    piece.peer = peer;
    piece.from = locate(move_.in, from, region, from_stride_);
    piece.to = locate(move_.out, to_, region, to_stride_);
    merged_.clear();
    for (std::size_t r = 0; r < region.size(); ++r) {
      const std::int64_t n = region[r].size();
      if (n == 1) continue;
      // Merge with the dimension before when both sides are contiguous across the border.
      if (!merged_.empty() && merged_.back().from == n * from_stride_[r] &&
          merged_.back().to == n * to_stride_[r]) {
        merged_.back() = {merged_.back().extent * n, from_stride_[r], to_stride_[r]};
      } else {
        merged_.push_back({n, from_stride_[r], to_stride_[r]});
      }
    }
    for (auto* list : {&piece.extent, &piece.from_stride, &piece.to_stride}) list->reserve(merged_.size());
    for (const Merged& m : merged_) {
      piece.extent.push_back(m.extent);
      piece.from_stride.push_back(m.from);
      piece.to_stride.push_back(m.to);
    }
    return piece;
  }

 private:
  struct Merged {
    std::int64_t extent = 1, from = 0, to = 0;
  };
  const Move& move_;
  const Box& to_;
  std::vector<std::int64_t> from_stride_, to_stride_;
  std::vector<Merged> merged_;
};

// The indices of one tensor dimension that a region touches.
Interval span_of(const Affine& affine, const RefinedBox& region) {
  Interval span{affine.offset, affine.offset + 1};
  for (const Affine::Part& p : affine.parts) {
    const Interval& r = region[static_cast<std::size_t>(p.refined)];
    span.begin += p.stride * r.begin;
    span.end += p.stride * (r.end - 1);
  }
  return span;
}

// The ranks whose part of a tensor may hold elements of the region: those of `rank`'s group along the axes
// that cut the tensor whose interval meets the region's in every dimension. Found by their parts, not by
// asking all.
class Owners {
 public:
  Owners(const Mesh& mesh, const Shape& shape, const Placement& placement, int rank)
      : mesh_(mesh), shape_(shape), placement_(placement), at_(mesh.coordinates(rank)) {}

  void add(const std::vector<Affine>& affines, const RefinedBox& region) { add(affines, region, 0); }

  std::vector<int> sorted() {
    std::sort(found_.begin(), found_.end());
    found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
    return std::move(found_);
  }

 private:
  void add(const std::vector<Affine>& affines, const RefinedBox& region, std::size_t d) {
    if (d == shape_.count()) return found_.push_back(mesh_.rank_of(at_));
    const Cut& cut = placement_.cuts[d];
    if (cut.whole()) return add(affines, region, d + 1);
    const Interval span = span_of(affines[d], region);
    const std::int64_t parts = mesh_.flat_size(cut.axes);
    const std::int64_t last = part_at(shape_[d].size, cut.grain, parts, span.end - 1);
    for (std::int64_t part = part_at(shape_[d].size, cut.grain, parts, span.begin); part <= last; ++part) {
      std::int64_t rest = part;
      for (std::size_t k = cut.axes.size(); k-- > 0;) {
        const int axis = cut.axes[k];
        at_[static_cast<std::size_t>(axis)] = static_cast<int>(rest % mesh_.axis_size(axis));
        rest /= mesh_.axis_size(axis);
      }
      add(affines, region, d + 1);
    }
  }

  const Mesh& mesh_;
  const Shape& shape_;
  const Placement& placement_;
  std::vector<int> at_;  // coordinates of the owner at hand
  std::vector<int> found_;
};

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
  std::vector<CopyPiece> pieces;
  if (nothing || mine.empty()) return pieces;
  std::vector<RefinedBox> wanted{std::move(all)}, regions;
  restrict_to_box(wanted, move.out, mine, move.extent);
  Owners owners(mesh, from, from_placement, rank);
  for (const RefinedBox& region : wanted) owners.add(move.in, region);
  const std::vector<int> peers = owners.sorted();
  PieceMaker maker(move, mine);
  pieces.reserve(peers.size());
  for (int peer : peers) {
    const Box theirs = box_of(mesh, from, from_placement, peer);
    regions = wanted;
    restrict_to_box(regions, move.in, theirs, move.extent);
    for (const RefinedBox& region : regions) pieces.push_back(maker.piece(region, theirs, peer));
  }
  return pieces;
}

}  // namespace tessera
