// The inside of a Session. SessionCore holds all that rank threads touch: when a run is abandoned because a
// thread does not come back, that thread keeps the core alive.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exec/arena.h"
#include "exec/cpu_target.h"
#include "exec/rank_pool.h"
#include "exec/rank_program.h"
#include "exec/trace.h"
#include "tessera/session.h"

namespace tessera {

struct CompiledProgram {
  const Graph* graph = nullptr;
  std::vector<Tensor> targets;
  bool pinned = false;  // for inspection: nothing fused, nothing in place
  Program program;
  MemoryPlan plan;
  std::vector<std::unique_ptr<RankProgram>> ranks;
  std::vector<StepClass> classes;     // of the steps
  std::vector<int> feeds;             // values
  std::vector<std::string> inputs;    // of the graph, also those that the program does not need
  std::vector<std::string> copies;    // working copies that it uses
  std::vector<std::string> assigned;  // variables
  std::int64_t collectives = 0, collective_bytes = 0;
};

struct SessionCore {
  SessionCore(Mesh m, const SessionOptions& options)
      : mesh(std::move(m)),
        world(mesh.ranks(), {options.deadline_seconds,
                             options.random_delays,
                             {options.link_latency_seconds, options.link_bytes_per_second}}),
        local(world, options.lower.without.count("help") == 0) {
    store.impl().mesh = mesh;
  }

  Mesh mesh;
  Store store;
  ThreadsWorld world;
  LocalRanks local;
  std::vector<Arena> arenas;  // per rank
  std::vector<std::unique_ptr<CompiledProgram>> programs;
};

struct Session::Impl {
  Impl(const Graph& g, const Mesh& mesh, const Layout& l, SessionOptions o);

  int compile(const Graph& g, const std::vector<Tensor>& targets, bool pinned);
  Results run(int id, std::shared_ptr<RunState> state, const RunOptions& options);
  CompiledProgram& get(int id);
  FillFunction fill_from(int id, const FeedMap& feeds);

  const Graph& graph;
  Layout layout;
  SessionOptions options;
  std::shared_ptr<SessionCore> core;
  RankPool pool;
  StepHook hook;
  RunStats stats;
  Trace trace;

 private:
  CpuTarget target(bool pinned) const;
  std::vector<StoredVariable> new_variables(const CompiledProgram& compiled);
  void check_memory(const CompiledProgram& compiled, const std::vector<StoredVariable>& added);
  void initialise_all(std::vector<StoredVariable> added);
  void grow_arenas(std::int64_t bytes);
  void prepare(CompiledProgram& compiled);
  void refresh_copies(const CompiledProgram& compiled);
  void note_assigned(const CompiledProgram& compiled);
  void check_windows(const Program& program, const RunOptions& options) const;
  std::shared_ptr<Results::Impl> make_results(const Program& program) const;
  void add_stats(int id, double begin, double end);
  void add_traced(int id, double begin, double end);
};

// For tests. Fault injection: `hook` is called before every step of every rank in later runs.
struct SessionHooks {
  static void set_step_hook(Session& session, StepHook hook) { session.impl_->hook = std::move(hook); }
  // What the rank did for others in the last run.
  static const std::vector<Help>& helped(Session& session, int rank) {
    return session.impl_->core->local.helped(rank);
  }
};

}  // namespace tessera
