// Every op record, one declaration a line; all.cpp lists them in the order of docs/ops.md.
#pragma once

#include "tessera/op.h"

namespace tessera {

// Component-wise, one input (cwise_unary.cpp, cast.cpp, activations.cpp, gated_activations.cpp)
extern const Op kIdentity;
extern const Op kStopGradient;
extern const Op kNeg;
extern const Op kAbs;
extern const Op kSign;
extern const Op kFloor;
extern const Op kSquare;
extern const Op kSqrt;
extern const Op kRsqrt;
extern const Op kReciprocal;
extern const Op kExp;
extern const Op kLog;
extern const Op kSin;
extern const Op kCos;
extern const Op kErf;
extern const Op kScale;
extern const Op kOffset;
extern const Op kPowScalar;
extern const Op kLogicalNot;
extern const Op kIsFinite;
extern const Op kCast;
extern const Op kTanh;
extern const Op kTanhGrad;
extern const Op kSigmoid;
extern const Op kSigmoidGrad;
extern const Op kSoftplus;
extern const Op kRelu;
extern const Op kReluGrad;
extern const Op kLeakyRelu;
extern const Op kLeakyReluGrad;
extern const Op kElu;
extern const Op kEluGrad;
extern const Op kSelu;
extern const Op kSeluGrad;
extern const Op kSwish;
extern const Op kSwishGrad;
extern const Op kGelu;
extern const Op kGeluGrad;
extern const Op kGeluErf;
extern const Op kGeluErfGrad;

// Component-wise, two and three inputs (cwise_binary.cpp, compare.cpp)
extern const Op kAdd;
extern const Op kSub;
extern const Op kMul;
extern const Op kDiv;
extern const Op kFloordiv;
extern const Op kMod;
extern const Op kPow;
extern const Op kMinimum;
extern const Op kMaximum;
extern const Op kMaximumGrad;
extern const Op kLess;
extern const Op kLessEqual;
extern const Op kGreater;
extern const Op kGreaterEqual;
extern const Op kEqual;
extern const Op kNotEqual;
extern const Op kLogicalAnd;
extern const Op kLogicalOr;
extern const Op kSelect;
extern const Op kSelectEqual;

// Contraction and reductions (einsum.cpp, reduce.cpp, argmax.cpp)
extern const Op kEinsum;
extern const Op kReduceSum;
extern const Op kReduceMean;
extern const Op kReduceMax;
extern const Op kReduceMin;
extern const Op kReduceAny;
extern const Op kReduceAll;
extern const Op kArgmax;

// Normalisation and losses (softmax.cpp, rms_norm.cpp, layer_norm.cpp, cross_entropy.cpp,
// linear_cross_entropy.cpp)
extern const Op kLogSumExp;
extern const Op kLogSumExpGrad;
extern const Op kSoftmax;
extern const Op kSoftmaxGrad;
extern const Op kLogSoftmax;
extern const Op kLayerNorm;
extern const Op kLayerNormGrad;
extern const Op kLayerNormScaleGrad;
extern const Op kRmsNorm;
extern const Op kRmsNormGrad;
extern const Op kRmsNormScaleGrad;
extern const Op kCrossEntropy;
extern const Op kCrossEntropyGrad;
extern const Op kLinearCrossEntropy;
extern const Op kLinearCrossEntropySum;

// Attention (attention.cpp)
extern const Op kAttention;
extern const Op kAttentionGrad;

// Sources and random numbers (source.cpp, random.cpp)
extern const Op kConstant;
extern const Op kConstantValues;
extern const Op kRange;
extern const Op kRandomUniform;
extern const Op kRandomNormal;
extern const Op kRandomTruncatedNormal;
extern const Op kRandomBernoulli;
extern const Op kDropout;

// Data movement (movement.cpp, reshape.cpp, resize.cpp, join.cpp)
extern const Op kBroadcast;
extern const Op kTranspose;
extern const Op kRename;
extern const Op kReshape;
extern const Op kSlice;
extern const Op kPad;
extern const Op kConcat;
extern const Op kSplit;
extern const Op kStack;
extern const Op kUnstack;

// Indexing (index.cpp, dynamic_slice.cpp, top_k.cpp, cumsum.cpp)
extern const Op kOneHot;
extern const Op kGather;
extern const Op kScatterAdd;
extern const Op kDynamicSlice;
extern const Op kUpdateSlice;
extern const Op kTopK;
extern const Op kTopKLocal;
extern const Op kTopKMerge;
extern const Op kCumsum;
extern const Op kCumsumTotals;
extern const Op kCumsumPrefix;
extern const Op kCumsumFrom;

}  // namespace tessera
