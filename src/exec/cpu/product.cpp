// The choice between oneDNN and the blocked product.
#include "exec/cpu/product.h"

#include <algorithm>

namespace tessera {
namespace {

std::shared_ptr<const GemmPlan> blocked_plan(const Contraction& contraction, int threads) {
  auto plan = std::make_shared<GemmPlan>();
  plan->dtype = contraction.dtype;
  plan->result = contraction.result;
  plan->accumulate = contraction.accumulate;
  plan->threads = threads;
  for (const ContractionDim& dim : contraction.batch) plan->batch.push_back({dim.count, dim.a, dim.b, dim.c});
  plan->a_m = index_of(contraction.m, &ContractionDim::a);
  plan->c_m = index_of(contraction.m, &ContractionDim::c);
  plan->a_k = index_of(contraction.k, &ContractionDim::a);
  plan->b_k = index_of(contraction.k, &ContractionDim::b);
  plan->b_n = index_of(contraction.n, &ContractionDim::b);
  plan->c_n = index_of(contraction.n, &ContractionDim::c);
  return plan;
}

}  // namespace

std::int64_t MatrixProduct::workspace(const Contraction& contraction, int threads) {
  const std::int64_t m = size_of(contraction.m), n = size_of(contraction.n), k = size_of(contraction.k);
  const auto bytes = [&](std::int64_t rows, std::int64_t columns) {
    return gemm_workspace(contraction.dtype, contraction.result, rows, columns, k, threads);
  };
  return std::max(bytes(m, n), bytes(n, m));
}

MatrixProduct::MatrixProduct(const Contraction& contraction, int threads) {
  if (DnnlProduct::preferred(contraction.dtype))
    dnnl_ = DnnlProduct::make(contraction, threads, workspace(contraction, threads));
  if (dnnl_ == nullptr) blocked_ = blocked_plan(contraction, threads);
}

void MatrixProduct::run(const void* a, const void* b, void* c, void* scratch) const {
  if (dnnl_ != nullptr) return dnnl_->run(a, b, c, scratch);
  gemm(*blocked_, a, b, c, scratch);
}

}  // namespace tessera
