// The rules of the program IR, checked before a program is used:
//  - a value is written before it is read, and not read after its Free; only Copy and Wait may add to a
//  written value
//  - every Wait names its Start, which comes before it with the same values and the same collective
//  - a collective has one input and one output, but a contract several inputs, and a bucket an output for
//  each of several inputs, all of them pending sums (maxima, minima) over the same axes
//  - a collective's group is a set of whole mesh axes that its values are cut over or pending over
//  - a variable is assigned at most once, after its last read
//  - fetched values are complete
// Every rank runs the same list, so the order of collectives is the same on all of them.
#include <set>

#include "base/check.h"
#include "spmd/steps.h"
#include "tessera/program.h"

namespace tessera {
namespace {

class Verifier {
 public:
  explicit Verifier(const Program& program)
      : p_(program), written_(program.values.size(), false), freed_(program.values.size(), false) {}

  void run() {
    for (std::size_t v = 0; v < p_.values.size(); ++v) check_value(v);
    for (std::size_t s = 0; s < p_.steps.size(); ++s) check_step(s);
    for (int id : p_.fetches) {
      read(id, "fetch");
      TESSERA_ASSERT(at(id).placement.complete(), "fetched value '{}' is pending", at(id).name);
    }
    TESSERA_ASSERT(open_.empty(), "{} collectives were started and never waited for", open_.size());
  }

 private:
  const ProgramValue& at(int id) const { return p_.values.at(static_cast<std::size_t>(id)); }
  int base(int id) const { return base_of(p_, id); }

  void check_value(std::size_t v) {
    const ProgramValue& value = p_.values[v];
    TESSERA_ASSERT(value.placement.cuts.size() == value.type.shape.count(),
                   "'{}' has a placement for another shape", value.name);
    TESSERA_ASSERT(static_cast<int>(value.placement.pending.size()) == p_.mesh.axis_count(),
                   "'{}' has a placement for another mesh", value.name);
    std::set<int> used;
    for (const Cut& cut : value.placement.cuts) {
      for (int axis : cut.axes) {
        TESSERA_ASSERT(used.insert(axis).second, "'{}' uses axis '{}' twice", value.name,
                       p_.mesh.axis_name(axis));
        TESSERA_ASSERT(value.placement.pending[static_cast<std::size_t>(axis)] == Reduction::None,
                       "'{}' is cut and pending over '{}'", value.name, p_.mesh.axis_name(axis));
      }
    }
    if (value.kind != ProgramValue::Kind::Temp) written_[v] = true;
    TESSERA_ASSERT(value.view_of < static_cast<int>(v), "'{}' views a later value", value.name);
    TESSERA_ASSERT(!value.own_rows || at(value.view_of).kind == ProgramValue::Kind::Variable,
                   "'{}' are rows of no variable", value.name);
  }

  void read(int id, const std::string& who) {
    auto b = static_cast<std::size_t>(base(id));
    TESSERA_ASSERT(written_[b], "'{}' is read by {} before it is written", at(id).name, who);
    TESSERA_ASSERT(!freed_[b], "'{}' is read by {} after it is freed", at(id).name, who);
    TESSERA_ASSERT(assigned_.count(base(id)) == 0, "variable '{}' is read by {} after its assignment",
                   at(id).name, who);
  }

  void write(int id, const Step& step) {
    bool adds =
        step.kind == Step::Kind::Copy || step.kind == Step::Kind::Wait || step.kind == Step::Kind::Start;
    TESSERA_ASSERT(at(id).view_of < 0, "{} writes the view '{}'", step.name, at(id).name);
    TESSERA_ASSERT(at(id).kind == ProgramValue::Kind::Temp, "{} writes '{}', which is fed or stored",
                   step.name, at(id).name);
    TESSERA_ASSERT(adds || !written_[static_cast<std::size_t>(id)], "'{}' is written twice", at(id).name);
    if (step.kind != Step::Kind::Start) written_[static_cast<std::size_t>(id)] = true;
  }

  void check_step(std::size_t s) {
    const Step& step = p_.steps[s];
    if (step.kind == Step::Kind::Free) {
      TESSERA_ASSERT(!freed_[static_cast<std::size_t>(step.in.at(0))], "'{}' is freed twice",
                     at(step.in[0]).name);
      freed_[static_cast<std::size_t>(step.in[0])] = true;
      return;
    }
    for (int id : step.in) read(id, step.name);
    if (step.kind == Step::Kind::Assign) return check_assign(step);
    for (int id : step.out) write(id, step);
    if (step.kind == Step::Kind::Fused) check_loop(step);
    if (step.kind == Step::Kind::Start) check_start(s);
    if (step.kind == Step::Kind::Wait) check_wait(step);
  }

  void check_loop(const Step& step) {
    TESSERA_ASSERT(step.sums.empty() || step.sums.size() == step.out.size(),
                   "'{}' has {} outputs and {} sums", step.name, step.out.size(), step.sums.size());
    const Shape& loop = at(step.loop).type.shape;
    for (std::size_t o = 0; o < step.out.size(); ++o) {
      TESSERA_ASSERT(step.is_sum(o) || at(step.out[o]).type.shape == loop,
                     "'{}' is no part of the loop over [{}]", at(step.out[o]).name, to_string(loop));
    }
  }

  void check_assign(const Step& step) {
    const ProgramValue &from = at(step.in.at(0)), &to = at(step.out.at(0));
    TESSERA_ASSERT(at(base(step.out[0])).kind == ProgramValue::Kind::Variable,
                   "assignment to '{}', which is no variable", to.name);
    TESSERA_ASSERT(from.type == to.type, "assignment of {} to {}", to_string(from.type), to_string(to.type));
    TESSERA_ASSERT(same_placement(p_.mesh, to.type.shape, from.placement, to.placement),
                   "'{}' is assigned from another placement", to.name);
    TESSERA_ASSERT(assigned_.insert(base(step.out[0])).second, "variable '{}' is assigned twice", to.name);
  }

  void check_start(std::size_t s) {
    const Collective& c = p_.steps[s].collective;
    TESSERA_ASSERT(!c.axes.empty(), "collective of '{}' without a group", p_.steps[s].name);
    check_parts(p_.steps[s]);
    for (std::size_t o = 0; o < p_.steps[s].out.size(); ++o) check_group(p_.steps[s], o);
    open_.insert(static_cast<int>(s));
  }

  void check_group(const Step& step, std::size_t o) {
    const Placement &from = at(step.in.at(o)).placement, &to = at(step.out[o]).placement;
    for (int axis : step.collective.axes) {
      auto cut_by = [&](const Placement& p) {
        for (const Cut& cut : p.cuts) {
          for (int a : cut.axes) {
            if (a == axis) return true;
          }
        }
        return p.pending[static_cast<std::size_t>(axis)] != Reduction::None;
      };
      TESSERA_ASSERT(cut_by(from) || cut_by(to), "collective of '{}' over idle axis '{}'", step.name,
                     p_.mesh.axis_name(axis));
    }
  }

  void check_parts(const Step& step) {
    const Collective& c = step.collective;
    const std::size_t ins = step.in.size(), outs = step.out.size();
    if (c.parts.empty()) {
      TESSERA_ASSERT(outs == 1 && (ins == 1 || c.kind == CollectiveKind::Contract),
                     "collective of '{}' from {} values to {}", step.name, ins, outs);
      return;
    }
    TESSERA_ASSERT(c.kind == CollectiveKind::AllReduce || c.kind == CollectiveKind::ReduceScatter,
                   "a bucket of '{}' is {}", step.name, to_string(c.kind));
    TESSERA_ASSERT(c.parts.size() > 1 && ins == c.parts.size() && outs == ins,
                   "a bucket of '{}' of {} parts from {} values to {}", step.name, c.parts.size(), ins, outs);
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < ins; ++i) {
      bytes += c.parts[i].bytes;
      for (const int axis : c.reduce_axes) {
        const auto a = static_cast<std::size_t>(axis);
        TESSERA_ASSERT(at(step.in[i]).placement.pending[a] == c.reduce &&
                           at(step.out[i]).placement.pending[a] == Reduction::None,
                       "'{}' is in a bucket, but not reduced over '{}'", at(step.in[i]).name,
                       p_.mesh.axis_name(axis));
      }
    }
    TESSERA_ASSERT(bytes == c.bytes, "a bucket of '{}' of {} bytes, not {}", step.name, bytes, c.bytes);
    TESSERA_ASSERT(std::set<int>(step.out.begin(), step.out.end()).size() == outs,
                   "a bucket of '{}' writes a value twice", step.name);
  }

  void check_wait(const Step& step) {
    TESSERA_ASSERT(open_.erase(step.start) == 1, "wait of '{}' without its start", step.name);
    const Step& start = p_.steps[static_cast<std::size_t>(step.start)];
    TESSERA_ASSERT(start.in == step.in && start.out == step.out, "wait of '{}' differs from its start",
                   step.name);
  }

  const Program& p_;
  std::vector<bool> written_, freed_;
  std::set<int> assigned_;
  std::set<int> open_;
};

}  // namespace

void verify(const Program& program) {
  Verifier(program).run();
}

}  // namespace tessera
