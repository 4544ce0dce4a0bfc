// Running programs: the Store of variables, and the Session that compiles and runs programs on a mesh of
// threads.
//
//   Session s(g, mesh, layout);                                   // variables are initialised on first use
//   auto step = s.compile({loss, update1, update2});              // fetches and assignments
//   Results r = s.run(step, {{"images", x}, {"labels", y}});
//   double l = r.scalar(0);
//
// Threads: use one Session from one thread at a time. A failing rank makes run() throw SystemError naming it;
// the session is then unusable except for reading variables.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/array.h"
#include "tessera/program.h"

namespace tessera {

struct SessionOptions {
  std::uint64_t seed = 1;
  double deadline_seconds = 300;  // a rank that does not reach a collective within it ends the run
  bool random_delays = false;     // tests: sleep a random time at every collective
  // Collectives take time by themselves, as between machines: latency + payload / rate each, one after the
  // other, while the ranks may compute. For tests and studies. 0: no network.
  double link_latency_seconds = 0, link_bytes_per_second = 0;
  // Every thread of every rank stays on a processor of its own, if there are enough in the process' affinity
  // mask. Off where the environment has TESSERA_PIN=off. Say false for a session that shares the machine with
  // other busy threads, such as a second session.
  bool pin = true;
  LowerOptions lower;
};

// Values for a run's inputs. Pulled: each rank asks for its own part.
using FillFunction = std::function<void(const std::string& name, const Box& box, void* out)>;
using FeedMap = std::map<std::string, Array>;

// The run covers [offset, offset + size of the dimension) of a larger dimension of size `full`
// (micro-batches): random ops and View::start of that dimension count in the large one.
struct Window {
  std::int64_t offset = 0, full = 0;
};

struct RunOptions {
  std::int64_t step = 0;                  // seeds random ops
  std::map<std::string, Window> windows;  // by dimension name
};

class Results {
 public:
  struct Impl;
  double scalar(std::size_t fetch) const;  // of a scalar fetch
  Array gather(std::size_t fetch) const;   // the whole tensor, put together from the shards of all ranks
  // Calls `visit` for each distinct shard held by this process.
  void shards(std::size_t fetch, const std::function<void(const Box&, const void*)>& visit) const;

 private:
  friend class Session;
  std::shared_ptr<Impl> impl_;
};

// Variables by name: shape, placement, shards. Programs borrow them by name; ranks of one process that hold
// the same box share one buffer.
class Store {
 public:
  Store();
  ~Store();
  std::vector<std::string> names() const;
  bool has(const std::string& name) const;
  Type type(const std::string& name) const;
  VariableKind kind(const std::string& name) const;
  Array read(const std::string& name) const;  // whole tensor
  void read(const std::string& name, const Box& box, void* out) const;
  void write(const std::string& name, const Array& value);  // throws UserError when the type differs
  void write(const std::string& name, const Box& box, const void* data);
  // Each distinct shard once: what a checkpoint of this process holds.
  void shards(const std::string& name, const std::function<void(const Box&, const void*)>& visit) const;
  std::int64_t bytes() const;                  // of this process, shared buffers once
  std::int64_t bytes_of_rank(int rank) const;  // what a rank holds, shared buffers counted for each
  bool torn() const;                           // a failed step left updates half done

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Counts of one run or of many.
struct RunStats {
  std::int64_t runs = 0;
  double seconds = 0;                 // wall time inside run()
  std::int64_t collectives = 0;       // of one rank
  std::int64_t collective_bytes = 0;  // payload of one rank
  double contraction_seconds = 0;     // time in contractions, mean over ranks
  double contraction_flops = 0;       // mean over ranks
  double wait_seconds = 0;            // time waiting for other ranks, mean over ranks

  // Of traced runs alone (start_trace), means over ranks. seconds = host + idle + other + wait_seconds and
  // all steps.
  double host_seconds = 0;                          // waking the ranks, their feeds and fetches, coming back
  double idle_seconds = 0;                          // ranks that have ended, until the last one has
  double other_seconds = 0;                         // in the ranks' loops, but in no step
  std::map<int, std::vector<double>> step_seconds;  // by program: every step's, but for its waiting
};

class Session {
 public:
  Session(const Graph& graph, const Mesh& mesh, const Layout& layout, SessionOptions options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Lowers and plans; variables it needs and the Store lacks are initialised. The same targets give the same
  // program.
  int compile(const std::vector<Tensor>& targets);
  // The same on another graph whose variables share names, types and layout with this session's Store
  // (evaluation, decoding, other batch shapes). The graph must outlive the session.
  int compile(const Graph& graph, const std::vector<Tensor>& targets);

  Results run(int program, const FeedMap& feeds = {}, const RunOptions& options = {});
  Results run(int program, const FillFunction& fill, const RunOptions& options = {});

  // Value of any tensor of a compiled program, computed by a program in which nothing is fused or
  // overwritten.
  Array inspect(const Tensor& tensor, const FeedMap& feeds, const RunOptions& options = {});
  // The first step whose result holds a NaN or +infinity (masks are -infinity): "ffn/einsum_2 (model.cc:88)",
  // "" when none.
  std::string first_nonfinite(int program, const FillFunction& fill, const RunOptions& options = {});

  const Program& program(int id) const;
  const MemoryPlan& plan(int id) const;
  Store& store();
  const Mesh& mesh() const;
  const Layout& layout() const;
  std::int64_t arena_bytes_per_rank() const;
  RunStats stats() const;
  void reset_stats();
  // Records the runs between start_trace, which forgets earlier ones, and stop_trace; write_trace writes them
  // as a Chrome / Perfetto trace: a lane per rank, steps named by source line.
  void start_trace();
  void stop_trace();
  void write_trace(const std::string& path);

 private:
  friend struct SessionHooks;  // fault injection by tests
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
