// Making a program's collectives ready for one rank.
#include <algorithm>
#include <memory>
#include <tuple>

#include "base/check.h"
#include "exec/cpu/parted_product.h"
#include "exec/rank_program.h"
#include "lang/reference.h"
#include "spmd/steps.h"

namespace tessera {
namespace {

Combine combine_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::None:
      return Combine::None;
    case Reduction::Sum:
      return Combine::Sum;
    case Reduction::Max:
      return Combine::Max;
    case Reduction::Min:
      return Combine::Min;
  }
  TESSERA_ASSERT(false, "unknown reduction");
}

}  // namespace

Piece piece_of(const CopyPiece& copy, std::vector<int> sources) {
  Piece piece{std::move(sources), copy.from, copy.to, copy.extent, copy.from_stride, copy.to_stride};
  simplify(piece);
  return piece;
}

CollectivePlan RankProgram::plan_of(const Step& step) const {
  CollectivePlan plan;
  plan.kind = to_string(step.collective.kind);
  plan.what = where(step);
  plan.bytes = step.collective.bytes;
  plan.group = program_.mesh.group(step.collective.axes, rank_);
  std::sort(plan.group.begin(), plan.group.end());
  return plan;
}

void RankProgram::prepare_peers(Prepared& p) {
  Call local = p.step->call;
  for (std::size_t i = 0; i < p.in.size(); ++i) local.in[i].shape = p.in[i].shape;
  const Op& op = *local.op;
  p.peers = std::make_unique<RankPeers>(communicator_, plan_of(*p.step), op.exchange(local),
                                        op.exchange(largest_call(program_, *p.step)).times);
}

void RankProgram::prepare_collective(Prepared& p) {
  const Step& step = *p.step;
  const Collective& c = step.collective;
  CollectivePlan plan = plan_of(step);
  plan.dtype = value(step.out[0]).type.dtype;
  plan.combine = combine_of(c.reduce);
  p.action = Action::Start;
  if (c.kind == CollectiveKind::Contract) {
    p.collective = communicator_.prepare(std::move(plan));
    return;
  }
  for (std::size_t i = 0; i < step.in.size(); ++i) add_pieces(step, i, plan);
  p.collective = communicator_.prepare(std::move(plan));
}

// What this rank takes of input `i`.
void RankProgram::add_pieces(const Step& step, std::size_t i, CollectivePlan& plan) const {
  const Collective& c = step.collective;
  const ProgramValue &from = value(step.in[i]), &to = value(step.out[i]);
  if (!c.parts.empty())
    plan.parts.push_back({where(c.parts[i].name, c.parts[i].where), to.type.dtype, c.parts[i].bytes});
  for (const CopyPiece& copy : pieces_for(program_.mesh, move_of(program_, step, i), from.type.shape,
                                          from.placement, to.type.shape, to.placement, rank_)) {
    std::vector<int> sources{copy.peer};
    if (c.reduce != Reduction::None) sources = program_.mesh.group(c.reduce_axes, copy.peer);
    std::sort(sources.begin(), sources.end());
    plan.pieces.push_back(piece_of(copy, std::move(sources)));
    plan.pieces.back().part = i;
  }
}

void RankProgram::prepare_wait(Prepared& p) {
  p.action = Action::Wait;
  p.start = p.step->start;
  if (p.step->contracts()) prepare_contract(p);
}

void RankProgram::prepare_contract(Prepared& p) {
  const Step& step = *p.step;
  p.heavy = true;
  p.action = Action::Contract;
  std::vector<PartedProduct::Part> parts;
  for (const int member : steps_[static_cast<std::size_t>(p.start)].collective->plan.group) {
    PartedProduct::Part part;
    std::tie(part.a, part.a_begin) = read_of(step, 0, member);
    std::tie(part.b, part.b_begin) = read_of(step, 1, member);
    Call local = step.call;
    local.in[0].shape = part.a.shape, local.in[1].shape = part.b.shape, local.out[0].shape = p.out[0].shape;
    contraction_flops_ += product_flops(local);
    parts.push_back(std::move(part));
  }
  if (p.out[0].elements() == 0) {
    p.contract = [](std::span<const void* const>) {};
    return;
  }
  const auto product = std::make_shared<const PartedProduct>(parts, p.out[0], threads_);
  p.contract = [this, &p, product](std::span<const void* const> in) {
    product->run(in, p.out_data[0], p.workspace < 0 ? nullptr : arena_ + p.workspace);
  };
}

// What this rank reads of a member's input in a Contract, and where it begins in that buffer.
std::pair<View, std::int64_t> RankProgram::read_of(const Step& step, std::size_t i, int member) const {
  const ProgramValue& input = value(step.in[i]);
  const Box taken = contract_box(program_, step, i, member, rank_);
  const Box held = box_of(program_.mesh, input.type.shape, input.placement, member);
  View view = make_view(nullptr, input.type, taken);
  view.stride = make_view(nullptr, input.type, held).stride;
  std::int64_t begin = 0;
  for (std::size_t d = 0; d < taken.start.size(); ++d) {
    TESSERA_ASSERT(taken.empty() || (taken.start[d] >= held.start[d] && taken.end(d) <= held.end(d)),
                   "'{}' reads {} of '{}', of which rank {} holds {}", step.name, to_string(taken),
                   input.name, member, to_string(held));
    begin += (taken.start[d] - held.start[d]) * view.stride[d];
  }
  return {std::move(view), begin};
}

}  // namespace tessera
