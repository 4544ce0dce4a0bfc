// Graph -> Program: the walk over the graph, feeds, variables and assignments.
#include "spmd/lower.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/text.h"
#include "spmd/explain.h"
#include "spmd/passes.h"
#include "spmd/steps.h"

namespace tessera {

Lowering::Lowering(const Mesh& mesh, const Layout& layout, LowerOptions& options)
    : mesh_(mesh), layout_(layout), options_(options) {
  program_.mesh = mesh;
  program_.layout = layout;
}

Program Lowering::run(const Graph& graph, const std::vector<Tensor>& targets) {
  program_.remarks = check_layout(graph, mesh_, layout_);
  Scope scope;
  scope.graph = &graph;
  std::vector<int> order = lowering_order(graph, targets, enabled("early_update"));
  count_uses(scope, order, targets);
  find_gradients(scope, order);
  for (int id : order) {
    lower_node(scope, id);
    emit_ready_assigns(false);
  }
  for (const Tensor& target : targets) {
    if (graph.node(target.node()).op != &kAssignOp) program_.fetches.push_back(lower_fetch(scope, target));
  }
  emit_ready_assigns(true);
  remark_repeated_work();
  return std::move(program_);
}

// What is fetched is handed over at the end of the run, when variables have their new values: one that is
// fetched and assigned is copied before (DESIGN 4.8: a run sees the values before it).
int Lowering::lower_fetch(const Scope& scope, const Tensor& target) {
  const Node& node = scope.graph->node(target.node());
  origin_ = {target.name(), "", node.where};
  int id = scope.value.at({target.node(), target.output()});
  id = reshard(id, home(target.shape(), fmt::format("'{}'", target.name())), "it is fetched");
  const bool overwritten = std::any_of(assigns_.begin(), assigns_.end(), [&](const PendingAssign& assign) {
    return base_of(assign.variable) == base_of(id);
  });
  if (!overwritten) return id;
  const Placement same = value(id).placement;
  return emit_slice(id, same);
}

void Lowering::count_uses(Scope& scope, const std::vector<int>& order,
                          const std::vector<Tensor>& targets) const {
  for (int id : order) {
    const Node& node = scope.graph->node(id);
    Call call = call_of(node);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const Tensor& in = node.inputs[i];
      ++scope.open_uses[{in.node(), in.output()}];
      bool accumulates = false;
      if (node.op == &kAssignOp) {
        const Variable* variable = scope.graph->find_variable(node.attrs.text("name"));
        accumulates = variable != nullptr && variable->kind == VariableKind::Accumulator;
      }
      bool linear = node.op->linear != nullptr && node.op->linear(call, static_cast<int>(i));
      if (!linear && !accumulates) scope.must_complete.insert({in.node(), in.output()});
    }
  }
  for (const Tensor& t : targets) {
    scope.must_complete.insert({t.node(), t.output()});
    ++scope.open_uses[{t.node(), t.output()}];
  }
}

void Lowering::lower_node(Scope& scope, int id) {
  const Node& node = scope.graph->node(id);
  if (!scope.expansion) {
    origin_ = {node.name,      node.key.empty() ? node.name : node.key,
               node.where,     scope.storage_of.count(&node) != 0 ? Region::Update : node.region,
               node.recompute, node.op->step_class};
  }
  if (node.op == &kInputOp) {
    lower_feed(scope, id);
  } else if (node.op == &kVariableOp) {
    lower_variable(scope, id);
  } else if (node.op == &kAssignOp) {
    lower_assign(scope, id);
  } else {
    std::vector<int> inputs;
    for (const Tensor& in : node.inputs) {
      if (scope.value.count({in.node(), in.output()}) == 0) lower_accumulator(scope, in.node(), node);
      inputs.push_back(scope.value.at({in.node(), in.output()}));
    }
    std::vector<int> outputs = lower_op(scope, node, inputs);
    for (std::size_t o = 0; o < outputs.size(); ++o) set_value(scope, {id, static_cast<int>(o)}, outputs[o]);
  }
  for (const Tensor& in : node.inputs) {
    TensorId tensor{in.node(), in.output()};
    --scope.open_uses[tensor];
    if (auto it = open_reads_.find(base_of(scope.value.at(tensor))); it != open_reads_.end()) --it->second;
  }
}

void Lowering::set_value(Scope& scope, TensorId tensor, int id) {
  scope.value[tensor] = id;
  int base = base_of(id);
  if (value(base).kind == ProgramValue::Kind::Variable) open_reads_[base] += scope.open_uses[tensor];
}

void Lowering::lower_feed(Scope& scope, int id) {
  if (scope.value.count({id, 0}) != 0) return;  // an expansion's input
  const Node& node = scope.graph->node(id);
  ProgramValue feed{.name = node.name,
                    .type = node.outputs[0],
                    .placement = home(node.outputs[0].shape, fmt::format("input '{}'", node.name))};
  feed.kind = ProgramValue::Kind::Feed;
  feed.variable = node.attrs.text("name");
  set_value(scope, {id, 0}, new_value(std::move(feed)));
}

void Lowering::lower_variable(Scope& scope, int id) {
  if (scope.value.count({id, 0}) != 0) return;  // an assignment came first
  const Node& node = scope.graph->node(id);
  const std::string& name = node.attrs.text("name");
  const Variable* variable = scope.graph->find_variable(name);
  TESSERA_ASSERT(variable != nullptr, "variable node '{}' without a variable", name);
  auto known = options_.accumulators.find(name);
  if (variable->kind == VariableKind::Accumulator && known == options_.accumulators.end())
    return;  // lower_accumulator
  ProgramValue result{.name = name, .type = node.outputs[0], .placement = {}};
  result.kind = ProgramValue::Kind::Variable;
  result.variable = name;
  result.variable_kind = variable->kind;
  if (known != options_.accumulators.end()) {
    result.placement = known->second;
  } else {
    result.placement = storage_placement(mesh_, layout_, *variable, node.outputs[0].shape, &program_.remarks);
  }
  variables_[name] = new_value(std::move(result));
  set_value(scope, {id, 0}, variables_[name]);
}

// An accumulator lives where its first addition finds the summand: in the parameter's storage placement when
// storage rules split that, else with the summand's sums pending, so that they are reduced once and not for
// every micro-batch (DESIGN 4.6).
void Lowering::lower_accumulator(Scope& scope, int id, const Node& consumer) {
  const Node& node = scope.graph->node(id);
  const std::string& name = node.attrs.text("name");
  const Shape& shape = node.outputs[0].shape;
  const Variable* variable = scope.graph->find_variable(name);
  Variable slot = *variable;
  slot.kind = VariableKind::Slot;
  Placement stored = storage_placement(mesh_, layout_, slot, shape);
  Placement whole = home(shape, fmt::format("variable '{}'", name));
  if (same_placement(mesh_, shape, stored, whole)) {
    for (const Tensor& other : consumer.inputs) {
      auto it = scope.value.find({other.node(), other.output()});
      if (it == scope.value.end() || !(value(it->second).type.shape == shape)) continue;
      const Placement& placement = value(it->second).placement;
      Placement complete = placement;
      complete.pending = stored.pending;
      if (same_placement(mesh_, shape, complete, stored)) stored.pending = placement.pending;
    }
  }
  options_.accumulators[name] = stored;
  lower_variable(scope, id);
}

void Lowering::lower_assign(Scope& scope, int id) {
  const Node& node = scope.graph->node(id);
  const std::string& name = node.attrs.text("name");
  const Variable* variable = scope.graph->find_variable(name);
  TESSERA_ASSERT(variable != nullptr, "assignment to unknown variable '{}'", name);
  auto it = variables_.find(name);
  if (it == variables_.end()) {
    bool placed = options_.accumulators.count(name) != 0;
    if (variable->kind == VariableKind::Accumulator && !placed) {
      lower_accumulator(scope, variable->node, node);
    } else {
      lower_variable(scope, variable->node);
    }
    it = variables_.find(name);
  }
  const Tensor& in = node.inputs[0];
  int source = scope.value.at({in.node(), in.output()});
  Placement wanted = value(it->second).placement;  // a copy: reshard adds values
  const Placement now = value(source).placement;
  if (options_.shared_variables && !same_placement(mesh_, in.shape(), now, wanted) &&
      are_own_rows(in.shape(), now, wanted)) {
    assigns_.push_back({source, reshard(it->second, now, ""), origin_});
    return assign_copy(name, source);
  }
  int stored = reshard(source, wanted, fmt::format("variable '{}' is stored so", name));
  assigns_.push_back({stored, it->second, origin_});
  assign_copy(name, stored);
}

void Lowering::emit_ready_assigns(bool all) {
  std::vector<PendingAssign> waiting;
  for (PendingAssign& assign : assigns_) {
    const bool open =
        open_reads_[base_of(assign.variable)] > 0 || (assign.master >= 0 && open_reads_[assign.master] > 0);
    if (!all && open) {
      waiting.push_back(std::move(assign));
      continue;
    }
    const OriginScope scope(*this, assign.origin);
    Step step;
    step.kind = Step::Kind::Assign;
    step.in = {assign.value};
    step.out = {assign.variable};
    emit(std::move(step));
  }
  assigns_ = std::move(waiting);
}

void Lowering::remark_repeated_work() {
  for (const auto& [axis, flops] : repeated_) {
    if (heavy_flops_ == 0 || flops / heavy_flops_ < 0.01 || mesh_.axis_size(axis) == 1) continue;
    program_.remarks.push_back(fmt::format(
        "axis '{}' splits nothing in {:.0f} % of the contraction work: those flops are repeated {}x",
        mesh_.axis_name(axis), 100 * flops / heavy_flops_, mesh_.axis_size(axis)));
  }
}

int Lowering::new_value(ProgramValue v) {
  v.name = fresh_name(v.name);
  program_.values.push_back(std::move(v));
  return static_cast<int>(program_.values.size()) - 1;
}

std::string Lowering::fresh_name(const std::string& base) {
  int n = value_names_[base]++;
  return n == 0 ? base : fmt::format("{}#{}", base, n);
}

Step& Lowering::emit(Step step) {
  step.name = origin_.name;
  step.key = origin_.key;
  step.where = origin_.where;
  step.region = origin_.region;
  step.node_class = origin_.node_class;
  program_.steps.push_back(std::move(step));
  return program_.steps.back();
}

int Lowering::base_of(int id) const {
  return tessera::base_of(program_, id);
}

Cut Lowering::home_cut(const Dim& dim) const {
  return home_placement(mesh_, layout_, Shape({dim}), dim.name).cuts[0];
}

namespace {

// What a rank's arena may take, by the budget; no limit without one.
std::int64_t arena_budget(const Program& program, std::int64_t memory_bytes) {
  if (memory_bytes == 0) return std::numeric_limits<std::int64_t>::max();
  std::int64_t variables = 0;
  for (const ProgramValue& value : program.values)
    if (value.kind == ProgramValue::Kind::Variable) variables += process_bytes(program.mesh, value);
  TESSERA_CHECK(variables <= memory_bytes,
                "the variables alone take {} in a process of all ranks; the budget is {}: split a dimension "
                "of theirs, or choose an optimizer with smaller slots",
                people_bytes(variables), people_bytes(memory_bytes));
  return (memory_bytes - variables) / program.mesh.ranks();
}

// The passes that look at the whole program's time and memory.
Program in_budget(Program program, const LowerOptions& options) {
  const Target& target = *options.target;
  const std::int64_t budget = arena_budget(program, options.memory_bytes);
  if (options.memory_bytes > 0) {
    program = recompute(std::move(program), target, budget);
    const std::int64_t needed = plan_memory(program, target).arena_bytes, ranks = program.mesh.ranks();
    TESSERA_CHECK(
        needed <= budget,
        "the arenas of {} ranks need {}, whatever is computed again; the budget of {} leaves {} for "
        "them: make the batch smaller, take more micro-batches or split another dimension",
        ranks, people_bytes(ranks * needed), people_bytes(options.memory_bytes),
        people_bytes(ranks * budget));
  }
  const auto run = [&](const char* name, Program (*pass)(Program, const Target&)) {
    if (options.without.count(name) != 0) return;
    if (options.memory_bytes == 0) {
      program = pass(std::move(program), target);
      return;
    }
    Program next = pass(program, target);
    if (plan_memory(next, target).arena_bytes <= budget) program = std::move(next);
  };
  run("buckets", buckets);
  run("overlap", overlap);
  return program;
}

}  // namespace

Program lower(const Graph& graph, const std::vector<Tensor>& targets, const Mesh& mesh, const Layout& layout,
              LowerOptions& options) {
  check_passes(options.without);
  Program program = Lowering(mesh, layout, options).run(graph, targets);
  drop_unread(program);
  if (options.without.count("fuse") == 0 && !options.pin_all) program = fuse(std::move(program));
  if (options.target != nullptr && !options.pin_all) program = in_budget(std::move(program), options);
  if (!options.pin_all) insert_frees(program);
  verify(program);
  return program;
}

}  // namespace tessera
