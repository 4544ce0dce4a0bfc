// Small reductions in one. A collective costs something whatever it carries: a link's latency, meetings of
// the ranks. Reductions of one kind over the same ranks, of which none needs another's result, share that in
// a bucket: one collective with several inputs and outputs, whose buffers stay where they are.
//
// The program is run in thought. A small reduction whose inputs are there opens a bucket; the next one of its
// kind joins where that brings more than it costs:
//  + one meeting less,
//  + on the link: the second would have begun a latency after the first. It ends earlier by what is left of
//    that when its inputs are there, and later by the time that the link was idle after that, at most the
//    payload of those that waited,
//  - what lies about meanwhile has left the caches.
// Only steps of updates wait for a bucket that is open, and only while they hold little back: what else reads
// a result ends it. So nothing large is reduced or updated later, and no part of a forward or backward pass.
#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <tuple>

#include "base/check.h"
#include "spmd/passes.h"
#include "spmd/steps.h"

namespace tessera {
namespace {

using Group = std::vector<std::size_t>;  // Starts, in the order of the program

class Gathering {
 public:
  Gathering(const Program& program, const Target& target, const Dependencies& found)
      : p_(program),
        target_(target),
        needs_(found.needs),
        classes_(step_classes(program)),
        waits_for_(program.steps.size()),
        last_read_(program.values.size(), -1),
        arrival_(program.values.size(), 0),
        late_(program.values.size(), false) {
    for (std::size_t s = 0; s < p_.steps.size(); ++s)
      for (const int id : p_.steps[s].in) last_read_[base(id)] = static_cast<std::ptrdiff_t>(s);
    latency_ = target.wire_seconds({});
  }

  // Those that are worth it.
  std::vector<Group> run() {
    for (std::size_t s = 0; s < p_.steps.size(); ++s) visit(s);
    std::vector<Group> groups;
    for (Bucket& bucket : buckets_)
      if (bucket.members.size() > 1) groups.push_back(std::move(bucket.members));
    return groups;
  }

 private:
  struct Bucket {
    Group members = {};
    double begin = 0;    // when it would have had the link without waiting for more
    double payload = 0;  // seconds on the link, without the latency
    double held = 0;     // seconds for what lies about since the last one joined
    bool open = true;
  };
  using Key = std::tuple<CollectiveKind, Reduction, std::vector<int>, std::vector<int>>;

  const Step& step(std::size_t s) const { return p_.steps[s]; }
  std::size_t base(int id) const { return static_cast<std::size_t>(base_of(p_, id)); }
  bool is_update(std::size_t s) const { return classes_[s] == StepClass::Update; }
  double most() const { return target_.meeting_seconds() + latency_; }

  void visit(std::size_t s) {
    if (step(s).kind == Step::Kind::Wait && bucket_of_.count(static_cast<std::size_t>(step(s).start)) != 0)
      return wait(s);
    std::set<std::size_t> awaited;
    for (const std::size_t need : needs_[s])
      for (const std::size_t b : waits_for_[need])
        if (buckets_[b].open) awaited.insert(b);
    if (!awaited.empty() && may_wait(s, awaited)) {
      put_off(s, awaited);
    } else {
      for (const std::size_t b : awaited) close(buckets_[b]);
      if (step(s).kind == Step::Kind::Start) return start(s);
    }
    if (!is_update(s))
      for (const int id : step(s).in) time_ = std::max(time_, arrival_[base(id)]);
    time_ += target_.work_seconds(p_, step(s));
  }

  void start(std::size_t s) {
    const Collective& c = step(s).collective;
    if (is_small(s)) return add(s, {c.kind, c.reduce, c.reduce_axes, c.axes});
    take_link(time_, target_.wire_seconds(c), step(s).out);
  }

  void wait(std::size_t s) {
    const std::size_t b = bucket_of_.at(static_cast<std::size_t>(step(s).start));
    if (buckets_[b].open) put_off(s, {b});
  }

  void put_off(std::size_t s, const std::set<std::size_t>& awaited) {
    waits_for_[s] = awaited;
    for (const int id : step(s).out) late_[base(id)] = true;
  }

  // A reduction that costs more by itself than by what it carries.
  bool is_small(std::size_t s) const {
    const Collective& c = step(s).collective;
    if (c.kind != CollectiveKind::AllReduce && c.kind != CollectiveKind::ReduceScatter) return false;
    return payload_of(c) <= most() && held_by(s) <= most();
  }
  double payload_of(const Collective& c) const { return target_.wire_seconds(c) - latency_; }
  double held_by(std::size_t start) const {
    return target_.memory_seconds(largest_local(p_, step(start).in[0]).bytes());
  }

  void add(std::size_t s, const Key& key) {
    const auto known = open_.find(key);
    const bool joins =
        known != open_.end() && buckets_[known->second].open && gain(buckets_[known->second]) > 0;
    if (!joins) {
      if (known != open_.end()) close(buckets_[known->second]);
      open_[key] = buckets_.size();
      buckets_.emplace_back();
    }
    const std::size_t b = open_[key];
    Bucket& bucket = buckets_[b];
    bucket.members.push_back(s);
    bucket.begin = std::max(time_, link_free_);
    bucket.payload += payload_of(step(s).collective);
    bucket.held = held_by(s);
    bucket_of_[s] = b;
  }

  // Seconds that it saves to wait for a reduction whose inputs are there now.
  double gain(const Bucket& bucket) const {
    const double begin = std::max(time_, link_free_);
    return target_.meeting_seconds() + std::max(bucket.begin + latency_ - begin, -bucket.payload) -
           bucket.held;
  }

  // The step and what it alone keeps alive can lie about until the buckets end.
  bool may_wait(std::size_t s, const std::set<std::size_t>& awaited) {
    if (!is_update(s)) return false;
    std::set<std::size_t> kept;
    for (const int id : step(s).in)
      if (last_read_[base(id)] == static_cast<std::ptrdiff_t>(s) && !late_[base(id)] &&
          p_.values[base(id)].kind != ProgramValue::Kind::Variable)
        kept.insert(base(id));
    double held = 0;
    for (const std::size_t id : kept)
      held += target_.memory_seconds(largest_local(p_, static_cast<int>(id)).bytes());
    for (const std::size_t b : awaited)
      if (buckets_[b].held + held > most()) return false;
    for (const std::size_t b : awaited) buckets_[b].held += held;
    return true;
  }

  void close(Bucket& bucket) {
    if (!bucket.open) return;
    bucket.open = false;
    std::vector<int> results;
    for (const std::size_t s : bucket.members) results.push_back(step(s).out[0]);
    take_link(bucket.begin, latency_ + bucket.payload, results);
  }

  void take_link(double ready, double seconds, const std::vector<int>& results) {
    link_free_ = std::max(link_free_, ready) + seconds;
    for (const int id : results) arrival_[base(id)] = link_free_;
  }

  const Program& p_;
  const Target& target_;
  const std::vector<std::vector<std::size_t>>& needs_;
  std::vector<StepClass> classes_;
  std::vector<std::set<std::size_t>> waits_for_;  // by step: buckets whose results it waits for
  std::vector<std::ptrdiff_t> last_read_;         // by base
  std::vector<double> arrival_;                   // by base: when a collective has brought it
  std::vector<bool> late_;                        // by base: made when a bucket has ended
  std::vector<Bucket> buckets_;
  std::map<Key, std::size_t> open_;
  std::map<std::size_t, std::size_t> bucket_of_;  // by Start
  double time_ = 0, link_free_ = 0, latency_ = 0;
};

// The Start or Wait of a bucket, from those of its members.
Step merged(const Program& program, const Group& members) {
  Step bucket = program.steps[members.back()];
  Collective& c = bucket.collective;
  bucket.in.clear(), bucket.out.clear();
  c.bytes = 0, c.move = {};
  std::set<std::string> dims, reasons;
  std::set<Region> regions;
  for (const std::size_t s : members) {
    const Step& step = program.steps[s];
    bucket.in.push_back(step.in[0]);
    bucket.out.push_back(step.out[0]);
    c.bytes += step.collective.bytes;
    c.parts.push_back({step.collective.dim, step.collective.bytes, step.collective.reason, step.name,
                       step.where, step.region});
    if (!step.collective.dim.empty()) dims.insert(step.collective.dim);
    reasons.insert(step.collective.reason);
    regions.insert(step.region);
  }
  c.dim = fmt::format("{}", fmt::join(dims, ";"));
  c.reason = fmt::format("{}", fmt::join(reasons, "; "));
  if (regions.size() > 1) bucket.region = Region::Backward;  // some of it belongs to an update, perhaps
  return bucket;
}

// The steps in their order, but what waits for a bucket after it. `part_of`: the step that another is a part
// of by now, or itself.
std::vector<std::size_t> order_of(const Dependencies& found, const std::vector<std::size_t>& part_of) {
  std::vector<std::set<std::size_t>> needs(part_of.size()), followers(part_of.size());
  for (std::size_t s = 0; s < part_of.size(); ++s) {
    for (const std::size_t need : found.needs[s]) {
      if (part_of[need] == part_of[s]) continue;
      needs[part_of[s]].insert(part_of[need]);
      followers[part_of[need]].insert(part_of[s]);
    }
  }
  std::vector<std::size_t> missing, order;
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  std::size_t kept = 0;
  for (std::size_t s = 0; s < part_of.size(); ++s) {
    missing.push_back(needs[s].size());
    if (part_of[s] != s) continue;
    ++kept;
    if (needs[s].empty()) ready.push(s);
  }
  while (!ready.empty()) {
    const std::size_t s = ready.top();
    ready.pop();
    order.push_back(s);
    for (const std::size_t f : followers[s])
      if (--missing[f] == 0) ready.push(f);
  }
  TESSERA_ASSERT(order.size() == kept, "{} steps wait for each other in buckets", kept - order.size());
  return order;
}

}  // namespace

Program buckets(Program program, const Target& target) {
  if (target.meeting_seconds() + target.wire_seconds({}) <= 0) return program;
  const Dependencies found = dependencies(program);
  const std::vector<Group> groups = Gathering(program, target, found).run();
  if (groups.empty()) return program;
  std::map<std::size_t, std::size_t> wait_of;  // by Start
  std::vector<std::size_t> part_of;
  for (std::size_t s = 0; s < program.steps.size(); ++s) {
    part_of.push_back(s);
    if (program.steps[s].start >= 0) wait_of[static_cast<std::size_t>(program.steps[s].start)] = s;
  }
  for (const Group& starts : groups) {
    Group waits;
    for (const std::size_t s : starts) waits.push_back(wait_of.at(s));
    for (const Group& members : {starts, waits}) {
      for (const std::size_t s : members) part_of[s] = members.back();
      program.steps[members.back()] = merged(program, members);
    }
  }
  arrange(program, order_of(found, part_of));
  return program;
}

}  // namespace tessera
