// The facts of an explanation, gathered from a program and its memory plan.
#include "spmd/explain.h"

namespace tessera {

const char* to_string(Region region) {
  static const char* const kNames[] = {"forward", "backward", "update"};
  return kNames[static_cast<int>(region)];
}

std::vector<ExplainedCollective> explained_collectives(const Program& program) {
  std::vector<ExplainedCollective> result;
  for (const Step& step : program.steps) {
    if (!step.communicates()) continue;
    const Collective& c = step.collective;
    ExplainedCollective explained;
    explained.region = to_string(step.region);
    explained.kind = to_string(c.kind);
    if (c.reduce != Reduction::None) explained.reduce = to_string(c.reduce);
    explained.dim = c.dim;
    for (const int axis : c.axes) {
      explained.axes += (explained.axes.empty() ? "" : "+") + program.mesh.axis_name(axis);
    }
    explained.name = step.name;
    explained.where = to_string(step.where);
    explained.reason = c.reason;
    explained.bytes = c.bytes;
    for (const Collective::Part& part : c.parts)
      explained.parts.push_back({to_string(part.region),
                                 "",
                                 "",
                                 part.dim,
                                 "",
                                 part.name,
                                 to_string(part.where),
                                 part.reason,
                                 part.bytes,
                                 {}});
    result.push_back(std::move(explained));
  }
  return result;
}

std::vector<ExplainedValue> peak_values(const Program& program, const MemoryPlan& plan) {
  std::vector<std::string> made_at(program.values.size());
  for (const Step& step : program.steps)
    for (const int id : step.out) made_at[static_cast<std::size_t>(id)] = to_string(step.where);
  const std::vector<MemoryClass> classes = value_classes(program);
  std::vector<ExplainedValue> result;
  for (std::size_t i = 0; i < plan.peak_values.size(); ++i) {
    const auto id = static_cast<std::size_t>(plan.peak_values[i]);
    const ProgramValue& value = program.values[id];
    result.push_back({value.name, to_string(value.type),
                      to_string(value.placement, value.type.shape, program.mesh), made_at[id], classes[id],
                      plan.peak_bytes[i]});
  }
  return result;
}

}  // namespace tessera
