// From a graph's targets to a program that is ready on every rank: lowering, memory plan, variables, arenas,
// kernels.
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/text.h"
#include "exec/session_impl.h"
#include "spmd/steps.h"

namespace tessera {
namespace {

void check_targets(const Graph& graph, const std::vector<Tensor>& targets) {
  TESSERA_CHECK(!targets.empty(),
                "compile: no targets; name the tensors to fetch and the assignments to make");
  for (const Tensor& t : targets)
    TESSERA_CHECK(t.valid() && &t.graph() == &graph, "compile: a target does not belong to the graph");
}

// The biggest tensors at the peak, and the biggest new variables, for people who must make something smaller.
std::string biggest(const CompiledProgram& compiled, const std::vector<StoredVariable>& added) {
  std::vector<std::pair<std::int64_t, std::string>> found;
  for (int id : compiled.plan.peak_values) {
    const ProgramValue& v = compiled.program.values[static_cast<std::size_t>(id)];
    const std::int64_t bytes = largest_elements(compiled.program.mesh, v.type.shape, v.placement) *
                               static_cast<std::int64_t>(size_of(v.type.dtype));
    found.emplace_back(bytes,
                       fmt::format("'{}' {} {} a rank", v.name, to_string(v.type), people_bytes(bytes)));
  }
  for (const StoredVariable& v : added)
    found.emplace_back(bytes_of(v), fmt::format("variable '{}' {} {}", v.variable.name, to_string(v.type),
                                                people_bytes(bytes_of(v))));
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < std::min<std::size_t>(5, found.size()); ++i) lines.push_back(found[i].second);
  return fmt::format("{}", fmt::join(lines, ", "));
}

// What every run asks of a program.
void note_contents(CompiledProgram& compiled) {
  for (const Step& step : compiled.program.steps) {
    if (!step.communicates()) continue;
    ++compiled.collectives;
    compiled.collective_bytes += step.collective.bytes;
  }
  for (std::size_t v = 0; v < compiled.program.values.size(); ++v)
    if (compiled.program.values[v].kind == ProgramValue::Kind::Feed)
      compiled.feeds.push_back(static_cast<int>(v));
  for (const ProgramValue& v : compiled.program.values)
    if (v.variable_kind == VariableKind::Copy && v.view_of < 0) compiled.copies.push_back(v.variable);
  for (const Step& step : compiled.program.steps)
    if (step.kind == Step::Kind::Assign)
      compiled.assigned.push_back(
          compiled.program.values[static_cast<std::size_t>(base_of(compiled.program, step.out[0]))].variable);
  for (const Node& node : compiled.graph->nodes())
    if (node.op == &kInputOp) compiled.inputs.push_back(node.attrs.text("name"));
}

// Further graphs need not have every dimension of the session's layout (decoding has no loss, updates have no
// batch).
Layout relaxed(Layout layout) {
  for (auto* rules : {&layout.compute, &layout.params, &layout.slots})
    for (Rule& rule : *rules) rule.optional = true;
  return layout;
}

}  // namespace

int Session::Impl::compile(const Graph& g, const std::vector<Tensor>& targets, bool pinned) {
  check_targets(g, targets);
  for (std::size_t i = 0; i < core->programs.size(); ++i) {
    const CompiledProgram& known = *core->programs[i];
    if (known.graph == &g && known.targets == targets && known.pinned == pinned) return static_cast<int>(i);
  }
  auto compiled = std::make_unique<CompiledProgram>();
  compiled->graph = &g;
  compiled->targets = targets;
  compiled->pinned = pinned;
  LowerOptions lower_options = options.lower;
  lower_options.pin_all = pinned || options.lower.pin_all;
  lower_options.shared_variables = lower_options.without.count("own_rows") == 0;
  const CpuTarget machine = target(pinned);
  lower_options.target = &machine;
  compiled->program = lower(g, targets, core->mesh, &g == &graph ? layout : relaxed(layout), lower_options);
  options.lower.accumulators = lower_options.accumulators;
  options.lower.copies = lower_options.copies;
  compiled->classes = step_classes(compiled->program);
  note_contents(*compiled);
  compiled->plan = plan_memory(compiled->program, machine);
  std::vector<StoredVariable> added = new_variables(*compiled);
  check_memory(*compiled, added);
  initialise_all(std::move(added));
  grow_arenas(compiled->plan.arena_bytes);
  prepare(*compiled);
  core->programs.push_back(std::move(compiled));
  return static_cast<int>(core->programs.size()) - 1;
}

CpuTarget Session::Impl::target(bool pinned) const {
  const bool in_place = !pinned && !options.lower.pin_all && options.lower.without.count("in_place") == 0;
  return {pool.threads(), in_place, {options.link_latency_seconds, options.link_bytes_per_second}};
}

// The program's variables that the Store lacks; checks those that it has.
std::vector<StoredVariable> Session::Impl::new_variables(const CompiledProgram& compiled) {
  std::vector<StoredVariable> added;
  std::set<std::string> seen;
  for (const ProgramValue& v : compiled.program.values) {
    if (v.kind != ProgramValue::Kind::Variable || !seen.insert(v.variable).second) continue;
    auto known = core->store.impl().variables.find(v.variable);
    if (known == core->store.impl().variables.end()) {
      if (v.variable_kind == VariableKind::Copy) {
        added.push_back(
            lay_out(core->mesh, {v.variable, VariableKind::Copy, v.copy_of, {}, -1}, v.type, v.placement));
        added.back().version = -1;
        continue;
      }
      const Variable* variable = compiled.graph->find_variable(v.variable);
      TESSERA_ASSERT(variable != nullptr, "the program uses the variable '{}', which its graph does not have",
                     v.variable);
      added.push_back(lay_out(core->mesh, *variable, v.type, v.placement));
      continue;
    }
    const StoredVariable& stored = known->second;
    TESSERA_CHECK(stored.type == v.type,
                  "variable '{}' is {} in the session's store, but this graph declares {}", v.variable,
                  to_string(stored.type), to_string(v.type));
    TESSERA_CHECK(
        same_placement(core->mesh, v.type.shape, stored.placement, v.placement),
        "variable '{}' is stored as {}, but this program wants {}; give both programs the same layout",
        v.variable, to_string(stored.placement, v.type.shape, core->mesh),
        to_string(v.placement, v.type.shape, core->mesh));
  }
  return added;
}

void Session::Impl::check_memory(const CompiledProgram& compiled, const std::vector<StoredVariable>& added) {
  std::int64_t variables = 0, held = 0;
  for (const StoredVariable& v : added) variables += bytes_of(v);
  for (const Arena& arena : core->arenas) held += arena.bytes();
  const std::int64_t per_rank = compiled.plan.arena_bytes, ranks = core->mesh.ranks();
  const std::int64_t more = std::max<std::int64_t>(0, per_rank * ranks - held);
  const std::int64_t available = available_memory();
  if (variables + more <= available) return;
  throw SystemError(
      fmt::format("the program needs {} more memory ({} for variables, arenas of {} for {} "
                  "ranks), but only {} is free; the "
                  "largest: {}; split a dimension of these or make the batch smaller",
                  people_bytes(variables + more), people_bytes(variables), people_bytes(per_rank), ranks,
                  people_bytes(available), biggest(compiled, added)),
      ExitCode::Memory);
}

// Every rank draws its slice of each shard that it holds.
void Session::Impl::initialise_all(std::vector<StoredVariable> added) {
  if (added.empty()) return;
  std::vector<StoredVariable*> fresh;
  for (StoredVariable& v : added) fresh.push_back(&core->store.impl().add(std::move(v)));
  const std::uint64_t seed = options.seed;
  pool.run(
      [&fresh, seed](int rank) {
        for (StoredVariable* v : fresh) {
          StoredShard& shard = v->shard(rank);
          const auto [begin, end] = shard.slice_of(rank);
          initialise(*v, shard, seed, begin, end);
        }
      },
      [](const std::vector<int>&) { return true; });
}

// One arena per rank serves all programs: the largest plan counts.
void Session::Impl::grow_arenas(std::int64_t bytes) {
  if (!core->arenas.empty() && core->arenas[0].bytes() >= bytes) return;
  core->arenas.clear();
  for (int r = 0; r < core->mesh.ranks(); ++r) core->arenas.emplace_back(bytes);
  pool.run([this](int rank) { core->arenas[static_cast<std::size_t>(rank)].touch(); },
           [](const std::vector<int>&) { return true; });
  for (auto& program : core->programs)
    for (std::size_t r = 0; r < program->ranks.size(); ++r)
      program->ranks[r]->set_arena(core->arenas[r].data());
}

void Session::Impl::prepare(CompiledProgram& compiled) {
  for (int r = 0; r < core->mesh.ranks(); ++r)
    compiled.ranks.push_back(std::make_unique<RankProgram>(compiled.program, compiled.plan,
                                                           core->world.communicator(r), core->local,
                                                           core->store.impl(), pool.threads()));
  pool.run_in_turn([&](int rank) {
    RankProgram& program = *compiled.ranks[static_cast<std::size_t>(rank)];
    program.prepare();
    program.set_arena(core->arenas[static_cast<std::size_t>(rank)].data());
  });
}

}  // namespace tessera
