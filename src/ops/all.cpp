// The table of contents: every op record, in the order of docs/ops.md.
#include "ops/records.h"
#include "tessera/ops.h"

namespace tessera {
namespace {

constexpr const Op* kAll[] = {
    // Component-wise, one input
    &kIdentity,
    &kStopGradient,
    &kNeg,
    &kAbs,
    &kSign,
    &kFloor,
    &kSquare,
    &kSqrt,
    &kRsqrt,
    &kReciprocal,
    &kExp,
    &kLog,
    &kSin,
    &kCos,
    &kErf,
    &kScale,
    &kOffset,
    &kPowScalar,
    &kLogicalNot,
    &kIsFinite,
    &kCast,
    &kTanh,
    &kTanhGrad,
    &kSigmoid,
    &kSigmoidGrad,
    &kSoftplus,
    &kRelu,
    &kReluGrad,
    &kLeakyRelu,
    &kLeakyReluGrad,
    &kElu,
    &kEluGrad,
    &kSelu,
    &kSeluGrad,
    &kSwish,
    &kSwishGrad,
    &kGelu,
    &kGeluGrad,
    &kGeluErf,
    &kGeluErfGrad,
    // Component-wise, two and three inputs
    &kAdd,
    &kSub,
    &kMul,
    &kDiv,
    &kFloordiv,
    &kMod,
    &kPow,
    &kMinimum,
    &kMaximum,
    &kMaximumGrad,
    &kLess,
    &kLessEqual,
    &kGreater,
    &kGreaterEqual,
    &kEqual,
    &kNotEqual,
    &kLogicalAnd,
    &kLogicalOr,
    &kSelect,
    &kSelectEqual,
    // Contraction and reductions
    &kEinsum,
    &kReduceSum,
    &kReduceMean,
    &kReduceMax,
    &kReduceMin,
    &kReduceAny,
    &kReduceAll,
    &kArgmax,
    // Normalisation and losses
    &kLogSumExp,
    &kLogSumExpGrad,
    &kSoftmax,
    &kSoftmaxGrad,
    &kLogSoftmax,
    &kLayerNorm,
    &kLayerNormGrad,
    &kLayerNormScaleGrad,
    &kRmsNorm,
    &kRmsNormGrad,
    &kRmsNormScaleGrad,
    &kCrossEntropy,
    &kCrossEntropyGrad,
    &kLinearCrossEntropy,
    &kLinearCrossEntropySum,
    // Attention
    &kAttention,
    &kAttentionGrad,
    // Sources and random numbers
    &kConstant,
    &kConstantValues,
    &kRange,
    &kRandomUniform,
    &kRandomNormal,
    &kRandomTruncatedNormal,
    &kRandomBernoulli,
    &kDropout,
    // Data movement
    &kBroadcast,
    &kTranspose,
    &kRename,
    &kReshape,
    &kSlice,
    &kPad,
    &kConcat,
    &kSplit,
    &kStack,
    &kUnstack,
    // Indexing
    &kOneHot,
    &kGather,
    &kScatterAdd,
    &kDynamicSlice,
    &kUpdateSlice,
    &kTopK,
    &kTopKLocal,
    &kTopKMerge,
    &kCumsum,
    &kCumsumTotals,
    &kCumsumPrefix,
    &kCumsumFrom,
};

}  // namespace

std::span<const Op* const> all_ops() {
  return kAll;
}

const Op* find_op(std::string_view name) {
  for (const Op* op : kAll) {
    if (name == op->name) return op;
  }
  return nullptr;
}

}  // namespace tessera
