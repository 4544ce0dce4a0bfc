// Strided batched matrix products with oneDNN.
#include "exec/cpu/dnnl_product.h"

#include <omp.h>

#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <unordered_map>

namespace tessera {
namespace {

constexpr std::size_t kMaxDims = 12;

dnnl::engine& engine() {
  static dnnl::engine instance(dnnl::engine::kind::cpu, 0);
  return instance;
}

std::mutex& creation_lock() {
  static std::mutex instance;
  return instance;
}

// The OpenMP width of the calling thread while it lives: oneDNN plans for the width that it finds.
class Width {
 public:
  explicit Width(int threads) : old_(omp_get_max_threads()) { omp_set_num_threads(threads); }
  ~Width() { omp_set_num_threads(old_); }
  Width(const Width&) = delete;
  Width& operator=(const Width&) = delete;

 private:
  int old_;
};

struct Operand {
  dnnl::memory::dims dims, strides;

  void add(std::int64_t count, std::int64_t stride) {
    dims.push_back(stride == 0 ? 1 : count);
    strides.push_back(stride == 0 ? 1 : stride);
  }
  dnnl::memory::desc desc(dnnl::memory::data_type type) const { return {dims, type, strides}; }
};

ContractionDim last_of(const ContractionDims& dims) {
  return dims.empty() ? ContractionDim{1, 1, 1, 1} : dims.back();
}

bool unit(std::int64_t x, std::int64_t y) {
  return x == 1 || y == 1;
}

// Everything but the innermost rows, columns and k becomes a batch dimension, which takes any stride.
bool describe(const Contraction& contraction, Operand& a, Operand& b, Operand& c) {
  const ContractionDim m = last_of(contraction.m), n = last_of(contraction.n), k = last_of(contraction.k);
  if (contraction.k.size() > 1 || !unit(m.a, k.a) || !unit(k.b, n.b) || n.c != 1) return false;
  if ((contraction.k.size() == 1 && (k.a == 0 || k.b == 0))) return false;
  ContractionDims outer = contraction.batch;
  for (const ContractionDims* group : {&contraction.m, &contraction.n}) {
    if (!group->empty()) outer.insert(outer.end(), group->begin(), group->end() - 1);
  }
  if (outer.size() + 2 > kMaxDims) return false;
  for (const ContractionDim& dim : outer) {
    a.add(dim.count, dim.a);
    b.add(dim.count, dim.b);
    c.add(dim.count, dim.c);
  }
  a.add(m.count, m.a), a.add(k.count, k.a);
  b.add(k.count, k.b), b.add(n.count, n.b);
  c.add(m.count, m.c), c.add(n.count, n.c);
  return true;
}

dnnl::matmul::primitive_desc primitive_for(const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                                           const dnnl::memory::desc& c) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), a, b, c, attributes};
#else
  return {dnnl::matmul::desc(a, b, c), attributes, engine()};
#endif
}

}  // namespace

struct DnnlProduct::Impl {
  dnnl::stream stream{engine()};
  dnnl::matmul primitive;
  dnnl::memory a, b, c, scratch;
  std::unordered_map<int, dnnl::memory> arguments;
};

DnnlProduct::DnnlProduct(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DnnlProduct::~DnnlProduct() = default;

bool DnnlProduct::preferred(DType dtype) {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto has = [&](dnnl::cpu_isa wanted) {
    return (isa & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
  };
  if (dtype == DType::F32) return has(dnnl::cpu_isa::avx512_core);
  return dtype == DType::BF16 && has(dnnl::cpu_isa::avx512_core_bf16);
}

std::unique_ptr<DnnlProduct> DnnlProduct::make(const Contraction& contraction, int threads,
                                               std::int64_t scratch_limit, Form form) {
  Operand a, b, c;
  if (!describe(contraction, a, b, c)) return nullptr;
  const auto type =
      contraction.dtype == DType::BF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  const std::lock_guard lock(creation_lock());
  const Width width(threads);
  try {
    const auto weights =
        form == Form::Plain ? b.desc(type) : dnnl::memory::desc(b.dims, type, dnnl::memory::format_tag::any);
    const auto plan = primitive_for(a.desc(type), weights, c.desc(type));
    const auto scratch = plan.scratchpad_desc();
    if (std::string_view(plan.impl_info_str()).starts_with("ref")) return nullptr;
    if (static_cast<std::int64_t>(scratch.get_size()) > scratch_limit) return nullptr;
    auto impl = std::make_unique<Impl>();
    impl->primitive = dnnl::matmul(plan);
    impl->a = dnnl::memory(plan.src_desc(), engine(), nullptr);
    impl->b = dnnl::memory(plan.weights_desc(), engine(), nullptr);
    impl->c = dnnl::memory(plan.dst_desc(), engine(), nullptr);
    impl->scratch = dnnl::memory(scratch, engine(), nullptr);
    impl->arguments = {{DNNL_ARG_SRC, impl->a},
                       {DNNL_ARG_WEIGHTS, impl->b},
                       {DNNL_ARG_DST, impl->c},
                       {DNNL_ARG_SCRATCHPAD, impl->scratch}};
    return std::unique_ptr<DnnlProduct>(new DnnlProduct(std::move(impl)));
  } catch (const dnnl::error&) {
    return nullptr;  // no implementation for these strides and types on this machine
  }
}

std::int64_t DnnlProduct::weight_bytes() const {
  return static_cast<std::int64_t>(impl_->b.get_desc().get_size());
}

std::int64_t DnnlProduct::scratch_bytes() const {
  return static_cast<std::int64_t>(impl_->scratch.get_desc().get_size());
}

void DnnlProduct::run(const void* a, const void* b, void* c, void* scratch) {
  impl_->a.set_data_handle(const_cast<void*>(a));
  impl_->b.set_data_handle(const_cast<void*>(b));
  impl_->c.set_data_handle(c);
  impl_->scratch.set_data_handle(scratch);
  impl_->primitive.execute(impl_->stream, impl_->arguments);
}

}  // namespace tessera
