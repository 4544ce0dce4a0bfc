// Communication under computation. The order of steps is found by running the program in thought: a step
// takes its work, a collective is under way from its start on, one after the other, and at least until the
// slower ranks have come to it. The rank does what comes first in the old order and need not wait; what reads
// a collective that is still under way is left for later, with all that depends on it.
//
// Two limits keep lifetimes near those of the old order. What is drawn forward to hide a collective lies at
// most twice the time ahead that the collective is under way. And a collective whose input was there all
// along (a stored parameter) starts no earlier than that before its place.
#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "spmd/passes.h"
#include "spmd/steps.h"

namespace tessera {
namespace {

constexpr double kAhead = 2;                              // times the time under way
constexpr std::size_t kInFlight = 64, kFetchedAhead = 4;  // collectives

class Overlap {
 public:
  Overlap(const Program& program, const Target& target) : p_(program) {
    const std::size_t count = p_.steps.size();
    work_.resize(count);
    before_.resize(count);
    wire_.resize(count);
    double before = 0;
    for (std::size_t s = 0; s < count; ++s) {
      before_[s] = before;
      work_[s] = target.work_seconds(p_, p_.steps[s]);
      before += work_[s];
      if (p_.steps[s].kind == Step::Kind::Start) wire_[s] = target.wire_seconds(p_.steps[s].collective);
    }
    spread_ = target.arrival_spread() * before;
    Dependencies found = dependencies(p_);
    followers_ = std::move(found.followers);
    for (const std::vector<std::size_t>& needs : found.needs) {
      missing_.push_back(needs.size());
      stored_.push_back(needs.empty());
    }
  }

  // The steps in their new order.
  std::vector<std::size_t> run() {
    for (std::size_t s = 0; s < missing_.size(); ++s)
      if (missing_[s] == 0) ready_.insert(s);
    while (!ready_.empty()) take(choose());
    TESSERA_ASSERT(order_.size() == p_.steps.size(), "overlap lost {} steps",
                   p_.steps.size() - order_.size());
    return std::move(order_);
  }

 private:
  const Step& step(std::size_t s) const { return p_.steps[s]; }
  std::size_t start_of(std::size_t wait) const { return static_cast<std::size_t>(step(wait).start); }
  bool under_way(std::size_t s) const {
    return step(s).kind == Step::Kind::Wait && flights_.at(start_of(s)).arrival > time_;
  }

  std::size_t choose() const {
    const auto is_start = [&](std::size_t s) { return step(s).kind == Step::Kind::Start; };
    const auto first = std::find_if_not(ready_.begin(), ready_.end(), is_start);
    if (first == ready_.end()) return *ready_.begin();
    for (const std::size_t s : ready_)
      if (is_start(s) && may_start(s, *first)) return s;
    const auto next =
        std::find_if(first, ready_.end(), [&](std::size_t s) { return !is_start(s) && !under_way(s); });
    if (next == first) return *next;
    const bool near = next != ready_.end() &&
                      before_[*next] - before_[*first] <= kAhead * flights_.at(start_of(*first)).duration;
    return near && in_flight() < kInFlight ? *next : *first;
  }

  // A collective starts when its input is made; one of a stored value shortly before the first step that is
  // not done comes to its place.
  bool may_start(std::size_t s, std::size_t first) const {
    if (s < first || !stored_[s]) return in_flight() < kInFlight;
    return in_flight() < kFetchedAhead &&
           before_[s] - before_[first] <= kAhead * std::max(wire_[s], spread_) + backlog();
  }
  double backlog() const { return std::max(0.0, link_free_ - time_); }
  std::size_t in_flight() const { return flights_.size() - waited_; }

  void take(std::size_t s) {
    if (step(s).kind == Step::Kind::Start) {
      link_free_ = std::max(link_free_, time_) + wire_[s];
      const double arrival = std::max(link_free_, time_ + spread_);
      flights_[s] = {arrival, arrival - time_};
    }
    if (step(s).kind == Step::Kind::Wait) {
      time_ = std::max(time_, flights_.at(start_of(s)).arrival);
      ++waited_;
    }
    time_ += work_[s];
    order_.push_back(s);
    ready_.erase(s);
    for (const std::size_t f : followers_[s])
      if (--missing_[f] == 0) ready_.insert(f);
  }

  const Program& p_;
  std::vector<double> work_, before_, wire_;  // by step; before_: the work of those before it
  std::vector<std::vector<std::size_t>> followers_;
  std::vector<std::size_t> missing_;  // how many steps it still needs
  std::vector<bool> stored_;          // needed none to begin with
  std::set<std::size_t> ready_;
  struct Flight {
    double arrival, duration;  // from the start on, the wait for others before it included
  };
  std::map<std::size_t, Flight> flights_;  // by start
  std::size_t waited_ = 0;
  double time_ = 0, link_free_ = 0;
  double spread_ = 0;  // seconds by which ranks come to a collective one after the other
  std::vector<std::size_t> order_;
};

}  // namespace

Program overlap(Program program, const Target& target) {
  const bool hides = std::any_of(program.steps.begin(), program.steps.end(), [&](const Step& step) {
    return step.kind == Step::Kind::Start &&
           (target.wire_seconds(step.collective) > 0 || target.arrival_spread() > 0);
  });
  if (!hides) return program;
  arrange(program, Overlap(program, target).run());
  return program;
}

}  // namespace tessera
