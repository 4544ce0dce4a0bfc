// Counts of a program: collectives, bytes per axis, operations of the rank with the largest parts, bytes
// stored.
#include <fmt/format.h>

#include "spmd/steps.h"
#include "tessera/program.h"

namespace tessera {

Type largest_local(const Program& program, int id) {
  const ProgramValue& value = program.values[static_cast<std::size_t>(id)];
  std::vector<Dim> dims = value.type.shape.dims();
  for (std::size_t d = 0; d < dims.size(); ++d)
    dims[d].size = largest_part(program.mesh, value.placement.cuts[d], dims[d].size);
  return {Shape(std::move(dims)), value.type.dtype};
}

namespace {

// What the rank with the largest parts reads of an input of a Contract, on all members together.
Type largest_read(const Program& program, const Step& step, std::size_t i) {
  const ProgramValue& value = program.values[static_cast<std::size_t>(step.in[i])];
  const Type out = largest_local(program, step.out[0]);
  std::vector<Dim> dims = value.type.shape.dims();
  for (std::size_t d = 0; d < dims.size(); ++d) {
    Cut cut = value.placement.cuts[d];
    for (const int axis : step.collective.reduce_axes) std::erase(cut.axes, axis);
    dims[d].size = out.shape.has(dims[d].name) ? out.shape.size(dims[d].name)
                                               : largest_part(program.mesh, cut, dims[d].size);
  }
  return {Shape(std::move(dims)), value.type.dtype};
}

}  // namespace

Call largest_call(const Program& program, const Step& step) {
  Call call = step.call;
  for (std::size_t o = 0; o < step.out.size(); ++o) call.out[o] = largest_local(program, step.out[o]);
  for (std::size_t i = 0; i < step.in.size(); ++i)
    call.in[i] = step.contracts() ? largest_read(program, step, i) : largest_local(program, step.in[i]);
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
    if (runs_op(step) || step.kind == Step::Kind::Fused) {
      result.flops += flops_of(program, step);
      if (runs_op(step) && step.call.op->products != nullptr)
        result.contraction_flops += product_flops(largest_call(program, step));
    }
    if (!step.communicates()) continue;
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
