// Programs and their explanations as JSON.
#include <nlohmann/json.hpp>

#include "spmd/explain.h"
#include "spmd/steps.h"
#include "tessera/explain.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

Json collectives_json(const Program& program) {
  Json list = Json::array();
  for (const ExplainedCollective& c : explained_collectives(program)) {
    list.push_back({{"region", c.region},
                    {"kind", c.kind},
                    {"reduce", c.reduce},
                    {"dimension", c.dim},
                    {"axes", c.axes},
                    {"bytes", c.bytes},
                    {"op", c.name},
                    {"source", c.where},
                    {"reason", c.reason}});
    for (const ExplainedCollective& part : c.parts)
      list.back()["parts"].push_back({{"region", part.region},
                                      {"dimension", part.dim},
                                      {"bytes", part.bytes},
                                      {"op", part.name},
                                      {"source", part.where},
                                      {"reason", part.reason}});
  }
  return list;
}

Json totals_json(const Program& program) {
  const ProgramStats counts = stats(program);
  return {{"count", counts.count},
          {"bytes_per_axis", counts.bytes_per_axis},
          {"collective_bytes", counts.collective_bytes},
          {"flops", counts.flops},
          {"contraction_flops", counts.contraction_flops}};
}

Json memory_json(const Program& program, const MemoryPlan& plan) {
  Json classes, values = Json::array();
  const MemoryByClass memory = memory_by_class(program, plan);
  for (std::size_t c = 0; c < memory.size(); ++c)
    classes[to_string(static_cast<MemoryClass>(c))] = {{"rank", memory[c].rank},
                                                       {"process", memory[c].process}};
  for (const ExplainedValue& v : peak_values(program, plan)) {
    values.push_back({{"name", v.name},
                      {"type", v.type},
                      {"placement", v.placement},
                      {"class", to_string(v.memory_class)},
                      {"source", v.where},
                      {"bytes", v.bytes}});
  }
  Json json{{"arena_bytes", plan.arena_bytes}, {"liveness_bound", plan.liveness_bound}, {"classes", classes}};
  if (!program.steps.empty()) {
    const Step& step = program.steps[static_cast<std::size_t>(plan.peak_step)];
    json["peak"] = {{"step", plan.peak_step},
                    {"region", to_string(step.region)},
                    {"op", step.name},
                    {"source", to_string(step.where)}};
  }
  json["peak_values"] = values;
  return json;
}

const char* kind_name(Step::Kind kind) {
  static const char* const names[] = {"run",   "fused", "fill",   "copy", "slice",
                                      "start", "wait",  "assign", "free"};
  return names[static_cast<int>(kind)];
}

Json value_json(const Program& program, const ProgramValue& value) {
  static const char* const kinds[] = {"temp", "feed", "variable"};
  Json json{{"name", value.name},
            {"type", to_string(value.type)},
            {"placement", to_string(value.placement, value.type.shape, program.mesh)},
            {"kind", kinds[static_cast<int>(value.kind)]}};
  if (!value.variable.empty()) json["variable"] = value.variable;
  if (value.view_of >= 0) json["view_of"] = value.view_of;
  if (value.own_rows) json["own_rows"] = true;
  return json;
}

Json step_json(const Program& program, const Step& step) {
  Json json{{"kind", kind_name(step.kind)}, {"in", step.in}, {"out", step.out}, {"name", step.name}};
  if (const std::string where = to_string(step.where); !where.empty()) json["source"] = where;
  if (runs_op(step)) json["op"] = step.call.op->name;
  if (step.kind == Step::Kind::Wait) json["start"] = step.start;
  if (!step.communicates()) return json;
  const Collective& c = step.collective;
  Json axes = Json::array();
  for (const int axis : c.axes) axes.push_back(program.mesh.axis_name(axis));
  json["collective"] = {{"kind", to_string(c.kind)},
                        {"reduce", to_string(c.reduce)},
                        {"axes", axes},
                        {"dimension", c.dim},
                        {"bytes", c.bytes},
                        {"reason", c.reason}};
  return json;
}

}  // namespace

std::string explain_json(const Program& program, const MemoryPlan& plan) {
  const Json json{{"mesh", to_string(program.mesh)},          {"ranks", program.mesh.ranks()},
                  {"layout", to_string(program.layout)},      {"steps", program.steps.size()},
                  {"collectives", collectives_json(program)}, {"totals", totals_json(program)},
                  {"memory", memory_json(program, plan)},     {"remarks", program.remarks}};
  return json.dump(1);
}

std::string program_json(const Program& program, const MemoryPlan* plan) {
  Json values = Json::array(), steps = Json::array();
  for (const ProgramValue& value : program.values) values.push_back(value_json(program, value));
  for (const Step& step : program.steps) steps.push_back(step_json(program, step));
  if (plan != nullptr) {
    for (std::size_t v = 0; v < plan->offset.size(); ++v) values[v]["offset"] = plan->offset[v];
  }
  Json json{{"mesh", to_string(program.mesh)},
            {"layout", to_string(program.layout)},
            {"values", values},
            {"steps", steps},
            {"fetches", program.fetches},
            {"remarks", program.remarks}};
  if (plan != nullptr) json["memory"] = memory_json(program, *plan);
  return json.dump(1);
}

}  // namespace tessera
