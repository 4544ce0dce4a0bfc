// Memory for time: a value that lies unread over the program's peak is computed once more where it is read
// again, by the same steps, so with the same bits: the step that made it, and those before it whose results
// are gone. One round looks at the peak of the memory plan and takes the values that cost the least work a
// byte; then the plan is made again.
#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "base/check.h"
#include "spmd/passes.h"
#include "spmd/steps.h"

namespace tessera {
namespace {

constexpr int kRounds = 1000;
constexpr std::int64_t kSmall = 8;  // an input may be kept longer if it is that many times smaller
constexpr std::size_t kChain = 8;   // steps that one value takes, at most

class Recompute {
 public:
  Recompute(Program program, const Target& target, std::int64_t arena_bytes)
      : p_(std::move(program)), target_(target), wanted_(arena_bytes) {}

  Program run() {
    Program best = p_;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (int round = 0; round < kRounds; ++round) {
      const MemoryPlan plan = plan_memory(p_, target_);
      if (plan.arena_bytes < least) {
        best = p_;
        least = plan.arena_bytes;
      }
      if (least <= wanted_ || !shorten(plan)) break;
    }
    return best;
  }

 private:
  // What the last of `steps` makes is made again just before step `use`, for all that is read from there on.
  struct Candidate {
    std::vector<int> steps = {};
    int use = std::numeric_limits<int>::max();
    std::int64_t bytes = 0;  // that are free at the peak
    double work = 0;
  };
  struct Uses {
    std::vector<int> readers, writers;  // of a base, with its views
    bool fetched = false;
  };

  const Step& step(int s) const { return p_.steps[static_cast<std::size_t>(s)]; }
  ProgramValue& value(int id) { return p_.values[static_cast<std::size_t>(id)]; }
  const ProgramValue& value(int id) const { return p_.values[static_cast<std::size_t>(id)]; }
  int base(int id) const { return base_of(p_, id); }
  Uses& uses(int id) { return uses_[static_cast<std::size_t>(base(id))]; }

  void find_uses() {
    uses_.assign(p_.values.size(), {});
    changed_.clear();
    for (int s = 0; s < static_cast<int>(p_.steps.size()); ++s) {
      for (const int id : step(s).in) uses(id).readers.push_back(s);
      for (const int id : step(s).out) uses(id).writers.push_back(s);
      // A variable changes where its new value is computed: that may happen in its own memory.
      if (step(s).kind == Step::Kind::Assign) {
        const std::vector<int>& makers = uses(step(s).in[0]).writers;
        changed_[base(step(s).out[0])] = makers.empty() ? s : makers.front();
      }
    }
    for (const int id : p_.fetches) uses(id).fetched = true;
  }

  bool shorten(const MemoryPlan& plan) {
    find_uses();
    std::vector<Candidate> found;
    for (int s = 0; s < plan.peak_step; ++s) {
      Candidate candidate;
      if (is_candidate(s, plan.peak_step, candidate)) found.push_back(std::move(candidate));
    }
    std::stable_sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) {
      return a.work * static_cast<double>(b.bytes) < b.work * static_cast<double>(a.bytes);
    });
    std::vector<Candidate> chosen;
    std::set<int> touched;  // one may need what another would end: the next round sees
    std::int64_t left = plan.arena_bytes - wanted_;
    for (const Candidate& candidate : found) {
      if (left <= 0) break;
      std::set<int> values;
      for (const int s : candidate.steps)
        for (const std::vector<int>* ids : {&step(s).in, &step(s).out})
          for (const int id : *ids) values.insert(base(id));
      if (std::any_of(values.begin(), values.end(), [&](int id) { return touched.count(id) != 0; })) continue;
      touched.insert(values.begin(), values.end());
      chosen.push_back(candidate);
      left -= candidate.bytes;
    }
    if (chosen.empty()) return false;
    repeat(std::move(chosen));
    return true;
  }

  static bool is_local(const Step& step) {
    switch (step.kind) {
      case Step::Kind::Run:
        return step.region != Region::Update && !step.is_joint();
      case Step::Kind::Fused:
      case Step::Kind::Copy:
      case Step::Kind::Slice:
      case Step::Kind::Fill:
        return step.region != Region::Update;
      default:
        return false;
    }
  }

  bool is_candidate(int s, int peak, Candidate& c) {
    if (!is_local(step(s))) return false;
    for (const int id : step(s).out) {
      const Uses& u = uses(id);
      const auto after = std::upper_bound(u.readers.begin(), u.readers.end(), peak);
      if (after == u.readers.end()) continue;
      c.use = std::min(c.use, *after);
      if (after == u.readers.begin() || *std::prev(after) < peak) c.bytes += largest_local(p_, id).bytes();
    }
    return c.bytes > 0 && add_step(s, c);
  }

  // Adds the step, after those that make what it reads and what is gone by then.
  bool add_step(int s, Candidate& c, std::size_t depth = 0) {
    if (!is_local(step(s)) || depth >= kChain) return false;
    for (const int id : step(s).out)
      if (uses(id).fetched || uses(id).writers.size() != 1) return false;
    for (const int id : step(s).in) {
      if (is_there(id, s, c)) continue;
      const std::vector<int>& makers = uses(id).writers;
      if (makers.size() != 1 || value(base(id)).kind != ProgramValue::Kind::Temp) return false;
      const bool known = std::find(c.steps.begin(), c.steps.end(), makers[0]) != c.steps.end();
      if (!known && !add_step(makers[0], c, depth + 1)) return false;
    }
    if (c.steps.size() >= kChain) return false;
    c.steps.push_back(s);
    c.work += target_.work_seconds(p_, step(s));
    return true;
  }

  // What step `s` reads can be read at c.use without being kept for that alone.
  bool is_there(int id, int s, const Candidate& c) {
    const int b = base(id);
    const Uses& u = uses(b);
    if (value(b).kind == ProgramValue::Kind::Variable) {
      const auto changed = changed_.find(b);
      return changed == changed_.end() || changed->second >= c.use;
    }
    if (!u.writers.empty() && u.writers.back() > s) return false;
    const bool lives = u.fetched || u.readers.back() >= c.use;
    return lives || kSmall * largest_local(p_, b).bytes() <= c.bytes;
  }

  void repeat(std::vector<Candidate> chosen) {
    std::stable_sort(chosen.begin(), chosen.end(),
                     [](const Candidate& a, const Candidate& b) { return a.use < b.use; });
    std::vector<Step> steps;
    std::vector<int> moved_to;
    std::map<int, int> again;  // by base or view of one: the value made again
    auto next = chosen.begin();
    for (int s = 0; s < static_cast<int>(p_.steps.size()); ++s) {
      for (; next != chosen.end() && next->use == s; ++next) {
        for (const int made : next->steps) steps.push_back(made_again(step(made), step(s).region, again));
      }
      moved_to.push_back(static_cast<int>(steps.size()));
      steps.push_back(std::move(p_.steps[static_cast<std::size_t>(s)]));
      p_.steps[static_cast<std::size_t>(s)] = steps.back();  // later candidates copy it
      for (int& id : steps.back().in) id = now(id, again);
      if (steps.back().start >= 0)
        steps.back().start = moved_to[static_cast<std::size_t>(steps.back().start)];
    }
    p_.steps = std::move(steps);
  }

  Step made_again(Step step, Region region, std::map<int, int>& again) {
    step.region = region;
    for (int& id : step.in) id = now(id, again);
    for (int& id : step.out) {
      ProgramValue same = value(id);
      same.name += "/again";
      p_.values.push_back(std::move(same));
      const int made = static_cast<int>(p_.values.size()) - 1;
      again[id] = made;
      id = made;
    }
    return step;
  }

  // The value that stands for `id` by now.
  int now(int id, std::map<int, int>& again) {
    const auto known = again.find(id);
    if (known != again.end()) return known->second;
    if (value(id).view_of < 0) return id;
    const int viewed = now(value(id).view_of, again);
    if (viewed == value(id).view_of) return id;
    ProgramValue view = value(id);
    view.name += "/again";
    view.view_of = viewed;
    p_.values.push_back(std::move(view));
    return again[id] = static_cast<int>(p_.values.size()) - 1;
  }

  Program p_;
  const Target& target_;
  std::int64_t wanted_;
  std::vector<Uses> uses_;
  std::map<int, int> changed_;  // variable -> step
};

}  // namespace

Program recompute(Program program, const Target& target, std::int64_t arena_bytes) {
  return Recompute(std::move(program), target, arena_bytes).run();
}

}  // namespace tessera
