// The list of fast kernels.
#include <array>

#include "exec/cpu/records.h"

namespace tessera {
namespace {

constexpr std::array kKernels = {
    &kEinsumKernel,
    &kSoftmaxKernel,
    &kSoftmaxGradKernel,
    &kLogSoftmaxKernel,
    &kLogSumExpKernel,
    &kCrossEntropyKernel,
    &kCrossEntropyGradKernel,
    &kLinearCrossEntropyKernel,
    &kLinearCrossEntropySumKernel,
    &kRmsNormKernel,
    &kRmsNormGradKernel,
    &kRmsNormScaleGradKernel,
    &kLayerNormKernel,
    &kLayerNormGradKernel,
    &kLayerNormScaleGradKernel,
    &kAttentionKernel,
    &kAttentionGradKernel,
    &kReduceSumKernel,
    &kReduceMeanKernel,
    &kReduceMaxKernel,
    &kReduceMinKernel,
    &kDropoutKernel,
    &kScatterAddKernel,
};

}  // namespace

const CpuKernel* find_kernel(std::string_view op) {
  for (const CpuKernel* kernel : kKernels) {
    if (op == kernel->op) return kernel;
  }
  return nullptr;
}

const CpuKernel* kernel_for(const KernelSite& site) {
  const CpuKernel* kernel = find_kernel(site.call.op->name);
  return kernel != nullptr && kernel->supports(site) ? kernel : nullptr;
}

std::span<const CpuKernel* const> all_kernels() {
  return kKernels;
}

}  // namespace tessera
