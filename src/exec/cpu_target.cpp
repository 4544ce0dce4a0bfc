// Workspaces and in-place rules of the CPU kernels.
#include "exec/cpu_target.h"

#include "exec/cpu/kernels.h"

namespace tessera {

std::int64_t CpuTarget::workspace(const Step& step, const std::vector<Type>& in,
                                  const std::vector<Type>& out) const {
  if (step.kind != Step::Kind::Run) return 0;
  const CpuKernel* kernel = find_kernel(step.call.op->name);
  if (kernel == nullptr || kernel->workspace == nullptr) return 0;
  for (const Type& type : out)
    if (type.shape.elements() == 0) return 0;
  return kernel->workspace(step.call, in, out, threads_);
}

bool CpuTarget::in_place(const Step& step, int in, int out) const {
  if (!in_place_) return false;
  if (step.kind == Step::Kind::Fused || step.kind == Step::Kind::Start) return true;
  const CpuKernel* kernel = find_kernel(step.call.op->name);
  if (kernel != nullptr) return kernel->in_place != nullptr && kernel->in_place(step.call, in, out);
  return step.call.op->scalar != nullptr;
}

}  // namespace tessera
