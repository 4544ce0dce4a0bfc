// The facts of an explanation, gathered from a program and its memory plan.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "spmd/explain.h"

namespace tessera {
namespace {

const char* region_name(Region region) {
  switch (region) {
    case Region::Backward:
      return "backward";
    case Region::Update:
      return "update";
    default:
      return "forward";
  }
}

std::int64_t local_bytes(const Program& program, const ProgramValue& value) {
  return largest_elements(program.mesh, value.type.shape, value.placement) *
         static_cast<std::int64_t>(size_of(value.type.dtype));
}

}  // namespace

std::vector<ExplainedCollective> explained_collectives(const Program& program) {
  std::vector<ExplainedCollective> result;
  for (const Step& step : program.steps) {
    if (step.kind != Step::Kind::Start) continue;
    const Collective& c = step.collective;
    ExplainedCollective explained;
    explained.region = region_name(step.region);
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
    result.push_back(std::move(explained));
  }
  return result;
}

std::vector<ExplainedValue> peak_values(const Program& program, const MemoryPlan& plan) {
  std::vector<ExplainedValue> result;
  for (const int id : plan.peak_values) {
    const ProgramValue& value = program.values[static_cast<std::size_t>(id)];
    result.push_back({value.name, to_string(value.type),
                      to_string(value.placement, value.type.shape, program.mesh),
                      local_bytes(program, value)});
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const ExplainedValue& a, const ExplainedValue& b) { return a.bytes > b.bytes; });
  return result;
}

StoredBytes stored_bytes(const Program& program) {
  std::map<std::string, std::int64_t> variables;
  for (const ProgramValue& value : program.values) {
    if (value.kind == ProgramValue::Kind::Variable) variables[value.variable] = local_bytes(program, value);
  }
  StoredBytes stored;
  for (const auto& [name, bytes] : variables) {
    const std::size_t slash = name.rfind('/');
    const bool slot = slash != std::string::npos && variables.count(name.substr(0, slash)) != 0;
    (slot ? stored.slots : stored.variables) += bytes;
  }
  return stored;
}

}  // namespace tessera
