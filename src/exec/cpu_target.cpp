// Workspaces and in-place rules of the CPU kernels.
#include "exec/cpu_target.h"

#include "exec/cpu/fused_sum.h"
#include "exec/cpu/kernels.h"
#include "exec/cpu/parted_product.h"
#include "lang/reference.h"
#include "spmd/steps.h"

namespace tessera {

std::int64_t CpuTarget::workspace(const Step& step, const std::vector<Type>& in,
                                  const std::vector<Type>& out) const {
  if (step.kind == Step::Kind::Fused) {
    std::int64_t bytes = 0;
    for (std::size_t o = 0; o < out.size(); ++o)
      if (step.is_sum(o)) bytes += FusedSums::workspace(out[o].shape.elements());
    return bytes;
  }
  if (step.contracts()) return PartedProduct::workspace(in[0], in[1], out[0], threads_);
  if (step.kind != Step::Kind::Run) return 0;
  const CpuKernel* kernel = find_kernel(step.call.op->name);
  if (kernel == nullptr || kernel->workspace == nullptr) return 0;
  for (const Type& type : out)
    if (type.shape.elements() == 0) return 0;
  return kernel->workspace(step.call, in, out, threads_);
}

// Rates of a fast core: more work than needed lies over a collective rather than too little.
double CpuTarget::work_seconds(const Program& program, const Step& step) const {
  constexpr double kFlopsPerSecond = 80e9;
  if (step.kind == Step::Kind::Start || (step.kind == Step::Kind::Wait && !step.contracts())) return 0;
  std::int64_t bytes = 0;
  for (const std::vector<int>* ids : {&step.in, &step.out})
    for (const int id : *ids) bytes += largest_local(program, id).bytes();
  const double flops = runs_op(step) ? product_flops(largest_call(program, step)) : 0;
  return flops / (kFlopsPerSecond * threads_) + memory_seconds(bytes);
}

double CpuTarget::memory_seconds(std::int64_t bytes) const {
  constexpr double kBytesPerSecond = 8e9;
  return static_cast<double>(bytes) / kBytesPerSecond;
}

double CpuTarget::wire_seconds(const Collective& collective) const {
  return link_.seconds(collective.bytes);
}

bool CpuTarget::in_place(const Step& step, int in, int out) const {
  if (!in_place_) return false;
  if (step.kind == Step::Kind::Fused || step.kind == Step::Kind::Start) return true;
  const CpuKernel* kernel = find_kernel(step.call.op->name);
  if (kernel != nullptr) return kernel->in_place != nullptr && kernel->in_place(step.call, in, out);
  return step.call.op->scalar != nullptr;
}

std::string CpuTarget::kernel_of(const Program& program, const BoundProgram& bound, const Step& step) const {
  switch (step.kind) {
    case Step::Kind::Run:
      break;
    case Step::Kind::Fused:
      return "fused";
    case Step::Kind::Fill:
      return "fill";
    case Step::Kind::Copy:
    case Step::Kind::Slice:
      return "copy";
    case Step::Kind::Wait:
      return step.contracts() ? "contract" : "";
    default:
      return "";
  }
  std::vector<View> in, out;
  for (auto [ids, views] : {std::pair(&step.in, &in), std::pair(&step.out, &out)}) {
    for (const int id : *ids) {
      const auto v = static_cast<std::size_t>(id);
      views->push_back(make_view(nullptr, program.values[v].type, bound.boxes[v]));
    }
  }
  const std::string name = step.call.op->name;
  if (kernel_for({step.call, in, out, threads_}) != nullptr) return name;
  return step.call.op->scalar != nullptr ? "fused" : "reference " + name;
}

}  // namespace tessera
