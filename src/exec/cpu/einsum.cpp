// The contraction of two tensors: by oneDNN, by our own blocked product, or by plain rows where nothing is
// used twice.
#include <algorithm>
#include <cstring>

#include "exec/cpu/contraction.h"
#include "exec/cpu/dnnl_product.h"
#include "exec/cpu/records.h"

namespace tessera {
namespace {

// Enough for either orientation of the product and, being a function of sizes alone, for every smaller part.
std::int64_t scratch_bytes(const Contraction& contraction, int threads) {
  const std::int64_t m = size_of(contraction.m), n = size_of(contraction.n), k = size_of(contraction.k);
  const DType dtype = contraction.dtype;
  return std::max(gemm_workspace(dtype, m, n, k, threads), gemm_workspace(dtype, n, m, k, threads));
}

bool supports(const KernelSite& site) {
  return site.in[0].dtype != DType::Bool;
}

std::int64_t workspace(const Call&, const std::vector<Type>& in, const std::vector<Type>& out, int threads) {
  return scratch_bytes(plan_contraction(in[0], in[1], out[0]), threads);
}

// The same with the inputs in the order of the plan.
template <class Product>
PreparedKernel ordered(bool swapped, Product product) {
  return [swapped, product = std::move(product)](const KernelContext& context, void* scratch) {
    product(context.in[swapped ? 1 : 0].data, context.in[swapped ? 0 : 1].data, context.out[0].data, scratch);
  };
}

PreparedKernel blocked(const Contraction& contraction, int threads) {
  auto plan = std::make_shared<GemmPlan>();
  plan->dtype = contraction.dtype;
  plan->threads = threads;
  for (const ContractionDim& dim : contraction.batch) plan->batch.push_back({dim.count, dim.a, dim.b, dim.c});
  plan->a_m = index_of(contraction.m, &ContractionDim::a);
  plan->c_m = index_of(contraction.m, &ContractionDim::c);
  plan->a_k = index_of(contraction.k, &ContractionDim::a);
  plan->b_k = index_of(contraction.k, &ContractionDim::b);
  plan->b_n = index_of(contraction.n, &ContractionDim::b);
  plan->c_n = index_of(contraction.n, &ContractionDim::c);
  return ordered(contraction.swapped, [plan](const void* a, const void* b, void* c, void* scratch) {
    gemm(*plan, a, b, c, scratch);
  });
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
  if (DnnlProduct::preferred(contraction.dtype)) {
    const std::int64_t limit = scratch_bytes(contraction, site.threads);
    if (std::shared_ptr<DnnlProduct> product = DnnlProduct::make(contraction, site.threads, limit)) {
      return ordered(contraction.swapped, [product](const void* x, const void* y, void* z, void* scratch) {
        product->run(x, y, z, scratch);
      });
    }
  }
  return blocked(contraction, site.threads);
}

}  // namespace

const CpuKernel kEinsumKernel = {
    .op = "einsum", .supports = supports, .workspace = workspace, .prepare = prepare};

}  // namespace tessera
