// Runs of programs on the threads of a session.
#include "tessera/session.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "exec/cpu/narrow.h"
#include "exec/session_impl.h"
#include "lang/reference.h"
#include "spmd/steps.h"

namespace tessera {
namespace {

// Watches a run from the controller's thread: ends it when a rank does not come back.
class Watch {
 public:
  explicit Watch(ThreadsWorld& world) : world_(world) {}

  // False: give up on the ranks that still run.
  bool operator()(const std::vector<int>& running) {
    constexpr double kGraceSeconds = 2, kShortSeconds = 0.2;  // for ranks to notice that the run has failed
    constexpr double kLater = 0.5;  // a member that waits for the same rank gives the better message
    if (world_.failed()) {
      const std::vector<int> blamed = world_.blamed();
      const bool only_they = std::all_of(running.begin(), running.end(), [&](int rank) {
        return std::find(blamed.begin(), blamed.end(), rank) != blamed.end();
      });
      return since(failed_) < (only_they ? kShortSeconds : kGraceSeconds);
    }
    if (static_cast<int>(running.size()) == world_.size() ||
        since(first_done_) < world_.deadline_seconds() + kLater)
      return true;
    std::vector<int> busy;
    for (int rank : running)
      if (!world_.waiting(rank)) busy.push_back(rank);
    if (!busy.empty()) world_.fail_no_progress(busy, "the end of the program");
    return true;
  }

 private:
  // Seconds since the first call with this time.
  static double since(double& time) {
    if (time == 0) time = now();
    return now() - time;
  }

  ThreadsWorld& world_;
  double failed_ = 0, first_done_ = 0;
};

// Waits half a second at most: `fill` itself may be what hangs. Polled, because GCC 12's thread sanitizer
// does not know the lock that a timed mutex uses.
void forget_fill(RunState& state) {
  for (int i = 0; i < 100; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
    const std::unique_lock lock(state.fill_mutex, std::try_to_lock);
    if (!lock.owns_lock()) continue;
    state.fill = nullptr;
    return;
  }
}

}  // namespace

Session::Impl::Impl(const Graph& g, const Mesh& mesh, const Layout& l, SessionOptions o)
    : graph(g),
      layout(l),
      options(std::move(o)),
      core(std::make_shared<SessionCore>(mesh, options)),
      pool(mesh.ranks(), plan_pool(mesh.ranks(), options.pin), core->local.open()) {}

CompiledProgram& Session::Impl::get(int id) {
  TESSERA_CHECK(id >= 0 && id < static_cast<int>(core->programs.size()),
                "session: there is no program {}; compile() returns ids", id);
  return *core->programs[static_cast<std::size_t>(id)];
}

FillFunction Session::Impl::fill_from(int id, const FeedMap& feeds) {
  const CompiledProgram& compiled = get(id);
  for (const auto& [name, array] : feeds) {
    if (std::find(compiled.inputs.begin(), compiled.inputs.end(), name) != compiled.inputs.end()) continue;
    const std::string near = nearest_name(name, compiled.inputs);
    throw UserError(fmt::format("run: a value is fed to '{}', which is no input{}", name,
                                near.empty() ? std::string() : fmt::format("; did you mean '{}'?", near)));
  }
  for (const int feed : compiled.feeds) {
    const ProgramValue& v = compiled.program.values[static_cast<std::size_t>(feed)];
    auto it = feeds.find(v.variable);
    TESSERA_CHECK(it != feeds.end(), "run: the input '{}' {} needs a value, but none is fed", v.variable,
                  to_string(v.type));
    TESSERA_CHECK(it->second.type == v.type, "run: the input '{}' is {}, but {} is fed", v.variable,
                  to_string(v.type), to_string(it->second.type));
  }
  return [&feeds](const std::string& name, const Box& box, void* out) {
    const Array& array = feeds.at(name);
    const Box whole{std::vector<std::int64_t>(array.type.shape.count(), 0), sizes_of(array.type.shape)};
    copy_box(array.data.data(), whole, out, box, box, size_of(array.type.dtype));
  };
}

void Session::Impl::check_windows(const Program& program, const RunOptions& run) const {
  for (const auto& [name, window] : run.windows) {
    for (const ProgramValue& v : program.values) {
      if (!v.type.shape.has(name)) continue;
      const std::int64_t size = v.type.shape.size(name);
      TESSERA_CHECK(window.offset >= 0 && window.offset + size <= window.full,
                    "run: the window of '{}' starts at {} and has {} elements, which is not inside {}", name,
                    window.offset, size, window.full);
    }
  }
}

std::shared_ptr<Results::Impl> Session::Impl::make_results(const Program& program) const {
  auto results = std::make_shared<Results::Impl>();
  for (int id : program.fetches) {
    const ProgramValue& v = program.values[static_cast<std::size_t>(id)];
    Results::Impl::Fetch fetch{v.type, v.name, {}};
    for (int rank = 0; rank < core->mesh.ranks(); ++rank) {
      const Box box = box_of(core->mesh, v.type.shape, v.placement, rank);
      const bool known = std::any_of(fetch.parts.begin(), fetch.parts.end(),
                                     [&](const auto& part) { return part.box == box; });
      if (known || box.empty()) continue;
      fetch.parts.push_back(
          {box, rank,
           std::vector<std::byte>(static_cast<std::size_t>(box.elements()) * size_of(v.type.dtype))});
    }
    results->fetches.push_back(std::move(fetch));
  }
  return results;
}

Results Session::Impl::run(int id, std::shared_ptr<RunState> state, const RunOptions& run) {
  CompiledProgram& compiled = get(id);
  if (core->world.failed())
    throw SystemError("session: an earlier run failed; make a new session (variables can still be read)",
                      ExitCode::PeerLost);
  check_windows(compiled.program, run);
  refresh_copies(compiled);
  state->seed = options.seed;
  state->step = run.step;
  state->windows = run.windows;
  state->results = make_results(compiled.program);
  state->hook = hook;
  state->trace = trace.on();
  core->world.begin_run();
  core->local.begin_run();
  const double begin = now();
  auto job = [state, keep = core, program = &compiled](int rank) {
    try {
      if (!program->ranks[static_cast<std::size_t>(rank)]->run(*state) && !keep->world.failed())
        state->left.store(rank);
    } catch (...) {
      keep->world.fail(rank, std::current_exception());
    }
    keep->world.leave(rank);
  };
  const std::vector<int> lost = pool.run(job, Watch(core->world));
  // A thread that comes back late must not ask the caller for data: what `fill` refers to may be gone.
  if (!lost.empty()) {
    forget_fill(*state);
    for (int rank : lost)
      core->local.reached(rank);  // variables that they wrote before are read after this run
  }
  if (!core->world.failed() && state->left.load() >= 0)
    core->world.fail(state->left.load(), std::make_exception_ptr(SystemError(
                                             "left the program before its end", ExitCode::NoProgress)));
  if (core->world.failed()) {
    if (state->assigned.load()) core->store.impl().torn = true;
    std::rethrow_exception(core->world.cause());
  }
  if (state->assign) note_assigned(compiled);
  add_stats(id, begin, now());
  Results results;
  results.impl_ = state->results;
  return results;
}

// Makes working copies again whose parameter has changed otherwise than by a program that writes both: before
// the first run, after a checkpoint was read.
void Session::Impl::refresh_copies(const CompiledProgram& compiled) {
  struct Stale {
    StoredVariable *copy, *parameter;
  };
  std::vector<Stale> stale;
  for (const std::string& name : compiled.copies) {
    StoredVariable& copy = core->store.impl().get(name);
    StoredVariable& parameter = core->store.impl().get(copy.variable.slot_of);
    if (copy.version != parameter.version) stale.push_back({&copy, &parameter});
  }
  if (stale.empty()) return;
  pool.run_all([&stale](int rank) {
    for (const auto& [copy, parameter] : stale) {
      StoredShard &to = copy->shard(rank), &from = parameter->shard(rank);
      const auto [begin, end] = to.slice_of(rank);
      narrow_sums(reinterpret_cast<const float*>(from.data.data()) + begin,
                  reinterpret_cast<bf16*>(to.data.data()) + begin, end - begin);
    }
  });
  for (const auto& [copy, parameter] : stale) copy->version = parameter->version;
}

void Session::Impl::note_assigned(const CompiledProgram& compiled) {
  Store::Impl& store = core->store.impl();
  for (const std::string& name : compiled.assigned) ++store.get(name).version;
  for (const std::string& name : compiled.assigned) {
    StoredVariable& copy = store.get(name);
    if (copy.variable.kind == VariableKind::Copy) copy.version = store.get(copy.variable.slot_of).version;
  }
}

void Session::Impl::add_stats(int id, double begin, double end) {
  const CompiledProgram& compiled = get(id);
  ++stats.runs;
  stats.seconds += end - begin;
  stats.collectives += compiled.collectives;
  stats.collective_bytes += compiled.collective_bytes;
  const double share = 1.0 / static_cast<double>(compiled.ranks.size());
  for (const auto& rank : compiled.ranks) {
    stats.contraction_seconds += share * rank->contraction_seconds();
    stats.contraction_flops += share * rank->contraction_flops();
    stats.wait_seconds += share * rank->wait_seconds();
  }
  if (trace.on()) add_traced(id, begin, end);
}

// Where the time of a run went: every second of every rank, from the run's begin to its end, is in one place.
void Session::Impl::add_traced(int id, double begin, double end) {
  const CompiledProgram& compiled = get(id);
  std::vector<double>& steps = stats.step_seconds[id];
  steps.resize(compiled.program.steps.size());
  double last = 0;
  for (const auto& rank : compiled.ranks) last = std::max(last, rank->times().end);
  const double share = 1.0 / static_cast<double>(compiled.ranks.size());
  for (std::size_t r = 0; r < compiled.ranks.size(); ++r) {
    const RunTimes& t = compiled.ranks[r]->times();
    stats.host_seconds += share * (t.begin - begin + t.fed - t.feeding + t.end - t.fetching + end - last);
    stats.idle_seconds += share * (last - t.end);
    stats.other_seconds += share * (t.feeding - t.begin + t.fetching - t.stepped);
    const int rank = static_cast<int>(r);
    trace.add_host(rank, "feeds", t.feeding, t.fed);
    for (const TraceEvent& e : compiled.ranks[r]->trace()) {
      const auto s = static_cast<std::size_t>(e.step);
      steps[s] += share * (e.end - e.begin - e.waited - e.helped);
      trace.add(rank, compiled.program.steps[s], compiled.classes[s], e.begin, e.end, e.waited);
    }
    for (const Help& h : core->local.helped(rank)) {  // booked where the work was
      const auto s = static_cast<std::size_t>(h.step);
      steps[s] += share * (h.end - h.begin);
      trace.add(rank, compiled.program.steps[s], compiled.classes[s], h.begin, h.end, 0);
    }
    trace.add_host(rank, "fetches", t.fetching, t.end);
  }
}

Session::Session(const Graph& graph, const Mesh& mesh, const Layout& layout, SessionOptions options)
    : impl_(std::make_unique<Impl>(graph, mesh, layout, std::move(options))) {}
Session::~Session() = default;

int Session::compile(const std::vector<Tensor>& targets) {
  return impl_->compile(impl_->graph, targets, false);
}

int Session::compile(const Graph& graph, const std::vector<Tensor>& targets) {
  return impl_->compile(graph, targets, false);
}

Results Session::run(int program, const FeedMap& feeds, const RunOptions& options) {
  return run(program, impl_->fill_from(program, feeds), options);
}

Results Session::run(int program, const FillFunction& fill, const RunOptions& options) {
  auto state = std::make_shared<RunState>();
  state->fill = fill;
  return impl_->run(program, std::move(state), options);
}

Array Session::inspect(const Tensor& tensor, const FeedMap& feeds, const RunOptions& options) {
  TESSERA_CHECK(tensor.valid(), "inspect: the tensor is empty");
  const int id = impl_->compile(tensor.graph(), {tensor}, true);
  FeedMap used;  // the caller feeds what the whole step needs; the tensor may need less
  for (const ProgramValue& v : program(id).values) {
    auto it = feeds.find(v.variable);
    if (v.kind == ProgramValue::Kind::Feed && it != feeds.end()) used.insert(*it);
  }
  return run(id, used, options).gather(0);
}

std::string Session::first_nonfinite(int program, const FillFunction& fill, const RunOptions& options) {
  const CompiledProgram& compiled = impl_->get(program);
  const int id = impl_->compile(*compiled.graph, compiled.targets, true);
  auto state = std::make_shared<RunState>();
  state->fill = fill;
  state->assign = false;
  state->find_nonfinite = true;
  impl_->run(id, state, options);
  int first = -1;
  for (const auto& rank : impl_->get(id).ranks) {
    const int found = rank->first_nonfinite();
    if (found >= 0 && (first < 0 || found < first)) first = found;
  }
  if (first < 0) return "";
  const Step& step = this->program(id).steps[static_cast<std::size_t>(first)];
  return origin(step.name, to_string(step.where));
}

const Program& Session::program(int id) const {
  return impl_->get(id).program;
}
const MemoryPlan& Session::plan(int id) const {
  return impl_->get(id).plan;
}
Store& Session::store() {
  return impl_->core->store;
}
const Mesh& Session::mesh() const {
  return impl_->core->mesh;
}
const Layout& Session::layout() const {
  return impl_->layout;
}
RunStats Session::stats() const {
  return impl_->stats;
}
void Session::reset_stats() {
  impl_->stats = {};
}
void Session::start_trace() {
  impl_->trace.start();
}
void Session::stop_trace() {
  impl_->trace.stop();
}
void Session::write_trace(const std::string& path) {
  impl_->trace.write(path);
}

std::int64_t Session::arena_bytes_per_rank() const {
  return impl_->core->arenas.empty() ? 0 : impl_->core->arenas[0].bytes();
}

}  // namespace tessera
