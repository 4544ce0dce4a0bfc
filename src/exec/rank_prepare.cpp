// Making a program ready for one rank.
#include <algorithm>
#include <limits>

#include "base/check.h"
#include "exec/rank_program.h"
#include "lang/reference.h"
#include "spmd/pieces.h"
#include "spmd/steps.h"

namespace tessera {
namespace {

bool any_empty(const std::vector<View>& views) {
  return std::any_of(views.begin(), views.end(), [](const View& v) { return v.elements() == 0; });
}

bool all_empty(const std::vector<View>& views) {
  return std::all_of(views.begin(), views.end(), [](const View& v) { return v.elements() == 0; });
}

// What a member that contributes nothing to a pending value holds.
double identity_of(Reduction reduction, DType dtype) {
  if (dtype == DType::Bool) return reduction == Reduction::Min ? 1 : 0;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (reduction == Reduction::Max) return -kInfinity;
  if (reduction == Reduction::Min) return kInfinity;
  return 0;
}

// Strides of a view along the loop's dimensions, 0 where it is broadcast.
std::vector<std::int64_t> strides_along(const View& view, const Shape& loop) {
  std::vector<std::int64_t> stride(loop.count(), 0);
  for (std::size_t d = 0; d < view.shape.count(); ++d) {
    const int at = loop.find(view.shape[d].name);
    TESSERA_ASSERT(at >= 0 && loop[static_cast<std::size_t>(at)].size == view.shape[d].size,
                   "a component-wise step: [{}] does not broadcast to [{}]", to_string(view.shape),
                   to_string(loop));
    stride[static_cast<std::size_t>(at)] = view.stride[d];
  }
  return stride;
}

}  // namespace

RankProgram::RankProgram(const Program& program, const MemoryPlan& plan, Communicator& communicator,
                         LocalRanks& local, Store::Impl& store, int threads)
    : program_(program),
      plan_(plan),
      communicator_(communicator),
      local_(local),
      store_(store),
      rank_(communicator.rank()),
      threads_(threads),
      bound_(bind(program, communicator.rank())) {}

int RankProgram::base(int id) const {
  return base_of(program_, id);
}

View RankProgram::view_of(int id) const {
  return make_view(nullptr, value(id).type, bound_.boxes[static_cast<std::size_t>(id)]);
}

std::string RankProgram::where(const std::string& name, const Location& location) {
  const std::string line = to_string(location);
  return line.empty() ? fmt::format("'{}'", name) : fmt::format("'{}' ({})", name, line);
}

void RankProgram::prepare() {
  steps_.resize(program_.steps.size());
  marks_.resize(steps_.size());
  std::size_t views = 0;
  for (const Step& step : program_.steps) views += step.in.size() + step.out.size();
  addresses_.resize(views);
  void** addresses = addresses_.data();
  for (std::size_t s = 0; s < steps_.size(); ++s) {
    prepare_step(static_cast<int>(s), addresses);
    marks_[s].idle = steps_[s].action == Action::Skip;
  }
  for (std::size_t id = 0; id < program_.values.size(); ++id)
    if (program_.values[id].kind == ProgramValue::Kind::Feed && !bound_.boxes[id].empty())
      feeds_.push_back(static_cast<int>(id));
}

void RankProgram::prepare_step(int index, void**& addresses) {
  Prepared& p = steps_[static_cast<std::size_t>(index)];
  const Step& step = program_.steps[static_cast<std::size_t>(index)];
  p.step = &step;
  p.workspace = plan_.step_workspace_offset[static_cast<std::size_t>(index)];
  prepare_views(p, addresses);
  const bool component_wise = step.kind == Step::Kind::Run || step.kind == Step::Kind::Fused;
  if (component_wise && plan_.stored_in[static_cast<std::size_t>(step.out[0])] >= 0)
    return prepare_store(p, index);
  switch (step.kind) {
    case Step::Kind::Run:
      return prepare_run(p);
    case Step::Kind::Fused:
      return prepare_loop(p);
    case Step::Kind::Fill:
      p.action = Action::Fill;
      p.fill = step.fill;
      return;
    case Step::Kind::Copy:
      return prepare_copies(p, step.moves);
    case Step::Kind::Slice:
      return prepare_slice(p);
    case Step::Kind::Start:
      return prepare_collective(p);
    case Step::Kind::Wait:
      return prepare_wait(p);
    case Step::Kind::Assign:
      return prepare_assign(p, index);
    case Step::Kind::Free:
      return;
  }
}

void RankProgram::prepare_views(Prepared& p, void**& addresses) {
  for (int id : p.step->in) p.in.push_back(view_of(id));
  for (int id : p.step->out) p.out.push_back(view_of(id));
  p.in_data = {addresses, p.in.size()};
  p.out_data = {addresses + p.in.size(), p.out.size()};
  addresses += p.in.size() + p.out.size();
}

void RankProgram::prepare_run(Prepared& p) {
  const bool joint = p.step->is_joint();
  if (joint) prepare_peers(p);
  if (all_empty(p.out) && !joint) return;
  const Call& call = p.step->call;
  p.heavy = call.op->products != nullptr;
  if (p.heavy) {
    Call local = call;
    for (std::size_t i = 0; i < p.in.size(); ++i) local.in[i].shape = p.in[i].shape;
    for (std::size_t o = 0; o < p.out.size(); ++o) local.out[o].shape = p.out[o].shape;
    contraction_flops_ += product_flops(local);
  }
  if (any_empty(p.out)) return prepare_reference(p);
  const KernelSite site{call, p.in, p.out, threads_};
  if (const CpuKernel* kernel = kernel_for(site); kernel != nullptr) {
    p.action = Action::Kernel;
    p.kernel = kernel->prepare(site);
    return;
  }
  if (call.op->scalar != nullptr) return prepare_fused(p, call.op->scalar(call));
  prepare_reference(p);
}

// Of an empty loop only sums remain, all of them zero.
void RankProgram::prepare_loop(Prepared& p) {
  if (all_empty(p.out)) return;
  if (view_of(p.step->loop).elements() > 0) return prepare_fused(p, p.step->code);
  p.action = Action::Fill;
}

FusedSpec RankProgram::spec_of(const Prepared& p, const ScalarCode& code) const {
  const Shape loop = p.step->kind == Step::Kind::Fused ? view_of(p.step->loop).shape : p.out[0].shape;
  FusedSpec spec;
  spec.code = code;
  spec.extent = sizes_of(loop);
  spec.sums = p.step->sums;
  spec.threads = threads_;
  for (const View& view : p.in) {
    spec.in_types.push_back(view.dtype);
    spec.in_strides.push_back(strides_along(view, loop));
  }
  for (const View& view : p.out) {
    spec.out_types.push_back(view.dtype);
    spec.out_strides.push_back(strides_along(view, loop));
  }
  return spec;
}

void RankProgram::prepare_fused(Prepared& p, const ScalarCode& code) {
  p.action = Action::Fused;
  p.loop.emplace(spec_of(p, code));
}

// The reference kernel expects its buffers apart; where the plan put an output over an input, it reads a
// copy.
void RankProgram::prepare_reference(Prepared& p) {
  p.action = Action::Reference;
  p.saved.resize(p.in.size());
  for (std::size_t i = 0; i < p.in.size(); ++i) {
    const auto in = static_cast<std::size_t>(p.step->in[i]);
    for (int out : p.step->out) {
      if (plan_.offset[in] < 0 || plan_.offset[in] != plan_.offset[static_cast<std::size_t>(out)]) continue;
      p.saved[i] = AlignedBuffer(static_cast<std::size_t>(p.in[i].elements()) * size_of(p.in[i].dtype));
    }
  }
}

void RankProgram::prepare_copies(Prepared& p, const std::vector<Move>& moves) {
  p.action = Action::Copy;
  const ProgramValue& to = value(p.step->out[0]);
  for (const Move& move : moves) {
    const ProgramValue& from = value(p.step->in[0]);
    for (const CopyPiece& copy : pieces_for(program_.mesh, move, from.type.shape, from.placement,
                                            to.type.shape, to.placement, rank_)) {
      if (copy.peer == rank_) p.copies.push_back({piece_of(copy, {rank_}), 0});
    }
  }
}

// A slice may also make a complete value pending: one member keeps it, the others hold the identity.
void RankProgram::prepare_slice(Prepared& p) {
  const ProgramValue &from = value(p.step->in[0]), &to = value(p.step->out[0]);
  const std::vector<int> here = program_.mesh.coordinates(rank_);
  for (std::size_t axis = 0; axis < here.size(); ++axis) {
    const Reduction made = to.placement.pending[axis];
    if (made == Reduction::None || from.placement.pending[axis] != Reduction::None || here[axis] == 0)
      continue;
    p.action = Action::Fill;
    p.fill = identity_of(made, to.type.dtype);
    return;
  }
  prepare_copies(p, {identity_move(from.type.shape)});
}

// The last step before `before` in which a rank may read the variable's buffer.
int RankProgram::last_read_of(int variable, int before) const {
  int last = -1;
  for (int s = 0; s < before; ++s) {
    const Step& step = program_.steps[static_cast<std::size_t>(s)];
    if (step.kind == Step::Kind::Free) continue;
    for (int id : step.in)
      if (base(id) == variable) last = s;
  }
  return last;
}

// Who else holds the buffer of a variable (or of own rows of one), and when they have read it for the last
// time before step `index`.
StoredShard& RankProgram::shared_by(Prepared& p, int variable, int index) {
  variable = base(variable);
  StoredShard& shard = store_.get(value(variable).variable).shard(rank_);
  p.sharers.clear();
  for (int other : shard.ranks)
    if (other != rank_) p.sharers.push_back(other);
  if (p.sharers.empty()) return shard;
  p.last_read = std::max(p.last_read, last_read_of(variable, index));
  marks_[static_cast<std::size_t>(p.last_read + 1)].awaited =
      true;  // the sharers' programs have this step too
  return shard;
}

// The rank's slice of what it writes to `rows`, a variable or own rows of it: ranks that hold the same rows
// in the same buffer write a slice each.
RankProgram::WriteSlice RankProgram::slice_of(const StoredShard& shard, int rows) const {
  const ProgramValue& written = value(rows);
  const Box& mine = bound_.boxes[static_cast<std::size_t>(rows)];
  WriteSlice slice{0, 0};
  for (const int other : shard.ranks) {
    if (box_of(program_.mesh, written.type.shape, written.placement, other) != mine) continue;
    if (other == rank_) slice.part = slice.parts;
    ++slice.parts;
  }
  return slice;
}

void RankProgram::prepare_assign(Prepared& p, int index) {
  if (plan_.stored_in[static_cast<std::size_t>(p.step->in[0])] >= 0) return;  // is there already
  p.action = Action::Assign;
  const WriteSlice slice = slice_of(shared_by(p, p.step->out[0], index), p.step->out[0]);
  const auto line = static_cast<std::int64_t>(AlignedBuffer::kAlignment),
             bytes = p.out[0].elements() * static_cast<std::int64_t>(size_of(p.out[0].dtype));
  const std::int64_t lines = (bytes + line - 1) / line;
  p.slice_begin = static_cast<std::size_t>(std::min(bytes, lines * slice.part / slice.parts * line));
  p.slice_end = static_cast<std::size_t>(std::min(bytes, lines * (slice.part + 1) / slice.parts * line));
}

// A component-wise step that updates variables in their own memory: ranks that write the same rows do a slice
// of the loop each.
void RankProgram::prepare_store(Prepared& p, int index) {
  const Step& step = *p.step;
  WriteSlice slice{0, 1};  // the outputs of the step are placed alike
  for (int out : step.out) {
    const int stored = plan_.stored_in[static_cast<std::size_t>(out)];
    if (stored >= 0) slice = slice_of(shared_by(p, stored, index), stored);
  }
  FusedSpec spec = spec_of(p, step.kind == Step::Kind::Fused ? step.code : step.call.op->scalar(step.call));
  cut_loop(p, spec, slice);
  if (std::find(spec.extent.begin(), spec.extent.end(), 0) != spec.extent.end()) {
    if (!step.sums.empty()) p.action = Action::Fill;
    return;
  }
  TESSERA_ASSERT(slice.parts == 1 || step.sums.empty(), "'{}' adds up in a part of its loop", step.name);
  p.action = Action::Fused;
  p.stores = true;
  p.loop.emplace(spec);
}

// Cuts the loop along its first dimension that is long enough, else its longest.
void RankProgram::cut_loop(Prepared& p, FusedSpec& spec, WriteSlice slice) {
  const std::int64_t part = slice.part, parts = slice.parts;
  if (parts == 1) return;
  if (spec.extent.empty()) {  // a scalar: the first one does it
    if (part > 0) spec.extent.push_back(0);
    return;
  }
  auto dim = std::find_if(spec.extent.begin(), spec.extent.end(), [&](std::int64_t n) { return n >= parts; });
  if (dim == spec.extent.end()) dim = std::max_element(spec.extent.begin(), spec.extent.end());
  const auto d = static_cast<std::size_t>(dim - spec.extent.begin());
  const std::int64_t begin = *dim * part / parts;
  *dim = *dim * (part + 1) / parts - begin;
  for (std::size_t i = 0; i < p.in.size(); ++i)
    p.in_shift.push_back(begin * spec.in_strides[i][d] * static_cast<std::int64_t>(size_of(p.in[i].dtype)));
  for (std::size_t o = 0; o < p.out.size(); ++o)
    p.out_shift.push_back(begin * spec.out_strides[o][d] *
                          static_cast<std::int64_t>(size_of(p.out[o].dtype)));
}

}  // namespace tessera
