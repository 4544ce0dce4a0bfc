// Component-wise steps over one shape and placement become one loop: a value that passes from one to the next
// stays in registers, and only values that are needed elsewhere are written. Every value is still rounded to
// its type, so the bits are those of the separate steps. A loop also adds up what it makes, where a step
// would read it for that alone.
//
// A group stands at one place of the program. A step joins a group by moving up to it, when all it reads is
// there already, or else by drawing the whole group down to itself, when nothing in between needs the group.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "base/check.h"
#include "spmd/passes.h"
#include "spmd/passes/fused_step.h"
#include "spmd/steps.h"

namespace tessera {
namespace {

constexpr std::size_t kMaxInstructions = 160, kMaxInputs = 32;
// Elements that go into one of a sum, at least, and sums of a loop at most: its partial sums stay small.
// Sizes of the whole, so that the steps do not depend on the mesh.
constexpr std::int64_t kWorthSumming = 64, kMaxSums = 64 * 1024;
constexpr std::size_t kLookahead = 64;  // values, towards the update that they serve
constexpr int kReach =
    24;  // steps that lie between a group and one that joins it, at most: keeps lifetimes as they were

class Fuser {
 public:
  explicit Fuser(Program& program) : program_(program) {
    for (std::size_t s = 0; s < program.steps.size(); ++s) {
      for (int id : program.steps[s].in) readers_[base_of(id)].push_back(static_cast<int>(s));
      if (program.steps[s].kind == Step::Kind::Assign)
        assigns_[base_of(program.steps[s].out[0])] = static_cast<int>(s);
      for (int id : program.steps[s].out)
        made_by_[base_of(id)] = static_cast<int>(s);  // the last one that writes it
    }
    for (int id : program.fetches) fetched_.insert(base_of(id));
  }

  void run() {
    group_of_.assign(program_.steps.size(), -1);
    for (int s = 0; s < static_cast<int>(program_.steps.size()); ++s) {
      if (is_component_wise(step(s))) join(s);
      if (adds_up(step(s))) join_sum(s);
    }
    rewrite();
  }

 private:
  struct Group {
    std::vector<int> members;  // steps, in order
    int place = 0;             // the index of the step where it stands
    std::size_t instructions = 0;
    std::set<int> reads, makes;  // values (bases)
    std::vector<int> sums;       // steps that add up what it makes
    bool closed = false;         // no member joins any more
  };

  const Step& step(int s) const { return program_.steps[static_cast<std::size_t>(s)]; }
  const ProgramValue& value(int id) const { return program_.values[static_cast<std::size_t>(id)]; }
  int base_of(int id) const { return tessera::base_of(program_, id); }
  int place(int s) const {
    const int group = s < static_cast<int>(group_of_.size()) ? group_of_[static_cast<std::size_t>(s)] : -1;
    return group < 0 ? s : groups_[static_cast<std::size_t>(group)].place;
  }

  static bool among(const std::vector<int>& steps, int s) {
    return std::find(steps.begin(), steps.end(), s) != steps.end();
  }

  static bool is_component_wise(const Step& step) {
    return step.kind == Step::Kind::Run && step.call.op->scalar != nullptr && !step.call.op->random &&
           step.out.size() == 1;
  }

  static bool adds_up(const Step& step) {
    return step.kind == Step::Kind::Run && step.call.op->sum_divisor != nullptr &&
           is_floating(step.call.in[0].dtype);
  }

  void join_sum(int s) {
    const int in = step(s).in[0], out = step(s).out[0];
    const auto maker = made_by_.find(in);
    if (maker == made_by_.end() || group_of_[static_cast<std::size_t>(maker->second)] < 0) return;
    const int g = group_of_[static_cast<std::size_t>(maker->second)];
    Group& group = groups_[static_cast<std::size_t>(g)];
    const std::int64_t sums = value(out).type.shape.elements();
    if (step(s).region != step(group.members.front()).region || sums > kMaxSums ||
        value(in).type.shape.elements() < kWorthSumming * sums)
      return;
    if (updates_replicas(group.makes, false)) return;
    group.closed = group.closed || updates_replicas(group.makes, true);
    group.sums.push_back(s);
    group_of_[static_cast<std::size_t>(s)] = g;
  }

  // Ranks that share the rows of a variable that they update may do a part of the loop each: it makes no
  // sums. Here: whether one of the values is assigned to such rows; `later`: or what further loops make of
  // them.
  bool updates_replicas(const std::set<int>& values, bool later) const {
    std::set<int> seen = values;
    std::vector<int> open(values.begin(), values.end());
    while (!open.empty() && seen.size() < values.size() + kLookahead) {
      const auto it = readers_.find(open.back());
      open.pop_back();
      if (it == readers_.end()) continue;
      for (int reader : it->second) {
        const Step& next = step(reader);
        if (next.kind == Step::Kind::Assign && replicas(program_.mesh, value(next.out[0]).placement) > 1)
          return true;
        if (later && is_component_wise(next) && seen.insert(next.out[0]).second) open.push_back(next.out[0]);
      }
    }
    return false;
  }

  bool may_sum_together(const Group& a, const Group& b) const {
    if (a.sums.empty() && b.sums.empty()) return true;
    return !updates_replicas(a.makes, false) && !updates_replicas(b.makes, false);
  }

  void join(int s) {
    const std::size_t instructions = step(s).call.op->scalar(step(s).call).code.size() + 1;
    for (int g = static_cast<int>(groups_.size()) - 1; g >= 0; --g) {
      Group& group = groups_[static_cast<std::size_t>(g)];
      if (group.members.empty()) continue;
      if (s - group.members.back() > kReach) break;
      if (!fits(group, s, instructions)) continue;
      if (!can_move_up(group, s)) {
        if (!can_draw_down(group, s, s)) continue;
        group.place = s;
      }
      add(g, s, instructions);
      merge_makers(g, s);
      return;
    }
    groups_.emplace_back().place = s;
    add(static_cast<int>(groups_.size()) - 1, s, instructions);
  }

  // Other groups that make what `s` reads are drawn down to its group and become part of it; or else it moves
  // up to them.
  void merge_makers(int g, int s) {
    for (int id : step(s).in) {
      const auto maker = made_by_.find(base_of(id));
      if (maker == made_by_.end() || group_of_[static_cast<std::size_t>(maker->second)] < 0) continue;
      const int h = group_of_[static_cast<std::size_t>(maker->second)];
      if (h == g) continue;
      Group &into = groups_[static_cast<std::size_t>(g)], &from = groups_[static_cast<std::size_t>(h)];
      if (from.closed || !same_loop(from, s) || !small_enough(into, from.instructions, inputs_of(from)))
        continue;
      if (!reads_as_made(from, into) || !may_sum_together(from, into)) continue;
      if (!can_draw_down(from, into.place, s, &into)) {
        if (!can_lift(into, from)) continue;
        into.place = from.place;
      }
      into.members.insert(into.members.end(), from.members.begin(), from.members.end());
      std::sort(into.members.begin(), into.members.end());
      into.instructions += from.instructions;
      into.reads.insert(from.reads.begin(), from.reads.end());
      into.makes.insert(from.makes.begin(), from.makes.end());
      into.sums.insert(into.sums.end(), from.sums.begin(), from.sums.end());
      for (int sum : from.sums) group_of_[static_cast<std::size_t>(sum)] = g;
      for (int member : from.members) group_of_[static_cast<std::size_t>(member)] = g;
      from = {};
    }
  }

  void add(int g, int s, std::size_t instructions) {
    Group& group = groups_[static_cast<std::size_t>(g)];
    group.members.push_back(s);
    group.instructions += instructions;
    for (int id : step(s).in) group.reads.insert(base_of(id));
    group.makes.insert(base_of(step(s).out[0]));
    group_of_[static_cast<std::size_t>(s)] = g;
  }

  bool same_loop(const Group& group, int s) const {
    const Step& first = step(group.members.front());
    const ProgramValue &mine = value(step(s).out[0]), &theirs = value(first.out[0]);
    return step(s).region == first.region && mine.type.shape == theirs.type.shape &&
           same_placement(program_.mesh, mine.type.shape, mine.placement, theirs.placement);
  }

  static bool small_enough(const Group& group, std::size_t instructions, std::size_t inputs) {
    return group.instructions + instructions <= kMaxInstructions && inputs_of(group) + inputs <= kMaxInputs;
  }
  static std::size_t inputs_of(const Group& group) {
    return static_cast<std::size_t>(std::count_if(group.reads.begin(), group.reads.end(),
                                                  [&](int read) { return group.makes.count(read) == 0; }));
  }

  // Through a view with other dimensions a step reads other elements than its own.
  bool reads_as_made(const Group& makers, int s) const {
    return std::all_of(step(s).in.begin(), step(s).in.end(), [&](int id) {
      const int base = base_of(id);
      return makers.makes.count(base) == 0 || value(id).type.shape == value(base).type.shape;
    });
  }
  bool reads_as_made(const Group& makers, const Group& readers) const {
    return std::all_of(readers.members.begin(), readers.members.end(),
                       [&](int s) { return reads_as_made(makers, s); });
  }

  // The same loop, and a reason to share it: a value of the group, or a whole input that both read.
  bool fits(const Group& group, int s, std::size_t instructions) const {
    if (group.closed || !same_loop(group, s)) return false;
    if (!group.sums.empty() && updates_replicas({step(s).out[0]}, false)) return false;
    if (!small_enough(group, instructions, step(s).in.size())) return false;
    if (!reads_as_made(group, s)) return false;
    const Shape& loop = value(step(s).out[0]).type.shape;
    bool follows = false, shares = false;
    for (int id : step(s).in) {
      const bool whole = value(id).type.shape == loop;
      follows = follows || group.makes.count(base_of(id)) != 0;
      shares = shares || (whole && group.reads.count(base_of(id)) != 0);
    }
    return follows || (shares && next_to(group, s));
  }

  // Only component-wise steps and assignments between the group's last member and `s`.
  bool next_to(const Group& group, int s) const {
    for (int between = group.members.back() + 1; between < s; ++between) {
      if (step(between).kind != Step::Kind::Assign && !is_component_wise(step(between))) return false;
    }
    return true;
  }

  // Everything that `s` reads is there when the group runs.
  bool can_move_up(const Group& group, int s) const {
    return std::all_of(step(s).in.begin(), step(s).in.end(), [&](int id) {
      const int base = base_of(id);
      if (group.makes.count(base) != 0) return true;
      const auto maker = made_by_.find(base);
      if (maker == made_by_.end() || value(base).kind != ProgramValue::Kind::Temp) return true;
      return place(maker->second) < group.place;
    });
  }

  // All that the group reads is there when the group `to` runs, which makes some of it.
  bool can_lift(const Group& group, const Group& to) const {
    if (to.place >= group.place) return false;
    for (int member : group.members) {
      for (int id : step(member).in) {
        const int base = base_of(id);
        if (group.makes.count(base) != 0 || to.makes.count(base) != 0) continue;
        const auto maker = made_by_.find(base);
        if (maker == made_by_.end() || value(base).kind != ProgramValue::Kind::Temp) continue;
        if (place(maker->second) >= to.place) return false;
      }
    }
    return true;
  }

  // Nothing up to `to` reads what the group makes but `s` and the group `with`, nothing at all its sums, and
  // no variable that it reads is assigned before. What `s` reads stands before it, unless a group that makes
  // it was drawn down further.
  bool can_draw_down(const Group& group, int to, int s, const Group* with = nullptr) const {
    const auto inside = [&](const Group& g, int reader) {
      return among(g.members, reader) || among(g.sums, reader);
    };
    for (int made : group.makes) {
      const auto it = readers_.find(made);
      if (it == readers_.end()) continue;
      for (int reader : it->second) {
        if (reader == s || inside(group, reader) || (with != nullptr && inside(*with, reader))) continue;
        if (place(reader) <= to) return false;
      }
    }
    for (int sum : group.sums) {
      const auto it = readers_.find(step(sum).out[0]);
      if (it == readers_.end()) continue;
      if (std::any_of(it->second.begin(), it->second.end(), [&](int reader) { return place(reader) <= to; }))
        return false;
    }
    for (int read : group.reads) {
      const auto it = assigns_.find(read);
      if (it != assigns_.end() && it->second < to) return false;
    }
    if (with != nullptr) return group.place < to;
    return std::all_of(step(s).in.begin(), step(s).in.end(), [&](int id) {
      const auto maker = made_by_.find(base_of(id));
      return maker == made_by_.end() || group.makes.count(base_of(id)) != 0 || place(maker->second) < s;
    });
  }

  Step fused(const Group& group) const {
    std::set<int> kept;
    std::copy_if(group.makes.begin(), group.makes.end(), std::inserter(kept, kept.end()),
                 [&](int made) { return needed_outside(group, made); });
    return fused_step(program_, group.members, group.sums, kept);
  }

  bool needed_outside(const Group& group, int base) const {
    if (fetched_.count(base) != 0) return true;
    const auto it = readers_.find(base);
    if (it == readers_.end()) return true;  // nobody reads it: it must have been asked for
    return std::any_of(it->second.begin(), it->second.end(), [&](int reader) {
      return !among(group.members, reader) && !among(group.sums, reader);
    });
  }

  static bool is_alone(const Group& group) { return group.members.size() == 1 && group.sums.empty(); }

  void rewrite() {
    std::vector<Step> steps;
    std::vector<int> moved_to(program_.steps.size(), -1);
    std::map<int, const Group*> stands_at;
    for (const Group& group : groups_) {
      if (!is_alone(group) && !group.members.empty()) stands_at[group.place] = &group;
    }
    for (int s = 0; s < static_cast<int>(program_.steps.size()); ++s) {
      const int g = group_of_[static_cast<std::size_t>(s)];
      const auto here = stands_at.find(s);
      if (here != stands_at.end()) {
        steps.push_back(fused(*here->second));
      } else if (g < 0 || is_alone(groups_[static_cast<std::size_t>(g)])) {
        steps.push_back(step(s));
      } else {
        continue;
      }
      moved_to[static_cast<std::size_t>(s)] = static_cast<int>(steps.size()) - 1;
      if (steps.back().start >= 0)
        steps.back().start = moved_to[static_cast<std::size_t>(steps.back().start)];
    }
    program_.steps = std::move(steps);
  }

  Program& program_;
  std::vector<Group> groups_;
  std::vector<int> group_of_;
  std::map<int, std::vector<int>> readers_;  // base value -> steps that read it
  std::map<int, int> made_by_, assigns_;     // base value -> step
  std::set<int> fetched_;
};

}  // namespace

Program fuse(Program program) {
  Fuser(program).run();
  return program;
}

}  // namespace tessera
