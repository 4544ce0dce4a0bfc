// Lowering of data movement ops (slice, pad, concat, split, stack, reshape, broadcast, rename, transpose)
// from their moves. Where every rank already holds what its part of the result needs, the moves run locally,
// or the result is a view; otherwise they become one exchange of exactly the overlapping boxes per input.
#include <algorithm>

#include "base/check.h"
#include "spmd/cuts.h"
#include "spmd/lower.h"

namespace tessera {
namespace {

// A cut of one refined dimension of a move.
struct RefinedCut {
  int refined = -1;
  Cut cut;
};

std::int64_t minor_product(const Move& move, const Affine& affine) {
  std::int64_t product = 1;
  for (std::size_t k = 1; k < affine.parts.size(); ++k)
    product *= move.extent[static_cast<std::size_t>(affine.parts[k].refined)];
  return product;
}

// True when the affine runs over all of a dimension of this size from 0 in steps of 1.
bool covers(const Move& move, const Affine& affine, std::int64_t size) {
  if (affine.offset != 0) return false;
  if (affine.parts.empty()) return size == 1;
  std::int64_t product = minor_product(move, affine);
  const Affine::Part& major = affine.parts[0];
  return major.stride == product && move.extent[static_cast<std::size_t>(major.refined)] * product == size;
}

// The cut of the major refined dimension that an input dimension's cut amounts to, if its boundaries fall
// there.
std::optional<RefinedCut> refine_cut(const Mesh& mesh, const Move& move, const Affine& affine, const Dim& dim,
                                     const Cut& cut) {
  if (affine.parts.empty() || !covers(move, affine, dim.size)) return std::nullopt;
  std::int64_t inner = minor_product(move, affine);
  std::int64_t major = move.extent[static_cast<std::size_t>(affine.parts[0].refined)];
  if (inner == 0) return std::nullopt;
  Cut refined{cut.axes, cut.grain % inner == 0 ? cut.grain / inner : 1};
  if (!cuts_agree(major, inner, cut.grain, refined.grain, mesh.flat_size(cut.axes))) return std::nullopt;
  return RefinedCut{affine.parts[0].refined, refined};
}

// Refined dimensions in the order in which a row-major buffer of this tensor runs over them.
std::vector<int> running_order(const Move& move, const std::vector<Affine>& affines) {
  std::vector<int> order;
  for (const Affine& affine : affines) {
    for (const Affine::Part& part : affine.parts) {
      if (move.extent[static_cast<std::size_t>(part.refined)] != 1) order.push_back(part.refined);
    }
  }
  return order;
}

bool covers_all(const Move& move, const std::vector<Affine>& affines, const Shape& shape) {
  for (std::size_t d = 0; d < shape.count(); ++d) {
    if (!covers(move, affines[d], shape[d].size)) return false;
  }
  return true;
}

bool axis_in(int axis, const std::vector<Cut>& cuts) {
  return std::any_of(cuts.begin(), cuts.end(), [&](const Cut& c) {
    return std::find(c.axes.begin(), c.axes.end(), axis) != c.axes.end();
  });
}

std::int64_t written_elements(const std::vector<Move>& moves, int output) {
  std::int64_t written = 0;
  for (const Move& move : moves) {
    if (move.output != output) continue;
    std::int64_t n = 1;
    for (std::int64_t e : move.extent) n *= e;
    written += n;
  }
  return written;
}

}  // namespace

// The placement of output `output` for which no element changes its rank, given where the inputs are; nothing
// when a cut falls inside what a move takes apart. New dimensions are made where home puts them.
std::optional<Placement> Lowering::carried_placement(const std::vector<Move>& moves, int output,
                                                     const Type& type, const std::vector<int>& inputs) const {
  const Shape& shape = type.shape;
  std::optional<Placement> result;
  for (const Move& move : moves) {
    if (move.output != output) continue;
    const ProgramValue& in = value(inputs[static_cast<std::size_t>(move.input)]);
    Placement carried = replicated(mesh_, shape);
    carried.pending = in.placement.pending;
    for (std::size_t d = 0; d < in.type.shape.count(); ++d) {
      if (mesh_.flat_size(in.placement.cuts[d].axes) == 1) continue;
      std::optional<RefinedCut> cut =
          refine_cut(mesh_, move, move.in[d], in.type.shape[d], in.placement.cuts[d]);
      if (!cut) return std::nullopt;
      bool placed = false;
      for (std::size_t o = 0; o < shape.count() && !placed; ++o) {
        const Affine& out = move.out[o];
        placed =
            !out.parts.empty() && out.parts[0].refined == cut->refined && covers(move, out, shape[o].size);
        if (placed) carried.cuts[o] = {cut->cut.axes, cut->cut.grain * minor_product(move, out)};
      }
      if (!placed) return std::nullopt;
    }
    if (result && !same_placement(mesh_, shape, *result, carried)) return std::nullopt;
    result = carried;
  }
  return result;
}

// Cuts dimensions that come from no input (broadcast, stack, padding) as home does, where their axes are
// free.
void Lowering::cut_new_dimensions(const std::vector<Move>& moves, int output, const Shape& shape,
                                  const std::vector<int>& inputs, Placement& placement) const {
  for (std::size_t o = 0; o < shape.count(); ++o) {
    if (!placement.cuts[o].whole()) continue;
    bool fresh = true;
    for (const Move& move : moves) {
      if (move.output != output) continue;
      const ProgramValue& in = value(inputs[static_cast<std::size_t>(move.input)]);
      for (const Affine::Part& part : move.out[o].parts) {
        for (std::size_t d = 0; d < in.type.shape.count(); ++d) {
          for (const Affine::Part& source : move.in[d].parts) fresh = fresh && source.refined != part.refined;
        }
      }
    }
    Cut cut = home_cut(shape[o]);
    bool free = std::none_of(cut.axes.begin(), cut.axes.end(), [&](int a) {
      return axis_in(a, placement.cuts) || placement.pending[static_cast<std::size_t>(a)] != Reduction::None;
    });
    if (fresh && free) placement.cuts[o] = cut;
  }
}

bool Lowering::is_view(const std::vector<Move>& moves, int in, const Shape& out) const {
  if (!enabled("views") || options_.pin_all || moves.size() != 1) return false;
  const Move& move = moves[0];
  return covers_all(move, move.in, value(in).type.shape) && covers_all(move, move.out, out) &&
         running_order(move, move.in) == running_order(move, move.out);
}

std::vector<int> Lowering::lower_moves(Scope& scope, const Node& node, const Call& call,
                                       const std::vector<int>& inputs) {
  std::vector<Move> moves = call.op->moves(call);
  std::vector<int> sources = move_sources(scope, node, call, inputs);
  std::vector<int> outputs;
  for (std::size_t o = 0; o < call.out.size(); ++o) {
    std::vector<Move> mine;
    std::copy_if(moves.begin(), moves.end(), std::back_inserter(mine),
                 [&](const Move& m) { return m.output == static_cast<int>(o); });
    const Shape& shape = call.out[o].shape;
    std::string name = o == 0 ? call.name : fmt::format("{}:{}", call.name, o);
    if (call.name != origin_.name) name = fmt::format("{}/{}", origin_.name, name);
    ProgramValue result{.name = name, .type = call.out[o], .placement = {}};
    std::optional<Placement> carried = carried_placement(mine, static_cast<int>(o), call.out[o], sources);
    if (mine.empty()) carried = replicated(mesh_, shape);
    if (carried) {
      cut_new_dimensions(mine, static_cast<int>(o), shape, sources, *carried);
      result.placement = *carried;
      if (!mine.empty() && is_view(mine, sources[static_cast<std::size_t>(mine[0].input)], shape)) {
        result.view_of = sources[static_cast<std::size_t>(mine[0].input)];
        outputs.push_back(new_value(std::move(result)));
        inherit_sums(value(outputs.back()).view_of, outputs.back());
        continue;
      }
      outputs.push_back(new_value(std::move(result)));
      for (int id : sources) inherit_sums(id, outputs.back());
      emit_local_moves(call, mine, sources, outputs.back());
      continue;
    }
    std::vector<int> complete = sources;
    for (int& id : complete)
      id = reshard(id, completed(value(id).placement),
                   fmt::format("{} '{}' moves it", call.op->name, call.name));
    result.placement = home(shape, fmt::format("'{}'", call.name));
    outputs.push_back(new_value(std::move(result)));
    emit_exchange(call, mine, complete, outputs.back());
  }
  return outputs;
}

// Which values the moves read: inputs as they are when they agree with each other, else at home; sums stay
// pending only when all of them are pending alike and no other consumer needs them complete.
std::vector<int> Lowering::move_sources(const Scope& scope, const Node& node, const Call& call,
                                        const std::vector<int>& inputs) {
  bool keep = enabled("delay") && call.op->linear != nullptr;
  for (std::size_t i = 0; i < inputs.size() && keep; ++i) {
    const Placement& placement = value(inputs[i]).placement;
    std::vector<int> axes = placement.pending_axes();
    keep = call.op->linear(call, static_cast<int>(i)) &&
           placement.pending == value(inputs[0]).placement.pending &&
           std::all_of(
               axes.begin(), axes.end(),
               [&](int a) { return placement.pending[static_cast<std::size_t>(a)] == Reduction::Sum; }) &&
           (axes.empty() || scope.must_complete.count({node.inputs[i].node(), node.inputs[i].output()}) == 0);
  }
  std::int64_t in_bytes = 0, out_bytes = 0;
  for (const Type& t : call.in) in_bytes += t.bytes();
  for (const Type& t : call.out) out_bytes += t.bytes();
  keep = keep && out_bytes <= in_bytes;
  std::string why = fmt::format("for {} '{}'", call.op->name, call.name);
  std::vector<int> sources;
  for (int id : inputs) {
    // Several inputs meet at home; a single one is taken where it is.
    Placement target = inputs.size() == 1 ? value(id).placement
                                          : home(value(id).type.shape, fmt::format("'{}'", value(id).name));
    if (keep) target.pending = value(id).placement.pending;
    if (!keep) target = completed(std::move(target));
    bool stored =
        value(base_of(id)).kind == ProgramValue::Kind::Variable && origin_.region != tessera::Region::Update;
    if (stored) target.cuts = home(value(id).type.shape, fmt::format("'{}'", value(id).name)).cuts;
    sources.push_back(reshard(id, target, why));
  }
  return sources;
}

Placement Lowering::completed(Placement placement) const {
  std::fill(placement.pending.begin(), placement.pending.end(), Reduction::None);
  return placement;
}

double Lowering::fill_of(const Call& call) const {
  return call.op->fill;
}

void Lowering::emit_fill_if_needed(const Call& call, const std::vector<Move>& moves, int out) {
  if (moves.empty() || written_elements(moves, moves[0].output) < value(out).type.shape.elements()) {
    Step fill;
    fill.kind = Step::Kind::Fill;
    fill.out = {out};
    fill.fill = fill_of(call);
    emit(std::move(fill));
  }
}

void Lowering::emit_local_moves(const Call& call, const std::vector<Move>& moves,
                                const std::vector<int>& sources, int out) {
  emit_fill_if_needed(call, moves, out);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    Step copy;
    copy.kind = Step::Kind::Copy;
    for (const Move& move : moves) {
      if (move.input == static_cast<int>(i)) copy.moves.push_back(move);
    }
    if (copy.moves.empty()) continue;
    copy.call = call;
    copy.in = {sources[i]};
    copy.out = {out};
    emit(std::move(copy));
  }
}

void Lowering::emit_exchange(const Call& call, const std::vector<Move>& moves,
                             const std::vector<int>& sources, int out) {
  emit_fill_if_needed(call, moves, out);
  for (const Move& move : moves) {
    int in = sources[static_cast<std::size_t>(move.input)];
    Collective collective;
    collective.kind = CollectiveKind::Exchange;
    collective.move = move;
    collective.axes = exchange_axes(move, in, out);
    if (collective.axes.empty()) {
      Step copy;
      copy.kind = Step::Kind::Copy;
      copy.moves = {move};
      copy.call = call;
      copy.in = {in};
      copy.out = {out};
      emit(std::move(copy));
      continue;
    }
    for (std::size_t d = 0; d < value(in).type.shape.count(); ++d) {
      if (!value(in).placement.cuts[d].whole() && collective.dim.empty())
        collective.dim = value(in).type.shape[d].name;
    }
    collective.reason =
        fmt::format("{} '{}' moves elements of a split dimension between ranks", call.op->name, call.name);
    emit_collective_into(in, out, std::move(collective));
  }
}

// The axes along which elements change their rank: those that cut either side, but for dimensions carried
// over unchanged.
std::vector<int> Lowering::exchange_axes(const Move& move, int in, int out) const {
  const ProgramValue &from = value(in), &to = value(out);
  std::set<int> axes;
  for (const Cut& cut : from.placement.cuts) axes.insert(cut.axes.begin(), cut.axes.end());
  for (const Cut& cut : to.placement.cuts) axes.insert(cut.axes.begin(), cut.axes.end());
  for (std::size_t d = 0; d < from.type.shape.count(); ++d) {
    std::optional<RefinedCut> cut =
        refine_cut(mesh_, move, move.in[d], from.type.shape[d], from.placement.cuts[d]);
    if (!cut || cut->cut.whole()) continue;
    for (std::size_t o = 0; o < to.type.shape.count(); ++o) {
      const Affine& affine = move.out[o];
      if (affine.parts.empty() || affine.parts[0].refined != cut->refined ||
          !covers(move, affine, to.type.shape[o].size))
        continue;
      Placement a = replicated(mesh_, Shape({to.type.shape[o]})), b = a;
      a.cuts[0] = {cut->cut.axes, cut->cut.grain * minor_product(move, affine)};
      b.cuts[0] = to.placement.cuts[o];
      if (!same_placement(mesh_, Shape({to.type.shape[o]}), a, b)) continue;
      for (int axis : cut->cut.axes) axes.erase(axis);
    }
  }
  std::vector<int> result;
  std::copy_if(axes.begin(), axes.end(), std::back_inserter(result),
               [&](int a) { return mesh_.axis_size(a) > 1; });
  return result;
}

}  // namespace tessera
