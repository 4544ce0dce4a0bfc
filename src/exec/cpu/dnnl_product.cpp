// Strided batched matrix products with oneDNN.
#include "exec/cpu/dnnl_product.h"

#include <omp.h>

#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <unordered_map>

#include "exec/team.h"

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

// oneDNN plans and runs for the OpenMP width that it finds on the calling thread. Ours is always 1: a rank's
// own team does the pieces, and no OpenMP helper spins beside it.
void one_openmp_thread() {
  if (omp_get_max_threads() != 1) omp_set_num_threads(1);
}

// A part of a contraction and where it begins in each tensor, in elements.
struct Part {
  Contraction contraction;
  std::int64_t a = 0, b = 0, c = 0;
};

// Cuts one dimension of the output into a part per thread: one of the batch that has enough, else the longest
// of all. (A packed b belongs to all parts: then only rows.)
std::vector<Part> split(const Contraction& whole, int threads, bool rows_only) {
  std::vector<Part> parts{{whole}};
  const auto dim_in = [&](Contraction& c) -> ContractionDim* {
    ContractionDim* longest = nullptr;
    for (ContractionDims* dims : {&c.batch, &c.m, &c.n}) {
      if (rows_only && dims != &c.m) continue;
      for (ContractionDim& dim : *dims) {
        if (dims == &c.batch && dim.count >= threads && dim.count % threads == 0) return &dim;
        if (longest == nullptr || dim.count > longest->count) longest = &dim;
      }
    }
    return longest;
  };
  const ContractionDim* cut = dim_in(parts[0].contraction);
  if (cut == nullptr || cut->count < threads || threads == 1) return parts;
  const ContractionDim full = *cut;
  parts.assign(static_cast<std::size_t>(threads), {whole});
  for (int t = 0; t < threads; ++t) {
    Part& part = parts[static_cast<std::size_t>(t)];
    const std::int64_t begin = full.count * t / threads, end = full.count * (t + 1) / threads;
    dim_in(part.contraction)->count = end - begin;
    part.a = begin * full.a, part.b = begin * full.b, part.c = begin * full.c;
  }
  return parts;
}

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

dnnl::memory::data_type type_of(DType dtype) {
  return dtype == DType::BF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
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
                                           const dnnl::memory::desc& c, bool accumulate) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (accumulate) {
    dnnl::post_ops sum;
    sum.append_sum();
    attributes.set_post_ops(sum);
  }
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), a, b, c, attributes};
#else
  return {dnnl::matmul::desc(a, b, c), attributes, engine()};
#endif
}

}  // namespace

struct DnnlProduct::Impl {
  struct Piece {
    dnnl::stream stream{engine()};
    dnnl::matmul primitive;
    dnnl::memory a, b, c, scratch;
    std::unordered_map<int, dnnl::memory> arguments;
    std::int64_t a_at = 0, b_at = 0, c_at = 0, scratch_at = 0;  // bytes
  };
  std::vector<Piece> pieces;
  std::int64_t scratch_bytes = 0;

  // False when there is no implementation that needs no copy.
  bool add(const Part& part, Form form) {
    Operand a, b, c;
    const Contraction& whole = part.contraction;
    if (!describe(whole, a, b, c)) return false;
    const auto type = type_of(whole.dtype), result = type_of(whole.result);
    const auto weights =
        form == Form::Plain ? b.desc(type) : dnnl::memory::desc(b.dims, type, dnnl::memory::format_tag::any);
    const auto plan = primitive_for(a.desc(type), weights, c.desc(result), whole.accumulate);
    if (std::string_view(plan.impl_info_str()).starts_with("ref")) return false;
    Piece piece;
    piece.primitive = dnnl::matmul(plan);
    piece.a = dnnl::memory(plan.src_desc(), engine(), nullptr);
    piece.b = dnnl::memory(plan.weights_desc(), engine(), nullptr);
    piece.c = dnnl::memory(plan.dst_desc(), engine(), nullptr);
    piece.scratch = dnnl::memory(plan.scratchpad_desc(), engine(), nullptr);
    piece.arguments = {{DNNL_ARG_SRC, piece.a},
                       {DNNL_ARG_WEIGHTS, piece.b},
                       {DNNL_ARG_DST, piece.c},
                       {DNNL_ARG_SCRATCHPAD, piece.scratch}};
    const auto width = static_cast<std::int64_t>(tessera::size_of(whole.dtype));
    piece.a_at = part.a * width, piece.b_at = part.b * width;
    piece.c_at = part.c * static_cast<std::int64_t>(tessera::size_of(whole.result));
    piece.scratch_at = scratch_bytes;
    scratch_bytes += (static_cast<std::int64_t>(plan.scratchpad_desc().get_size()) + 63) / 64 * 64;
    pieces.push_back(std::move(piece));
    return true;
  }

  static void* at(const void* data, std::int64_t bytes) {
    return const_cast<char*>(static_cast<const char*>(data)) + bytes;
  }
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
  const std::lock_guard lock(creation_lock());
  one_openmp_thread();
  try {
    auto impl = std::make_unique<Impl>();
    for (const Part& part : split(contraction, threads, form == Form::Packed))
      if (!impl->add(part, form)) return nullptr;
    if (impl->scratch_bytes > scratch_limit) return nullptr;
    return std::unique_ptr<DnnlProduct>(new DnnlProduct(std::move(impl)));
  } catch (const dnnl::error&) {
    return nullptr;  // no implementation for these strides and types on this machine
  }
}

std::int64_t DnnlProduct::weight_bytes() const {
  const Impl::Piece& last = impl_->pieces.back();
  return last.b_at + static_cast<std::int64_t>(last.b.get_desc().get_size());
}

std::int64_t DnnlProduct::scratch_bytes() const {
  return impl_->scratch_bytes;
}

void DnnlProduct::run(const void* a, const void* b, void* c, void* scratch) {
  for_each_part(static_cast<int>(impl_->pieces.size()), [&](int part) {
    Impl::Piece& piece = impl_->pieces[static_cast<std::size_t>(part)];
    one_openmp_thread();
    piece.a.set_data_handle(Impl::at(a, piece.a_at));
    piece.b.set_data_handle(Impl::at(b, piece.b_at));
    piece.c.set_data_handle(Impl::at(c, piece.c_at));
    piece.scratch.set_data_handle(Impl::at(scratch, piece.scratch_at));
    piece.primitive.execute(piece.stream, piece.arguments);
  });
}

}  // namespace tessera
