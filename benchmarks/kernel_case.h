// A prepared CPU kernel with buffers of its own, for benchmarks.
#pragma once

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "exec/cpu/kernels.h"
#include "tessera/ops.h"

namespace tessera::benchmarks {

class KernelCase {
 public:
  // The kernel runs on the team of the calling thread.
  KernelCase(const std::string& op, const std::vector<std::string>& shapes, const std::vector<DType>& types,
             const Attrs& attrs, int threads = 1)
      : key_(op) {
    call_.op = find_op(op);
    for (std::size_t i = 0; i < shapes.size(); ++i) call_.in.push_back({parse_shape(shapes[i]), types[i]});
    call_.attrs = attrs;
    call_.name = op;
    call_.out = call_.op->infer(call_);
    for (const Type& type : call_.in) in_.push_back(view(type));
    for (const Type& type : call_.out) out_.push_back(view(type));
    const CpuKernel* kernel = find_kernel(op);
    prepared_ = kernel->prepare(KernelSite{call_, in_, out_, threads});
    const std::int64_t bytes = kernel->workspace ? kernel->workspace(call_, call_.in, call_.out, threads) : 0;
    scratch_ = AlignedBuffer(static_cast<std::size_t>(bytes) + 64);
  }

  void run() { prepared_(KernelContext{call_, in_, out_, 1, 1, &key_}, scratch_.data()); }
  const Call& call() const { return call_; }
  const View& in(std::size_t i) const { return in_[i]; }
  const View& out(std::size_t i) const { return out_[i]; }
  double flops() const { return call_.op->flops(call_); }
  std::int64_t bytes() const {
    std::int64_t bytes = 0;
    for (const Type& type : call_.in) bytes += type.bytes();
    for (const Type& type : call_.out) bytes += type.bytes();
    return bytes;
  }

 private:
  // Random values; indices below 1,000.
  View view(const Type& type) {
    buffers_.emplace_back(static_cast<std::size_t>(type.bytes()) + 64);
    View result{buffers_.back().data(), type.dtype, type.shape, {}, {}, {}};
    std::int64_t step = 1;
    result.stride.resize(type.shape.count());
    for (std::size_t d = type.shape.count(); d-- > 0; step *= type.shape[d].size) result.stride[d] = step;
    result.start.assign(type.shape.count(), 0);
    for (const Dim& dim : type.shape) result.full.push_back(dim.size);
    std::mt19937 engine(1);
    std::uniform_real_distribution<float> draw(-1, 1);
    for (std::int64_t i = 0; i < type.shape.elements(); ++i) {
      if (type.dtype == DType::F32) result.as<float>()[i] = draw(engine);
      if (type.dtype == DType::BF16) result.as<bf16>()[i] = bf16(draw(engine));
      if (type.dtype == DType::I32) result.as<std::int32_t>()[i] = static_cast<std::int32_t>(engine() % 1000);
    }
    return result;
  }

  Call call_;
  std::vector<AlignedBuffer> buffers_;
  std::vector<View> in_, out_;
  PreparedKernel prepared_;
  AlignedBuffer scratch_;
  std::string key_;
};

}  // namespace tessera::benchmarks
