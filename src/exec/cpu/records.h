// Every fast kernel, one declaration a line; table.cpp lists them.
#pragma once

#include "exec/cpu/kernels.h"

namespace tessera {

extern const CpuKernel kEinsumKernel;

// softmax.cpp, cross_entropy.cpp, linear_cross_entropy.cpp, norm.cpp
extern const CpuKernel kSoftmaxKernel;
extern const CpuKernel kSoftmaxGradKernel;
extern const CpuKernel kLogSoftmaxKernel;
extern const CpuKernel kLogSumExpKernel;
extern const CpuKernel kCrossEntropyKernel;
extern const CpuKernel kCrossEntropyGradKernel;
extern const CpuKernel kLinearCrossEntropyKernel;
extern const CpuKernel kLinearCrossEntropySumKernel;
extern const CpuKernel kRmsNormKernel;
extern const CpuKernel kRmsNormGradKernel;
extern const CpuKernel kRmsNormScaleGradKernel;
extern const CpuKernel kLayerNormKernel;
extern const CpuKernel kLayerNormGradKernel;
extern const CpuKernel kLayerNormScaleGradKernel;

// attention.cpp
extern const CpuKernel kAttentionKernel;
extern const CpuKernel kAttentionGradKernel;

// reduce.cpp
extern const CpuKernel kReduceSumKernel;
extern const CpuKernel kReduceMeanKernel;
extern const CpuKernel kReduceMaxKernel;
extern const CpuKernel kReduceMinKernel;

// dropout.cpp, scatter_add.cpp
extern const CpuKernel kDropoutKernel;
extern const CpuKernel kScatterAddKernel;

}  // namespace tessera
