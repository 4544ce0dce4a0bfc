#include "support/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "spmd/pieces.h"
#include "spmd/steps.h"
#include "support/evaluate.h"
#include "support/peers.h"

namespace tessera::testing {
namespace {

double identity_of(Reduction r) {
  if (r == Reduction::Max) return -std::numeric_limits<double>::infinity();
  if (r == Reduction::Min) return std::numeric_limits<double>::infinity();
  return 0;
}

double combine(Reduction r, double a, double b) {
  if (r == Reduction::Max) return std::isnan(a) || std::isnan(b) ? std::nan("") : std::max(a, b);
  if (r == Reduction::Min) return std::isnan(a) || std::isnan(b) ? std::nan("") : std::min(a, b);
  return a + b;
}

class Simulator {
 public:
  Simulator(const Program& program, const SimulateOptions& options)
      : p_(program), o_(options), ranks_(program.mesh.ranks()) {
    for (int r = 0; r < ranks_; ++r) {
      bound_.push_back(bind(p_, r));
      buffers_.emplace_back();
      for (std::size_t v = 0; v < p_.values.size(); ++v) {
        buffers_.back().emplace_back(p_.values[v].view_of >= 0 ? Type{Shape{}, DType::Bool}
                                                               : bound_.back().local[v]);
        // Unwritten memory must not look right by chance.
        std::ranges::fill(buffers_.back()[v].data, std::byte{0x5a});
      }
    }
  }

  Simulated run() {
    for (std::size_t v = 0; v < p_.values.size(); ++v) load_outside(v);
    for (const Step& step : p_.steps) {
      if (step.is_joint()) {
        run_joint_step(step);
        continue;
      }
      for (int r = 0; r < ranks_; ++r) run_step(step, r);
    }
    Simulated result;
    for (int id : p_.fetches) {
      std::string mismatch;
      result.fetches.push_back(whole(id, &mismatch));
      if (result.replica_mismatch.empty()) result.replica_mismatch = mismatch;
    }
    for (const auto& [name, id] : assigned_) result.assigned[name] = whole(id, nullptr);
    return result;
  }

 private:
  const ProgramValue& at(int id) const { return p_.values[static_cast<std::size_t>(id)]; }
  int base(int id) const {
    while (at(id).view_of >= 0) id = at(id).view_of;
    return id;
  }
  Array& buffer(int rank, int id) {
    return buffers_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(base(id))];
  }
  View view(int rank, int id) {
    return make_view(buffer(rank, id).data.data(), at(id).type,
                     bound_[static_cast<std::size_t>(rank)].boxes[static_cast<std::size_t>(id)]);
  }

  void load_outside(std::size_t v) {
    const ProgramValue& value = p_.values[v];
    if (value.kind == ProgramValue::Kind::Temp) return;
    Array full;
    if (value.kind == ProgramValue::Kind::Feed) {
      full = o_.feeds.at(value.variable);
    } else if (auto it = o_.variables.find(value.variable); it != o_.variables.end()) {
      full = it->second;
    } else {
      full = initial_array(*o_.graph->find_variable(value.variable), value.type, o_.seed);
    }
    for (int r = 0; r < ranks_; ++r) {
      const Box& box = bound_[static_cast<std::size_t>(r)].boxes[v];
      buffers_[static_cast<std::size_t>(r)][v] = part_of(full, box);
      for (int axis : value.placement.pending_axes()) {
        if (p_.mesh.coordinates(r)[static_cast<std::size_t>(axis)] != 0) fill(r, static_cast<int>(v), 0);
      }
    }
  }

  void fill(int rank, int id, double value) {
    Array& b = buffer(rank, id);
    for (std::int64_t i = 0; i < b.elements(); ++i) b.set(i, value);
  }

  void run_step(const Step& step, int rank) {
    switch (step.kind) {
      case Step::Kind::Run:
        return run_op_step(step, rank);
      case Step::Kind::Fused:
        return run_fused(step, rank);
      case Step::Kind::Fill:
        return fill(rank, step.out[0], step.fill);
      case Step::Kind::Copy:
        for (const Move& move : step.moves) copy_own(move, step, rank);
        return;
      case Step::Kind::Slice:
        return slice(step, rank);
      case Step::Kind::Start:
        return;
      case Step::Kind::Wait:
        return collective(step, rank);
      case Step::Kind::Assign:
        assigned_[at(step.out[0]).variable] = step.in[0];
        return;
      case Step::Kind::Free:
        return;
    }
  }

  // The ranks of each group at the same time.
  void run_joint_step(const Step& step) {
    for (int first = 0; first < ranks_; ++first) {
      std::vector<int> group = p_.mesh.group(step.collective.axes, first);
      std::sort(group.begin(), group.end());
      if (group[0] != first) continue;
      Call local = step.call;
      for (std::size_t i = 0; i < step.in.size(); ++i) local.in[i].shape = view(first, step.in[i]).shape;
      run_together(static_cast<int>(group.size()), local.op->exchange(local).bytes,
                   [&](int member, Peers* peers) {
                     run_op_step(step, group[static_cast<std::size_t>(member)], peers);
                   });
    }
  }

  void run_op_step(const Step& step, int rank, Peers* peers = nullptr) {
    std::vector<View> in, out;
    for (int id : step.in) in.push_back(view(rank, id));
    for (int id : step.out) out.push_back(view(rank, id));
    KernelContext context{step.call, in, out, o_.seed, o_.step, &step.key, peers};
    run_reference(*step.call.op, context);
  }

  void run_fused(const Step& step, int rank) {
    std::vector<View> in, out;
    for (int id : step.in) in.push_back(view(rank, id));
    if (step.sums.empty()) {
      for (int id : step.out) out.push_back(view(rank, id));
      return run_scalar(step.code, in, out);
    }
    const BoundProgram& bound = bound_[static_cast<std::size_t>(rank)];
    const auto loop = static_cast<std::size_t>(step.loop);
    std::vector<Array> made;
    for (int id : step.out) made.emplace_back(Type{bound.local[loop].shape, at(id).type.dtype});
    for (Array& array : made)
      out.push_back(
          make_view(array.data.data(), {at(step.loop).type.shape, array.type.dtype}, bound.boxes[loop]));
    run_scalar(step.code, in, out);
    for (std::size_t o = 0; o < made.size(); ++o) add_up(made[o], view(rank, step.out[o]), step.sums[o]);
  }

  // Adds up over the dimensions that `to` lacks; divisor 0: copies.
  static void add_up(const Array& from, const View& to, double divisor) {
    std::vector<double> total(static_cast<std::size_t>(to.elements()), 0.0);
    for (std::int64_t i = 0; i < from.elements(); ++i) {
      std::int64_t rest = i, at = 0;
      for (std::size_t d = from.type.shape.count(); d-- > 0; rest /= from.type.shape[d].size) {
        const int o = to.shape.find(from.type.shape[d].name);
        if (o >= 0) at += rest % from.type.shape[d].size * to.stride[static_cast<std::size_t>(o)];
      }
      total[static_cast<std::size_t>(at)] += from.get(i);
    }
    for (std::size_t i = 0; i < total.size(); ++i)
      store(to, static_cast<std::int64_t>(i), divisor == 0 ? total[i] : total[i] / divisor);
  }

  void copy_own(const Move& move, const Step& step, int rank) {
    const ProgramValue &from = at(step.in[0]), &to = at(step.out[0]);
    for (const CopyPiece& piece :
         pieces_for(p_.mesh, move, from.type.shape, from.placement, to.type.shape, to.placement, rank)) {
      if (piece.peer == rank) copy_piece(piece, {rank}, Reduction::None, step.in[0], step.out[0], rank);
    }
  }

  void slice(const Step& step, int rank) {
    const ProgramValue &from = at(step.in[0]), &to = at(step.out[0]);
    std::vector<int> here = p_.mesh.coordinates(rank);
    for (std::size_t a = 0; a < here.size(); ++a) {
      bool made_pending =
          to.placement.pending[a] != Reduction::None && from.placement.pending[a] == Reduction::None;
      if (made_pending && here[a] != 0) return fill(rank, step.out[0], identity_of(to.placement.pending[a]));
    }
    copy_own(identity_move(from.type.shape), step, rank);
  }

  // The sum of what the record's own kernel makes of every member's inputs.
  void contract(const Step& step, int rank) {
    const View to = view(rank, step.out[0]);
    std::vector<double> total(static_cast<std::size_t>(to.elements()), 0.0);
    std::vector<int> group = p_.mesh.group(step.collective.axes, rank);
    std::sort(group.begin(), group.end());
    for (int member : group) {
      std::vector<Array> taken;
      for (std::size_t i = 0; i < step.in.size(); ++i) {
        const Box box = contract_box(p_, step, i, member, rank);
        taken.push_back(taken_of(member, step.in[i], box));
      }
      std::vector<View> in;
      for (Array& array : taken) in.push_back(make_view(array.data.data(), array.type));
      Array product(Type{to.shape, to.dtype});
      const std::vector<View> out{make_view(product.data.data(), product.type)};
      KernelContext context{step.call, in, out, o_.seed, o_.step, &step.key};
      run_reference(*step.call.op, context);
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += product.get(static_cast<std::int64_t>(i));
    }
    for (std::size_t i = 0; i < total.size(); ++i) store(to, static_cast<std::int64_t>(i), total[i]);
  }

  // The elements of `box` that `member` holds of a value.
  Array taken_of(int member, int id, const Box& box) {
    std::vector<Dim> dims = at(id).type.shape.dims();
    for (std::size_t d = 0; d < dims.size(); ++d) dims[d].size = box.size[d];
    Array taken(Type{Shape(std::move(dims)), at(id).type.dtype});
    const Box& held = bound_[static_cast<std::size_t>(member)].boxes[static_cast<std::size_t>(id)];
    copy_box(buffer(member, id).data.data(), held, taken.data.data(), box, box, size_of(taken.type.dtype));
    return taken;
  }

  void collective(const Step& step, int rank) {
    if (step.contracts()) return contract(step, rank);
    for (std::size_t i = 0; i < step.in.size(); ++i) collective_part(step, i, rank);
  }

  void collective_part(const Step& step, std::size_t i, int rank) {
    const ProgramValue &from = at(step.in[i]), &to = at(step.out[i]);
    const Collective& c = step.collective;
    for (const CopyPiece& piece : pieces_for(p_.mesh, move_of(p_, step, i), from.type.shape, from.placement,
                                             to.type.shape, to.placement, rank)) {
      std::vector<int> members = c.reduce == Reduction::None ? std::vector<int>{piece.peer}
                                                             : p_.mesh.group(c.reduce_axes, piece.peer);
      std::vector<int> group = p_.mesh.group(c.axes, rank);
      for (int m : members) {
        if (std::find(group.begin(), group.end(), m) == group.end()) {
          throw std::logic_error(
              fmt::format("'{}' reads from rank {} outside the group of rank {}", step.name, m, rank));
        }
      }
      copy_piece(piece, members, c.reduce, step.in[i], step.out[i], rank);
    }
  }

  void copy_piece(const CopyPiece& piece, const std::vector<int>& members, Reduction reduce, int in, int out,
                  int rank) {
    Array& to = buffer(rank, out);
    for_each_index(piece.extent, [&](std::span<const std::int64_t> index) {
      std::int64_t f = piece.from, t = piece.to;
      for (std::size_t d = 0; d < index.size(); ++d) {
        f += index[d] * piece.from_stride[d];
        t += index[d] * piece.to_stride[d];
      }
      double sum = buffer(members[0], in).get(f);
      for (std::size_t m = 1; m < members.size(); ++m)
        sum = combine(reduce, sum, buffer(members[m], in).get(f));
      to.set(t, sum);
    });
  }

  // The whole tensor; pending axes are reduced. Replicas that differ are reported.
  Array whole(int id, std::string* mismatch) {
    const ProgramValue& value = at(id);
    Array full(value.type);
    std::map<std::string, Array> seen;
    for (int r = 0; r < ranks_; ++r) {
      const Box& box = bound_[static_cast<std::size_t>(r)].boxes[static_cast<std::size_t>(id)];
      Array local = buffer(r, id);
      local.type = bound_[static_cast<std::size_t>(r)].local[static_cast<std::size_t>(id)];
      std::vector<int> pending = value.placement.pending_axes();
      if (!pending.empty()) {
        std::vector<int> members = p_.mesh.group(pending, r);
        for (std::int64_t i = 0; i < local.elements(); ++i) {
          double sum = 0;
          for (int m : members) sum += buffer(m, id).get(i);
          local.set(i, sum);
        }
      }
      auto [it, fresh] = seen.emplace(to_string(box), local);
      if (!fresh && mismatch != nullptr && mismatch->empty() && !same_bits(it->second, local)) {
        *mismatch =
            fmt::format("'{}' differs between replicas of {} (rank {})", value.name, to_string(box), r);
      }
      if (!box.empty()) put_part(full, local, box);
    }
    return full;
  }

  const Program& p_;
  const SimulateOptions& o_;
  int ranks_;
  std::vector<BoundProgram> bound_;
  std::vector<std::vector<Array>> buffers_;
  std::map<std::string, int> assigned_;
};

}  // namespace

Simulated simulate(const Program& program, const SimulateOptions& options) {
  return Simulator(program, options).run();
}

}  // namespace tessera::testing
