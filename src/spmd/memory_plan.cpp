// Where every value lives in a rank's arena.
//
// A buffer holds a value with all its views, and what is computed over it in place. It lives from the first
// step that writes it (a collective's result: from the Start, because a backend may receive early) to the
// last that reads it (a collective's input: to the Wait). Feeds live from the beginning, fetches to the end.
// An updated variable needs none: the update is computed in the variable's own memory. Offsets come from
// greedy best fit, largest buffers first.
#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "base/check.h"
#include "spmd/in_place.h"
#include "spmd/steps.h"
#include "tessera/program.h"

namespace tessera {
namespace {

std::int64_t rounded(std::int64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

struct Buffer {
  std::int64_t size = 0;
  int first = std::numeric_limits<int>::max(), last = -1;
  std::int64_t offset = -1;
};

class Planner {
 public:
  Planner(const Program& program, const Target& target) : p_(program), target_(target) {}

  MemoryPlan run() {
    find_stored();
    find_lifetimes();
    gathered_in_.assign(p_.values.size(), -1);
    reuse_in_place();
    add_workspaces();
    MemoryPlan plan;
    measure(plan);
    plan.arena_bytes = place();
    for (int b : buffer_of_) plan.offset.push_back(b < 0 ? -1 : offset_of(b));
    plan.stored_in = stored_in_;
    plan.gathered_in = gathered_in_;
    for (int b : workspace_of_) plan.step_workspace_offset.push_back(b < 0 ? -1 : offset_of(b));
    return plan;
  }

 private:
  const ProgramValue& value(int id) const { return p_.values[static_cast<std::size_t>(id)]; }
  Buffer& buffer(int b) { return buffers_[static_cast<std::size_t>(b)]; }
  std::int64_t offset_of(int b) const { return buffers_[static_cast<std::size_t>(b)].offset; }
  int& buffer_of(int id) { return buffer_of_[static_cast<std::size_t>(id)]; }

  int base(int id) const { return base_of(p_, id); }

  // Results that go straight into the variable that they are assigned to.
  void find_stored() {
    stored_in_.assign(p_.values.size(), -1);
    uses_ = count_uses();
    std::vector<int> variable_of(p_.values.size(), -1);  // per assigned value
    for (const Step& step : p_.steps)
      if (step.kind == Step::Kind::Assign) variable_of[static_cast<std::size_t>(step.in[0])] = step.out[0];
    for (int s = 0; s < static_cast<int>(p_.steps.size()); ++s) {
      const Step& step = p_.steps[static_cast<std::size_t>(s)];
      const bool component_wise =
          step.kind == Step::Kind::Fused || (step.kind == Step::Kind::Run && step.call.op->scalar != nullptr);
      if (!component_wise) continue;
      bool all = true, any = false;
      for (std::size_t o = 0; o < step.out.size() && all; ++o) {
        if (step.is_sum(o)) continue;
        any = true;
        all = may_store(step, s, static_cast<int>(o), variable_of) && same_place(step.out[0], step.out[o]);
      }
      for (std::size_t o = 0; o < step.out.size() && all && any; ++o) {
        const auto out = static_cast<std::size_t>(step.out[o]);
        if (!step.is_sum(o)) stored_in_[out] = variable_of[out];
      }
    }
  }

  struct Uses {
    int reads = 0, writes = 0, last_read = -1;  // of a base with its views
    bool viewed = false, fetched = false;
  };

  std::vector<Uses> count_uses() const {
    std::vector<Uses> uses(p_.values.size());
    auto of = [&](int id) -> Uses& { return uses[static_cast<std::size_t>(base(id))]; };
    for (int id = 0; id < static_cast<int>(p_.values.size()); ++id)
      if (base(id) != id) of(id).viewed = true;
    for (int id : p_.fetches) of(id).fetched = true;
    for (int s = 0; s < static_cast<int>(p_.steps.size()); ++s) {
      const Step& step = p_.steps[static_cast<std::size_t>(s)];
      if (step.kind == Step::Kind::Free) continue;
      for (int id : step.in) {
        ++of(id).reads;
        of(id).last_read = s;
      }
      for (int id : step.out) ++of(id).writes;
    }
    return uses;
  }

  bool same_place(int a, int b) const {
    return value(a).type.shape == value(b).type.shape &&
           same_placement(p_.mesh, value(a).type.shape, value(a).placement, value(b).placement);
  }

  // Of one variable: the same elements.
  bool same_rows(int a, int b) const {
    return a == b || (value(a).own_rows && value(b).own_rows && same_place(a, b));
  }

  // Nobody reads the variable later, the step itself at most element by element, and only the Assign reads
  // the result.
  bool may_store(const Step& step, int s, int o, const std::vector<int>& variable_of) const {
    const int out = step.out[static_cast<std::size_t>(o)],
              variable = variable_of[static_cast<std::size_t>(out)];
    if (variable < 0 || base(out) != out) return false;
    const Uses &result = uses_[static_cast<std::size_t>(out)],
               &stored = uses_[static_cast<std::size_t>(base(variable))];
    if (result.reads != 1 || result.writes != 1 || result.viewed || result.fetched) return false;
    if (stored.last_read > s || stored.fetched || !target_.in_place(step, 0, o) ||
        value(variable).type != value(out).type || !same_place(variable, out))
      return false;
    for (int i = 0; i < static_cast<int>(step.in.size()); ++i) {
      const int in = step.in[static_cast<std::size_t>(i)];
      if (base(in) == base(variable) && (!same_rows(in, variable) || !target_.in_place(step, i, o)))
        return false;
    }
    return true;
  }

  void touch(int id, int step) {
    const int b = buffer_of(id);
    if (b < 0) return;
    buffer(b).first = std::min(buffer(b).first, step);
    buffer(b).last = std::max(buffer(b).last, step);
  }

  void find_lifetimes() {
    const int count = static_cast<int>(p_.values.size()), steps = static_cast<int>(p_.steps.size());
    buffer_of_.assign(p_.values.size(), -1);
    for (int id = 0; id < count; ++id) {
      if (value(base(id)).kind == ProgramValue::Kind::Variable ||
          stored_in_[static_cast<std::size_t>(id)] >= 0)
        continue;
      if (base(id) == id) {
        buffer_of(id) = static_cast<int>(buffers_.size());
        buffers_.emplace_back();
      } else {
        buffer_of(id) = buffer_of(base(id));
      }
      Buffer& b = buffer(buffer_of(id));
      b.size = std::max(b.size, rounded(largest_local(p_, id).bytes()));
      if (value(id).kind == ProgramValue::Kind::Feed) touch(id, 0);
    }
    for (int s = 0; s < steps; ++s) {
      const Step& step = p_.steps[static_cast<std::size_t>(s)];
      if (step.kind == Step::Kind::Free) continue;
      for (int id : step.in) touch(id, s);
      for (int id : step.out) touch(id, s);
    }
    for (int id : p_.fetches) touch(id, std::max(0, steps - 1));
  }

  // A step's output takes over the bytes of an input that dies there.
  void reuse_in_place() {
    for (int s = 0; s < static_cast<int>(p_.steps.size()); ++s) {
      const Step& step = p_.steps[static_cast<std::size_t>(s)];
      if (step.kind == Step::Kind::Wait) {
        if (step.collective.kind == CollectiveKind::AllReduce) reduce_in_place(s);
        if (step.collective.kind == CollectiveKind::AllGather) gather_in_place(s);
        if (step.collective.kind == CollectiveKind::AllToAll) swap_in_place(s);
      }
      if (step.kind != Step::Kind::Run && step.kind != Step::Kind::Fused) continue;
      taken_.clear();
      for (int o = 0; o < static_cast<int>(step.out.size()); ++o) {
        for (int i = 0; i < static_cast<int>(step.in.size()); ++i) {
          if (may_reuse(step, s, i, o)) {
            merge(step.in[static_cast<std::size_t>(i)], step.out[static_cast<std::size_t>(o)]);
            break;
          }
        }
      }
    }
  }

  // Input i of a collective ends there, and nobody reads its bytes while they may be written over: another
  // member may be at the Wait when this rank has come no further than the Start.
  bool ends_there(int wait, std::size_t i) {
    const Step& step = p_.steps[static_cast<std::size_t>(wait)];
    const int from = buffer_of(step.in[i]), to = buffer_of(step.out[i]);
    if (from < 0 || to < 0 || from == to || buffer(from).last != wait || buffer(to).first != step.start)
      return false;
    for (int s = step.start + 1; s < wait; ++s) {
      const Step& between = p_.steps[static_cast<std::size_t>(s)];
      if (std::any_of(between.in.begin(), between.in.end(), [&](int id) { return buffer_of(id) == from; }))
        return false;
    }
    const auto o = static_cast<int>(i);
    return std::count_if(step.in.begin(), step.in.end(), [&](int id) { return buffer_of(id) == from; }) ==
               1 &&
           value(step.in[i]).type == value(step.out[i]).type &&
           target_.in_place(p_.steps[static_cast<std::size_t>(step.start)], o, o);
  }

  // An all-reduce may put its result where its input was.
  void reduce_in_place(int wait) {
    const Step& step = p_.steps[static_cast<std::size_t>(wait)];
    for (std::size_t i = 0; i < step.in.size(); ++i) {
      if (ends_there(wait, i) && same_part(p_, step.in[i], step.out[i])) merge(step.in[i], step.out[i]);
    }
  }

  // Every rank makes its part of an all-gather where it goes, where the peak is no higher for it.
  void gather_in_place(int wait) {
    const Step& step = p_.steps[static_cast<std::size_t>(wait)];
    const int in = step.in[0], out = step.out[0];
    if (!ends_there(wait, 0) || !lies_in_gathered(p_, in, out)) return;
    const Buffer &from = buffer(buffer_of(in)), &to = buffer(buffer_of(out));
    const std::vector<std::int64_t> live = live_bytes();
    const auto longest = std::max_element(live.begin() + from.first, live.begin() + step.start);
    if (*longest + to.size - from.size > *std::max_element(live.begin(), live.end())) return;
    std::vector<int> moved;  // what lies in the input's buffer by itself
    for (int id = 0; id < static_cast<int>(p_.values.size()); ++id)
      if (base(id) == id && buffer_of(id) == buffer_of(in) && gathered_in_[static_cast<std::size_t>(id)] < 0)
        moved.push_back(id);
    if (!std::all_of(moved.begin(), moved.end(), [&](int id) { return same_part(p_, id, in); })) return;
    for (int id : moved) gathered_in_[static_cast<std::size_t>(id)] = out;
    merge(out, in);
  }

  // Ranks swap parts of an all-to-all where each lies where the other's goes.
  void swap_in_place(int wait) {
    const Step& step = p_.steps[static_cast<std::size_t>(wait)];
    if (ends_there(wait, 0) && parts_are_mirrored(p_, step.in[0], step.out[0]))
      merge(step.in[0], step.out[0]);
  }

  bool may_reuse(const Step& step, int s, int i, int o) {
    const int in = step.in[static_cast<std::size_t>(i)], out = step.out[static_cast<std::size_t>(o)];
    const int from = buffer_of(in), to = buffer_of(out);
    if (from < 0 || to < 0 || from == to || buffer(from).last != s || buffer(to).first != s) return false;
    if (buffer(from).size != buffer(to).size || taken_.count(from) != 0) return false;
    // Another view of the same bytes (a rename) is read in another order than they are overwritten in.
    for (int other : step.in) {
      if (other != in && buffer_of(other) == from) return false;
    }
    return value(in).type == value(out).type &&
           same_placement(p_.mesh, value(in).type.shape, value(in).placement, value(out).placement) &&
           target_.in_place(step, i, o);
  }

  // What lies in the buffer of `other` lies in that of `id` from now on.
  void merge(int id, int other) {
    const int kept = buffer_of(id), gone = buffer_of(other);
    taken_.insert(kept);
    buffer(kept).first = std::min(buffer(kept).first, buffer(gone).first);
    buffer(kept).last = std::max(buffer(kept).last, buffer(gone).last);
    buffer(gone) = {0, 0, -1, 0};
    for (int& b : buffer_of_)
      if (b == gone) b = kept;
  }

  void add_workspaces() {
    workspace_of_.assign(p_.steps.size(), -1);
    for (std::size_t s = 0; s < p_.steps.size(); ++s) {
      const Step& step = p_.steps[s];
      std::vector<Type> in, out;
      for (int id : step.in) in.push_back(largest_local(p_, id));
      for (int id : step.out) out.push_back(largest_local(p_, id));
      const std::int64_t bytes = rounded(target_.workspace(step, in, out));
      if (bytes == 0) continue;
      workspace_of_[s] = static_cast<int>(buffers_.size());
      buffers_.push_back({bytes, static_cast<int>(s), static_cast<int>(s), -1});
    }
  }

  // Per step.
  std::vector<std::int64_t> live_bytes() const {
    std::vector<std::int64_t> live(p_.steps.size() + 2, 0);
    for (const Buffer& b : buffers_) {
      if (b.last < b.first) continue;
      live[static_cast<std::size_t>(b.first)] += b.size;
      live[static_cast<std::size_t>(b.last) + 1] -= b.size;
    }
    std::partial_sum(live.begin(), live.end(), live.begin());
    return live;
  }

  // The largest sum of live bytes, and who lives there.
  void measure(MemoryPlan& plan) {
    const std::vector<std::int64_t> live = live_bytes();
    const auto peak = std::max_element(live.begin(), live.end());
    plan.liveness_bound = *peak;
    plan.peak_step = static_cast<int>(peak - live.begin());
    find_owners(plan);
  }

  // Which value lies in each buffer at the peak: of those in one buffer the last one made.
  void find_owners(MemoryPlan& plan) {
    std::vector<int> made(p_.values.size(), -1), owner(buffers_.size(), -1);
    for (int s = static_cast<int>(p_.steps.size()) - 1; s >= 0; --s)
      for (int id : p_.steps[static_cast<std::size_t>(s)].out) made[static_cast<std::size_t>(id)] = s;
    for (int id = 0; id < static_cast<int>(p_.values.size()); ++id) {
      const int b = buffer_of(id), at = made[static_cast<std::size_t>(id)];
      if (b < 0 || base(id) != id || at > plan.peak_step || buffer(b).size == 0) continue;
      if (buffer(b).first > plan.peak_step || buffer(b).last < plan.peak_step) continue;
      int& last = owner[static_cast<std::size_t>(b)];
      if (last < 0 || at >= made[static_cast<std::size_t>(last)]) last = id;
    }
    std::erase(owner, -1);
    std::stable_sort(owner.begin(), owner.end(),
                     [&](int x, int y) { return buffer(buffer_of(x)).size > buffer(buffer_of(y)).size; });
    for (int id : owner) plan.peak_bytes.push_back(buffer(buffer_of(id)).size);
    plan.peak_values = std::move(owner);
  }

  // Tries two orders and keeps the smaller arena: by size alone, and by size times lifetime.
  std::int64_t place() {
    std::vector<int> by_size;
    for (int b = 0; b < static_cast<int>(buffers_.size()); ++b)
      if (buffer(b).last >= buffer(b).first && buffer(b).size > 0) by_size.push_back(b);
    std::vector<int> by_area = by_size;
    auto area = [&](int b) {
      return static_cast<double>(buffer(b).size) * (buffer(b).last - buffer(b).first + 1);
    };
    std::stable_sort(by_size.begin(), by_size.end(),
                     [&](int x, int y) { return buffer(x).size > buffer(y).size; });
    std::stable_sort(by_area.begin(), by_area.end(), [&](int x, int y) { return area(x) > area(y); });
    const std::int64_t first = place(by_size), second = place(by_area);
    if (first > second) return second;
    place(by_size);
    return first;
  }

  std::int64_t place(const std::vector<int>& order) {
    for (Buffer& b : buffers_) b.offset = b.last >= b.first && b.size == 0 ? 0 : -1;
    std::vector<int> placed;  // by offset
    std::int64_t arena = 0;
    for (int b : order) {
      buffer(b).offset = best_gap(buffer(b), placed);
      auto at = std::upper_bound(placed.begin(), placed.end(), b,
                                 [&](int x, int y) { return buffer(x).offset < buffer(y).offset; });
      placed.insert(at, b);
      arena = std::max(arena, buffer(b).offset + buffer(b).size);
    }
    return arena;
  }

  // The tightest gap between buffers that live at the same time; behind the last when none fits.
  std::int64_t best_gap(const Buffer& wanted, const std::vector<int>& placed) const {
    std::int64_t end = 0, best = -1, best_size = std::numeric_limits<std::int64_t>::max();
    for (int other : placed) {
      const Buffer& b = buffers_[static_cast<std::size_t>(other)];
      if (b.first > wanted.last || b.last < wanted.first) continue;
      const std::int64_t gap = b.offset - end;
      if (gap >= wanted.size && gap < best_size) {
        best = end;
        best_size = gap;
      }
      end = std::max(end, b.offset + b.size);
    }
    return best >= 0 ? best : end;
  }

  const Program& p_;
  const Target& target_;
  std::vector<Buffer> buffers_;
  std::vector<Uses> uses_;
  std::vector<int> stored_in_;
  std::vector<int> gathered_in_;
  std::set<int> taken_;            // buffers that an output of the step at hand took over
  std::vector<int> buffer_of_;     // per value; -1: a variable's
  std::vector<int> workspace_of_;  // per step; -1: none
};

}  // namespace

MemoryPlan plan_memory(const Program& program, const Target& target) {
  return Planner(program, target).run();
}

}  // namespace tessera
