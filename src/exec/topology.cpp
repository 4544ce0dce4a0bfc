// Reading the machine through hwloc, and sharing its cores out.
#include "exec/topology.h"

#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "base/check.h"
#include "base/cores.h"

namespace tessera {

// --- reading
// ------------------------------------------------------------------------------------------------

class Topology::Reader {
 public:
  Reader() { hwloc_topology_init(&topology_); }
  ~Reader() { hwloc_topology_destroy(topology_); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  bool describe(const std::string& text) {
    return hwloc_topology_set_synthetic(topology_, text.c_str()) == 0;
  }
  bool load() { return hwloc_topology_load(topology_) == 0; }

  // Keeps the processors of the calling thread's mask.
  void restrict_to_mask() {
    Set mask;
    if (hwloc_get_cpubind(topology_, mask.get(), HWLOC_CPUBIND_THREAD) == 0) restrict_to(mask);
  }
  void restrict_to(const std::vector<int>& processors) {
    Set set;
    for (int p : processors) hwloc_bitmap_set(set.get(), static_cast<unsigned>(p));
    restrict_to(set);
  }

  void read(Topology& into) const { into.all_ = read(into, hwloc_get_root_obj(topology_)); }

 private:
  class Set {
   public:
    Set() : set_(hwloc_bitmap_alloc()) {}
    ~Set() { hwloc_bitmap_free(set_); }
    Set(const Set&) = delete;
    Set& operator=(const Set&) = delete;
    hwloc_bitmap_t get() const { return set_; }

   private:
    hwloc_bitmap_t set_;
  };

  void restrict_to(const Set& set) { hwloc_topology_restrict(topology_, set.get(), 0); }

  static void add_processors(hwloc_obj_t object, std::vector<int>& processors) {
    if (object->type == HWLOC_OBJ_PU) processors.push_back(static_cast<int>(object->os_index));
    for (unsigned i = 0; i < object->arity; ++i) add_processors(object->children[i], processors);
  }

  // A memory that several objects share is one object in hwloc's tree, so that the tree has all levels.
  static Domain read(Topology& into, hwloc_obj_t object) {
    while (object->arity == 1 && object->type != HWLOC_OBJ_CORE) object = object->children[0];
    Domain domain{into.cores(), 0, {}};
    if (object->type == HWLOC_OBJ_CORE || object->type == HWLOC_OBJ_PU) {
      into.cores_.emplace_back();
      add_processors(object, into.cores_.back());
    } else {
      for (unsigned i = 0; i < object->arity; ++i) domain.parts.push_back(read(into, object->children[i]));
    }
    domain.last = into.cores();
    return domain;
  }

  hwloc_topology_t topology_ = nullptr;
};

Topology Topology::machine() {
  Topology topology;
  Reader reader;
  if (!reader.load()) return topology;
  reader.restrict_to_mask();
  reader.read(topology);
  return topology;
}

Topology Topology::synthetic(const std::string& description, const std::vector<int>& processors) {
  Topology topology;
  Reader reader;
  TESSERA_ASSERT(reader.describe(description) && reader.load(), "'{}' describes no machine", description);
  if (!processors.empty()) reader.restrict_to(processors);
  reader.read(topology);
  return topology;
}

// --- placing
// ------------------------------------------------------------------------------------------------

class Topology::Placer {
 public:
  // A core takes at most `depth` threads.
  Placer(const Topology& topology, int threads, int depth)
      : cores_(topology.cores_), threads_(threads), depth_(depth), used_(cores_.size(), 0) {}

  int slots(const Domain& domain) const {
    int n = 0;
    for (int core = domain.first; core < domain.last; ++core) n += std::min(depth_, size_of(core));
    return n;
  }

  // As many whole ranks as possible into each part, the part with the fewest ranks first; what fits no part
  // takes what is left, wherever it is.
  void place(const Domain& domain, int ranks) {
    std::vector<int> given(domain.parts.size(), 0);
    for (int part = next_part(domain, given); ranks > 0 && part >= 0; part = next_part(domain, given)) {
      ++given[static_cast<std::size_t>(part)];
      --ranks;
    }
    for (std::size_t p = 0; p < given.size(); ++p)
      if (given[p] > 0) place(domain.parts[p], given[p]);
    if (ranks > 0) take(domain, ranks);
  }

  // Neighbouring ranks are near each other.
  std::vector<std::vector<int>> processors() {
    std::sort(placed_.begin(), placed_.end());
    std::vector<std::vector<int>> result;
    for (const Rank& rank : placed_) {
      result.emplace_back();
      for (const auto& [core, level] : rank)
        result.back().push_back(cores_[static_cast<std::size_t>(core)][static_cast<std::size_t>(level)]);
    }
    return result;
  }

 private:
  using Rank = std::vector<std::pair<int, int>>;  // core, and which of its processors, by thread

  int size_of(int core) const { return static_cast<int>(cores_[static_cast<std::size_t>(core)].size()); }
  int& used(int core) { return used_[static_cast<std::size_t>(core)]; }

  int next_part(const Domain& domain, const std::vector<int>& given) const {
    int best = -1, best_given = 0, best_free = 0;
    for (int p = 0; p < static_cast<int>(given.size()); ++p) {
      const int ranks = given[static_cast<std::size_t>(p)],
                free = slots(domain.parts[static_cast<std::size_t>(p)]) - ranks * threads_;
      if (free < threads_) continue;
      if (best >= 0 && (ranks > best_given || (ranks == best_given && free <= best_free))) continue;
      best = p, best_given = ranks, best_free = free;
    }
    return best;
  }

  // The first free processors of the domain, one a core before any second one, cut into ranks.
  void take(const Domain& domain, int ranks) {
    Rank chosen;
    const auto wanted = static_cast<std::size_t>(ranks * threads_);
    for (int level = 0; level < depth_; ++level) {
      for (int core = domain.first; core < domain.last && chosen.size() < wanted; ++core) {
        if (used(core) != level || level >= size_of(core)) continue;
        ++used(core);
        chosen.emplace_back(core, level);
      }
    }
    std::sort(chosen.begin(), chosen.end());
    for (auto at = chosen.begin(); at != chosen.end(); at += threads_)
      placed_.emplace_back(at, at + threads_);
  }

  const std::vector<std::vector<int>>& cores_;
  int threads_, depth_;
  std::vector<int> used_;  // processors of each core
  std::vector<Rank> placed_;
};

std::vector<std::vector<int>> Topology::place(int ranks, int threads) const {
  std::size_t most = 0;
  for (const auto& core : cores_) most = std::max(most, core.size());
  for (int depth = 1; depth <= static_cast<int>(most); ++depth) {
    Placer placer(*this, threads, depth);
    if (placer.slots(all_) < ranks * threads) continue;
    placer.place(all_, ranks);
    return placer.processors();
  }
  return {};
}

// --- this process
// -------------------------------------------------------------------------------------------

namespace {

bool pinning_allowed() {
  const char* text = std::getenv("TESSERA_PIN");
  const std::string value = text == nullptr ? "on" : text;
  TESSERA_CHECK(value == "on" || value == "off", "the environment's TESSERA_PIN is '{}'; it is on or off",
                value);
  return value == "on";
}

}  // namespace

PoolPlan plan_pool(int ranks, bool pin) {
  pin = pinning_allowed() && pin;
  if (ranks > usable_cores()) return {};  // a look at the machine costs time and would change nothing
  const Topology topology = Topology::machine();
  const int cores = topology.cores() > 0 ? topology.cores() : usable_cores();
  PoolPlan plan;
  plan.threads = std::max(1, cores / ranks);
  if (pin) plan.processors = topology.place(ranks, plan.threads);
  return plan;
}

void pin_this_thread(int processor) {
  cpu_set_t mask;
  if (processor >= CPU_SETSIZE) return;
  CPU_ZERO(&mask);
  CPU_SET(processor, &mask);
  sched_setaffinity(0, sizeof mask, &mask);
}

}  // namespace tessera
