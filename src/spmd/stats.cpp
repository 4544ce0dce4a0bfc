// Counts of a program: collectives, bytes per axis, operations of the rank with the largest parts, bytes
// stored.
#include <fmt/format.h>

#include "tessera/program.h"

namespace tessera {

Type largest_local(const Program& program, int id) {
  const ProgramValue& value = program.values[static_cast<std::size_t>(id)];
  std::vector<Dim> dims = value.type.shape.dims();
  for (std::size_t d = 0; d < dims.size(); ++d)
    dims[d].size = largest_part(program.mesh, value.placement.cuts[d], dims[d].size);
  return {Shape(std::move(dims)), value.type.dtype};
}

Call largest_call(const Program& program, const Step& step) {
  Call call = step.call;
  for (std::size_t i = 0; i < step.in.size(); ++i) call.in[i] = largest_local(program, step.in[i]);
  for (std::size_t o = 0; o < step.out.size(); ++o) call.out[o] = largest_local(program, step.out[o]);
  return call;
}

namespace {

double flops_of(const Program& program, const Step& step) {
  if (step.kind == Step::Kind::Fused) {
    return static_cast<double>(step.code.code.size()) *
           static_cast<double>(largest_local(program, step.loop).shape.elements());
  }
  const Call local = largest_call(program, step);
  if (local.op->flops != nullptr) return local.op->flops(local);
  return static_cast<double>(local.out.at(0).shape.elements());
}

}  // namespace

ProgramStats stats(const Program& program) {
  ProgramStats result;
  for (const Step& step : program.steps) {
    if (step.kind == Step::Kind::Run || step.kind == Step::Kind::Fused) {
      result.flops += flops_of(program, step);
      if (step.kind == Step::Kind::Run && step.call.op->products != nullptr)
        result.contraction_flops += product_flops(largest_call(program, step));
    }
    if (step.kind != Step::Kind::Start) continue;
    const Collective& c = step.collective;
    std::string axes;
    for (int axis : c.axes) axes += (axes.empty() ? "" : "+") + program.mesh.axis_name(axis);
    ++result.count[to_string(c.kind)];
    result.bytes_per_axis[axes] += c.bytes;
    result.collective_bytes += c.bytes;
  }
  for (const ProgramValue& value : program.values) {
    if (value.kind != ProgramValue::Kind::Variable) continue;
    result.variable_bytes += largest_elements(program.mesh, value.type.shape, value.placement) *
                             static_cast<std::int64_t>(size_of(value.type.dtype));
  }
  return result;
}

}  // namespace tessera
