// The contraction of two tensors: a matrix product, or plain rows where nothing is used twice.
#include <cstring>

#include "exec/cpu/contraction.h"
#include "exec/cpu/product.h"
#include "exec/cpu/records.h"

namespace tessera {
namespace {

bool supports(const KernelSite& site) {
  return site.in[0].dtype != DType::Bool;
}

std::int64_t workspace(const Call&, const std::vector<Type>& in, const std::vector<Type>& out, int threads) {
  return MatrixProduct::workspace(plan_contraction(in[0], in[1], out[0]), threads);
}

// The same with the inputs in the order of the plan.
template <class Work>
PreparedKernel ordered(bool swapped, Work work) {
  return [swapped, work = std::move(work)](const KernelContext& context, void* scratch) {
    work(context.in[swapped ? 1 : 0].data, context.in[swapped ? 0 : 1].data, context.out[0].data, scratch);
  };
}

PreparedKernel prepare(const KernelSite& site) {
  const Type a{site.in[0].shape, site.in[0].dtype}, b{site.in[1].shape, site.in[1].dtype};
  const Type c{site.out[0].shape, site.out[0].dtype};
  if (a.shape.elements() == 0 || b.shape.elements() == 0) {
    const auto bytes = static_cast<std::size_t>(c.bytes());  // the sum of nothing
    return [bytes](const KernelContext& context, void*) { std::memset(context.out[0].data, 0, bytes); };
  }
  const Contraction contraction = plan_contraction(a, b, c);
  if (contraction.m.empty() || contraction.n.empty()) {
    return ordered(contraction.swapped,
                   [rows = RowProduct(contraction, site.threads)](const void* x, const void* y, void* z,
                                                                  void*) { rows.run(x, y, z); });
  }
  return ordered(contraction.swapped, [product = MatrixProduct(contraction, site.threads)](
                                          const void* x, const void* y, void* z, void* scratch) {
    product.run(x, y, z, scratch);
  });
}

}  // namespace

const CpuKernel kEinsumKernel = {
    .op = "einsum", .supports = supports, .workspace = workspace, .prepare = prepare};

}  // namespace tessera
