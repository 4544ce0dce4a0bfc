// reshape, and merge and split_dim on top of it. Both shapes are cut into groups of neighbouring dimensions
// of equal product; in a group, all suffix products together form the refined dimensions of one Move. Where
// they do not divide each other (4x6 -> 3x8) the group takes several Moves, one for each run that stays
// within one row on both sides.
#include <algorithm>

#include "ops/infer.h"
#include "ops/records.h"

namespace tessera {
namespace {

// Dimensions [in_begin, in_end) become [out_begin, out_end).
struct Group {
  std::size_t in_begin, in_end, out_begin, out_end;
};

bool has_unit_after(const Shape& shape, std::size_t position, const std::string& name) {
  const int at = shape.find(name);
  return at > static_cast<int>(position) && shape[static_cast<std::size_t>(at)].size == 1;
}

// The smallest group that starts at dimensions i and j.
Group next_group(const Shape& in, const Shape& out, std::size_t i, std::size_t j) {
  const Group unit_in{i, i + 1, j, j}, unit_out{i, i, j, j + 1};
  if (j == out.count()) return {i, in.count(), j, j};
  if (i == in.count()) return {i, i, j, out.count()};
  if (in[i].size == 1 && out[j].size == 1 && in[i].name != out[j].name) {
    if (has_unit_after(out, j, in[i].name)) return unit_out;
    if (has_unit_after(in, i, out[j].name)) return unit_in;
  }
  if (in[i].size != out[j].size) {
    if (in[i].size == 1) return unit_in;
    if (out[j].size == 1) return unit_out;
  }
  Group group{i, i + 1, j, j + 1};
  std::int64_t a = in[i].size, b = out[j].size;
  while (a != b && (a < b ? group.in_end < in.count() : group.out_end < out.count())) {
    if (a < b) {
      a *= in[group.in_end++].size;
    } else {
      b *= out[group.out_end++].size;
    }
  }
  return group;
}

std::vector<Group> groups_of(const Shape& in, const Shape& out) {
  std::vector<Group> groups;
  std::size_t i = 0, j = 0;
  while (i < in.count() || j < out.count()) {
    groups.push_back(next_group(in, out, i, j));
    i = groups.back().in_end;
    j = groups.back().out_end;
  }
  return groups;
}

bool keeps_size(const Shape& in, const Shape& out, const Group& g) {
  return g.in_end - g.in_begin == 1 && g.out_end - g.out_begin == 1 &&
         in[g.in_begin].size == out[g.out_begin].size;
}

// True when the major dimensions of the group continue each other: a cut of one is a cut of the other, in
// multiples of the ratio of their sizes.
bool keeps_cut(const Shape& in, const Shape& out, const Group& g) {
  if (g.in_begin == g.in_end || g.out_begin == g.out_end) return false;
  const std::int64_t a = in[g.in_begin].size, b = out[g.out_begin].size;
  return a == b || (a > 0 && b > 0 && (a % b == 0 || b % a == 0));
}

// ------------------------------------------------------------------------------------------------ moves

// A set of flat positions of a group: offset + mixed-radix digits, major first.
struct Piece {
  std::int64_t offset = 0;
  std::vector<std::int64_t> extent;
  std::vector<std::int64_t> stride;
};

// Flat length of one step along each dimension of [begin, end).
std::vector<std::int64_t> suffix_products(const Shape& shape, std::size_t begin, std::size_t end) {
  std::vector<std::int64_t> products(end - begin);
  std::int64_t product = 1;
  for (std::size_t d = end; d-- > begin;) {
    products[d - begin] = product;
    product *= shape[d].size;
  }
  return products;
}

// Cuts the flat range of a group into pieces whose digits carry over in no dimension of either side.
class Pieces {
 public:
  explicit Pieces(std::vector<std::int64_t> cells, std::int64_t total) : cells_(std::move(cells)) {
    cells_.push_back(1);
    std::sort(cells_.begin(), cells_.end());
    cells_.erase(std::unique(cells_.begin(), cells_.end()), cells_.end());
    if (cells_.size() > 1 && cells_.back() == total) cells_.pop_back();
    while (regular_ + 1 < cells_.size() && cells_[regular_ + 1] % cells_[regular_] == 0) ++regular_;
    cut(0, total, cells_.size() - 1);
  }

  std::vector<Piece> take() { return std::move(pieces_); }

 private:
  // [low, high) lies within one cell of every level above `level`.
  void cut(std::int64_t low, std::int64_t high, std::size_t level) {
    if (low >= high) return;
    const std::int64_t cell = cells_[level];
    if (level > regular_) {
      for (std::int64_t c = low / cell; c * cell < high; ++c) {
        cut(std::max(low, c * cell), std::min(high, (c + 1) * cell), level - 1);
      }
      return;
    }
    const std::int64_t first = (low + cell - 1) / cell * cell, last = high / cell * cell;
    if (first > last) return cut(low, high, level - 1);
    cut(low, first, level - 1);
    if (first < last) whole_cells(first, last, level);
    cut(last, high, level - 1);
  }

  void whole_cells(std::int64_t first, std::int64_t last, std::size_t level) {
    Piece piece{first, {}, {}};
    for (std::size_t k = level + 1; k-- > 0;) {
      const std::int64_t extent = k == level ? (last - first) / cells_[k] : cells_[k + 1] / cells_[k];
      if (extent == 1) continue;
      piece.extent.push_back(extent);
      piece.stride.push_back(cells_[k]);
    }
    pieces_.push_back(std::move(piece));
  }

  std::vector<std::int64_t> cells_;  // suffix products of both sides, ascending from 1
  std::size_t regular_ = 0;          // up to this level each divides the next
  std::vector<Piece> pieces_;
};

std::vector<Piece> pieces_of(const Shape& in, const Shape& out, const Group& g) {
  std::vector<std::int64_t> cells = suffix_products(in, g.in_begin, g.in_end);
  const std::vector<std::int64_t> others = suffix_products(out, g.out_begin, g.out_end);
  cells.insert(cells.end(), others.begin(), others.end());
  std::int64_t total = 1;
  for (std::size_t d = g.in_begin; d < g.in_end; ++d) total *= in[d].size;
  return Pieces(std::move(cells), total).take();
}

void append_indices(const Piece& piece, const Shape& shape, std::size_t begin, std::size_t end,
                    int first_refined, std::vector<Affine>& indices) {
  const std::vector<std::int64_t> products = suffix_products(shape, begin, end);
  for (std::size_t d = begin; d < end; ++d) {
    const std::int64_t step = products[d - begin];
    Affine index{piece.offset / step % shape[d].size, {}};
    for (std::size_t k = 0; k < piece.extent.size(); ++k) {
      if (piece.stride[k] >= step && piece.stride[k] < step * shape[d].size) {
        index.parts.push_back({first_refined + static_cast<int>(k), piece.stride[k] / step});
      }
    }
    indices.push_back(std::move(index));
  }
}

std::vector<Move> moves_reshape(const Call& call) {
  const Shape &in = call.in[0].shape, &out = call.out[0].shape;
  if (in.elements() == 0) return {};
  std::vector<Move> moves(1);
  for (const Group& g : groups_of(in, out)) {
    std::vector<Move> longer;
    for (const Piece& piece : pieces_of(in, out, g)) {
      for (Move move : moves) {
        const int first = static_cast<int>(move.extent.size());
        move.extent.insert(move.extent.end(), piece.extent.begin(), piece.extent.end());
        append_indices(piece, in, g.in_begin, g.in_end, first, move.in);
        append_indices(piece, out, g.out_begin, g.out_end, first, move.out);
        longer.push_back(std::move(move));
      }
    }
    moves = std::move(longer);
  }
  return moves;
}

// ------------------------------------------------------------------------------------------------ the record

std::vector<Type> infer_reshape(const Call& call) {
  check_count(call, 1);
  const Shape &in = call.in[0].shape, &out = call.attrs.shape("shape");
  TESSERA_CHECK(in.elements() == out.elements(),
                "reshape: [{}] has {} elements but [{}] has {} (at {}); make the products equal",
                to_string(in), in.elements(), to_string(out), out.elements(), call.name);
  return {{out, call.in[0].dtype}};
}

Role role_reshape(const Call& call, int, const std::string& dim) {
  const Shape &in = call.in[0].shape, &out = call.out[0].shape;
  for (const Group& g : groups_of(in, out)) {
    if (g.in_begin < g.in_end && in[g.in_begin].name == dim && keeps_cut(in, out, g)) return Role::Map;
  }
  return Role::Whole;
}

Renames renames_reshape(const Call& call) {
  const Shape &in = call.in[0].shape, &out = call.out[0].shape;
  Renames pairs;
  for (const Group& g : groups_of(in, out)) {
    if (!keeps_cut(in, out, g)) continue;
    const std::string &from = in[g.in_begin].name, &to = out[g.out_begin].name;
    if (from != to || !keeps_size(in, out, g)) pairs.emplace_back(from, to);
  }
  return pairs;
}

Names resized_reshape(const Call& call) {
  const Shape &in = call.in[0].shape, &out = call.out[0].shape;
  Names names;
  for (const Group& g : groups_of(in, out)) {
    if (keeps_size(in, out, g)) continue;
    for (std::size_t d = g.in_begin; d < g.in_end; ++d) {
      if (out.has(in[d].name)) names.push_back(in[d].name);
    }
  }
  return names;
}

void grad_reshape(GradContext& g) {
  g.set(0, reshape(g.dy(), g.in(0).shape()));
}

std::vector<Sample> samples_reshape() {
  auto to = [](Shape shape) { return Attrs{{"shape", std::move(shape)}}; };
  return {
      {.in = {"f32[a:4;b:3;c:5]"}, .attrs = to({{"d", 12}, {"c", 5}})},
      {.in = {"f32[d:12;c:5]"}, .attrs = to({{"a", 4}, {"b", 3}, {"c", 5}})},
      {.in = {"i32[a:4;b:6]"}, .attrs = to({{"d", 8}, {"e", 3}})},
      {.in = {"f32[a:4;b:6;c:2]"}, .attrs = to({{"d", 3}, {"e", 8}, {"c", 2}})},
      {.in = {"f32[heads:3;d_kv:4;a:2]"}, .attrs = to({{"heads", 12}, {"one", 1}, {"b", 2}})},
      {.in = {"bf16[a:3;one:1;b:5;c:7]"}, .attrs = to({{"a", 3}, {"d", 7}, {"e", 5}})},
  };
}

}  // namespace

const Op kReshape{
    .name = "reshape",
    .doc =
        "The same row-major sequence of values in another shape. Dimensions of unchanged size keep their "
        "cut, and so "
        "does the major dimension of a group that is merged or split; other split dimensions are exchanged.",
    .infer = infer_reshape,
    .role = role_reshape,
    .made = made_whole,
    .renames = renames_reshape,
    .resized = resized_reshape,
    .linear = linear_everywhere,
    .grad = grad_reshape,
    .moves = moves_reshape,
    .flops = no_flops,
    .samples = samples_reshape,
};

Tensor reshape(Arg x, const Shape& shape) {
  graph_of(x, "reshape");
  return x.tensor.shape() == shape ? x.tensor : add_one(kReshape, x, {{"shape", shape}});
}

Tensor merge(Arg x, const Strings& dims, const std::string& into) {
  graph_of(x, "merge");
  const Shape& shape = x.tensor.shape();
  const std::string where = to_string(Location(x.where));
  TESSERA_CHECK(!dims.empty(), "merge: no dimensions ({}); name at least one", where);
  const int first = shape.find(dims[0]);
  std::vector<Dim> merged;
  std::int64_t size = 1;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const int at = shape.find(dims[i]);
    TESSERA_CHECK(at >= 0, "merge: [{}] has no dimension '{}' ({}); name one of its dimensions",
                  to_string(shape), dims[i], where);
    TESSERA_CHECK(at == first + static_cast<int>(i),
                  "merge: '{}' does not follow '{}' in [{}] ({}); transpose first", dims[i],
                  dims[i ? i - 1 : 0], to_string(shape), where);
    size *= shape[static_cast<std::size_t>(at)].size;
  }
  for (std::size_t d = 0; d < shape.count(); ++d) {
    if (static_cast<int>(d) == first) merged.push_back({into, size});
    const int i = static_cast<int>(d) - first;
    if (i < 0 || i >= static_cast<int>(dims.size())) merged.push_back(shape[d]);
  }
  return reshape(x, Shape(std::move(merged)));
}

Tensor split_dim(Arg x, const std::string& dim, const Shape& into) {
  graph_of(x, "split_dim");
  const Shape& shape = x.tensor.shape();
  TESSERA_CHECK(shape.has(dim), "split_dim: [{}] has no dimension '{}' ({}); name one of its dimensions",
                to_string(shape), dim, to_string(Location(x.where)));
  TESSERA_CHECK(into.elements() == shape.size(dim),
                "split_dim: dimension '{}' has size {} but [{}] has {} elements ({}); make them equal", dim,
                shape.size(dim), to_string(into), into.elements(), to_string(Location(x.where)));
  std::vector<Dim> dims;
  for (const Dim& d : shape) {
    if (d.name == dim) {
      dims.insert(dims.end(), into.begin(), into.end());
    } else {
      dims.push_back(d);
    }
  }
  return reshape(x, Shape(std::move(dims)));
}

}  // namespace tessera
