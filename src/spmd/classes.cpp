// What steps and values are: classes of time and of memory.
#include <algorithm>

#include "spmd/explain.h"
#include "spmd/steps.h"

namespace tessera {

const char* to_string(StepClass c) {
  static const char* const kNames[] = {"contractions",
                                       "attention",
                                       "loss",
                                       "norms and component-wise",
                                       "gradient reduction and optimizer",
                                       "embedding",
                                       "communication and copies"};
  return kNames[static_cast<int>(c)];
}

const char* to_string(MemoryClass c) {
  static const char* const kNames[] = {"parameters",  "slots",   "gradients",
                                       "activations", "buffers", "unused"};
  return kNames[static_cast<int>(c)];
}

namespace {

bool is_movement(const Step& step) {
  switch (step.kind) {
    case Step::Kind::Fill:
    case Step::Kind::Copy:
    case Step::Kind::Slice:
    case Step::Kind::Start:
      return true;
    case Step::Kind::Wait:
      return !step.contracts();
    default:
      return false;
  }
}

bool is_loop(const Step& step) {
  const bool component_wise =
      step.kind == Step::Kind::Fused || (step.kind == Step::Kind::Run && step.call.op->scalar != nullptr);
  return component_wise && step.node_class == StepClass::ComponentWise;
}

// What belongs to the update: its own steps, and in the backward pass the movements and loops whose results
// only such steps read (in the end all of that pass serves the update). Values: those that only such steps
// read, gradients of parameters.
struct UpdateParts {
  std::vector<bool> steps, values;
};

UpdateParts parts_of_update(const Program& program) {
  UpdateParts parts{std::vector<bool>(program.steps.size()), std::vector<bool>(program.values.size())};
  std::vector<bool> elsewhere(program.values.size());
  const auto base = [&](int id) { return static_cast<std::size_t>(base_of(program, id)); };
  const auto only_updates = [&](int id) { return parts.values[base(id)] && !elsewhere[base(id)]; };
  for (const int id : program.fetches) elsewhere[base(id)] = true;
  for (std::size_t s = program.steps.size(); s-- > 0;) {
    const Step& step = program.steps[s];
    if (step.kind == Step::Kind::Free) continue;
    parts.steps[s] = step.region == Region::Update || step.kind == Step::Kind::Assign ||
                     (step.region == Region::Backward && (is_movement(step) || is_loop(step)) &&
                      std::all_of(step.out.begin(), step.out.end(), only_updates));
    for (std::size_t i = 0; i < step.in.size(); ++i) {
      const bool part = !step.collective.parts.empty() && only_updates(step.out[i]);
      (parts.steps[s] || part ? parts.values : elsewhere)[base(step.in[i])] = true;
    }
  }
  for (std::size_t v = 0; v < elsewhere.size(); ++v) parts.values[v] = parts.values[v] && !elsewhere[v];
  return parts;
}

StepClass class_of(const Step& step, bool for_update) {
  if (for_update) return StepClass::Update;
  if (is_movement(step)) return StepClass::Movement;
  if (step.node_class != StepClass::ComponentWise) return step.node_class;
  const bool products = runs_op(step) && step.call.op->products != nullptr;
  return products ? StepClass::Contraction : StepClass::ComponentWise;
}

MemoryClass class_of(const ProgramValue& value) {
  if (value.kind != ProgramValue::Kind::Variable) return MemoryClass::Buffers;
  switch (value.variable_kind) {
    case VariableKind::Parameter:
      return MemoryClass::Parameters;
    case VariableKind::Slot:
      return MemoryClass::Slots;
    case VariableKind::Accumulator:
      return MemoryClass::Gradients;
    default:
      return MemoryClass::Buffers;
  }
}

MemoryClass class_of_result(const Step& step, bool read_by_update) {
  if (step.region == Region::Update) {
    const bool reduced = (step.kind == Step::Kind::Start || step.kind == Step::Kind::Wait) &&
                         step.collective.reduce != Reduction::None;
    return reduced ? MemoryClass::Gradients : MemoryClass::Buffers;
  }
  return read_by_update && step.region == Region::Backward ? MemoryClass::Gradients
                                                           : MemoryClass::Activations;
}

}  // namespace

std::vector<StepClass> step_classes(const Program& program) {
  const UpdateParts update = parts_of_update(program);
  std::vector<StepClass> classes;
  for (std::size_t s = 0; s < program.steps.size(); ++s)
    classes.push_back(class_of(program.steps[s], update.steps[s]));
  return classes;
}

std::vector<MemoryClass> value_classes(const Program& program) {
  const UpdateParts update = parts_of_update(program);
  std::vector<MemoryClass> classes;
  std::vector<bool> of_parameters;  // a parameter, or a copy: gathered, cast
  for (const ProgramValue& value : program.values) {
    classes.push_back(class_of(value));
    of_parameters.push_back(classes.back() == MemoryClass::Parameters);
  }
  for (const Step& step : program.steps) {
    if (step.kind == Step::Kind::Assign || step.kind == Step::Kind::Free) continue;
    const bool copies = !step.in.empty() && std::all_of(step.in.begin(), step.in.end(), [&](int id) {
      return of_parameters[static_cast<std::size_t>(base_of(program, id))];
    });
    for (const int id : step.out) {
      of_parameters[static_cast<std::size_t>(id)] = copies;
      classes[static_cast<std::size_t>(id)] =
          copies ? MemoryClass::Buffers : class_of_result(step, update.values[static_cast<std::size_t>(id)]);
    }
  }
  for (std::size_t v = 0; v < classes.size(); ++v)
    classes[v] = classes[static_cast<std::size_t>(base_of(program, static_cast<int>(v)))];
  return classes;
}

std::int64_t process_bytes(const Mesh& mesh, const ProgramValue& variable) {
  std::int64_t partials = 1;
  for (const int axis : variable.placement.pending_axes()) partials *= mesh.axis_size(axis);
  return partials * variable.type.bytes();
}

MemoryByClass memory_by_class(const Program& program, const MemoryPlan& plan) {
  MemoryByClass memory{};
  const auto add = [&](MemoryClass c, std::int64_t rank, std::int64_t process) {
    memory[static_cast<std::size_t>(c)].rank += rank;
    memory[static_cast<std::size_t>(c)].process += process;
  };
  const std::int64_t ranks = program.mesh.ranks();
  for (const ProgramValue& value : program.values) {
    if (value.kind != ProgramValue::Kind::Variable) continue;
    add(class_of(value),
        largest_elements(program.mesh, value.type.shape, value.placement) *
            static_cast<std::int64_t>(size_of(value.type.dtype)),
        process_bytes(program.mesh, value));
  }
  const std::vector<MemoryClass> classes = value_classes(program);
  std::int64_t workspace = plan.liveness_bound;
  for (std::size_t i = 0; i < plan.peak_values.size(); ++i) {
    const std::int64_t bytes = plan.peak_bytes[i];
    add(classes[static_cast<std::size_t>(plan.peak_values[i])], bytes, ranks * bytes);
    workspace -= bytes;
  }
  add(MemoryClass::Buffers, workspace, ranks * workspace);
  const std::int64_t unused = plan.arena_bytes - plan.liveness_bound;
  add(MemoryClass::Unused, unused, ranks * unused);
  return memory;
}

}  // namespace tessera
