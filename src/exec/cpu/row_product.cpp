// Products without reuse: for every element of the output a dot product, or a row of the output that is added
// up over k.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/simd.h"
#include "exec/cpu/contraction.h"
#include "exec/team.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/row_product.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::int64_t kBlock = 512;  // elements of the output row that are summed in the first-level cache

// Calls f(offset in a, offset in b) for every combination of the dims but the last `skip` ones.
template <class F>
void for_each(const ContractionDims& dims, std::size_t skip, F f) {
  const std::size_t loops = dims.size() - std::min(skip, dims.size());
  std::array<std::int64_t, 16> index{};
  std::int64_t a = 0, b = 0;
  while (true) {
    f(a, b);
    std::size_t d = loops;
    for (; d > 0; --d) {
      const ContractionDim& dim = dims[d - 1];
      a += dim.a, b += dim.b;
      if (++index[d - 1] < dim.count) break;
      a -= dim.a * dim.count, b -= dim.b * dim.count;
      index[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

// Sum of a[i] * b[i]; a stride of 0 repeats the element. The order depends on n alone.
template <class Acc, class T>
Acc dot(const T* a, std::int64_t a_step, const T* b, std::int64_t b_step, std::int64_t n) {
  const hn::ScalableTag<Acc> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  Acc total = 0;
  std::int64_t i = 0;
  if (a_step <= 1 && b_step <= 1 && n >= lanes) {
    auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    const auto at = [&](const T* p, std::int64_t step, std::int64_t k)
                        HWY_ATTR { return step == 0 ? hn::Set(d, widened<Acc>(*p)) : load(d, p + k); };
    const auto product = [&](std::int64_t k) HWY_ATTR { return hn::Mul(at(a, a_step, k), at(b, b_step, k)); };
    for (; i + 4 * lanes <= n; i += 4 * lanes) {
      s0 = hn::Add(s0, product(i));
      s1 = hn::Add(s1, product(i + lanes));
      s2 = hn::Add(s2, product(i + 2 * lanes));
      s3 = hn::Add(s3, product(i + 3 * lanes));
    }
    for (; i + lanes <= n; i += lanes) s0 = hn::Add(s0, product(i));
    total = sum_lanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
  }
  for (; i < n; ++i)
    total = static_cast<Acc>(total + widened<Acc>(a[i * a_step]) * widened<Acc>(b[i * b_step]));
  return total;
}

// sums[i] += a[i] * b[i].
template <class Acc, class T>
void add_products(const T* a, std::int64_t a_step, const T* b, std::int64_t b_step, std::int64_t n,
                  Acc* sums) {
  const hn::ScalableTag<Acc> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  if (a_step <= 1 && b_step <= 1) {
    const auto a0 = hn::Set(d, widened<Acc>(*a)), b0 = hn::Set(d, widened<Acc>(*b));
    for (; i + lanes <= n; i += lanes) {
      const auto x = a_step ? load(d, a + i) : a0, y = b_step ? load(d, b + i) : b0;
      hn::StoreU(hn::Add(hn::LoadU(d, sums + i), hn::Mul(x, y)), d, sums + i);
    }
  }
  for (; i < n; ++i) {
    sums[i] = static_cast<Acc>(sums[i] + widened<Acc>(a[i * a_step]) * widened<Acc>(b[i * b_step]));
  }
}

struct At {
  std::int64_t a = 0, b = 0, c = 0;
};

// Where pass `row` of the loops over the output begins.
At locate(const ContractionDims& dims, std::size_t loops, std::int64_t row) {
  At at;
  for (std::size_t d = loops; d-- > 0;) {
    const ContractionDim& dim = dims[d];
    const std::int64_t i = row % dim.count;
    row /= dim.count;
    at.a += i * dim.a, at.b += i * dim.b, at.c += i * dim.c;
  }
  return at;
}

// A pass is a row of outputs along the last loop.
template <class T, class Acc>
void dot_rows(const RowProduct::Plan& plan, const T* a, const T* b, T* c, std::int64_t begin,
              std::int64_t end) {
  const ContractionDim inner = plan.sum.empty() ? ContractionDim{} : plan.sum.back();
  const ContractionDim row = plan.out.empty() ? ContractionDim{} : plan.out.back();
  const std::size_t outer = plan.out.empty() ? 0 : plan.out.size() - 1;
  for (std::int64_t pass = begin; pass < end; ++pass) {
    const At at = locate(plan.out, outer, pass);
    for (std::int64_t j = 0; j < row.count; ++j) {
      const T *x = a + at.a + j * row.a, *y = b + at.b + j * row.b;
      Acc total = 0;
      for_each(plan.sum, 1, [&](std::int64_t ka, std::int64_t kb) {
        total = static_cast<Acc>(total + dot<Acc>(x + ka, inner.a, y + kb, inner.b, inner.count));
      });
      c[at.c + j * row.c] = narrowed<T>(total);
    }
  }
}

template <class T, class Acc>
void sum_rows(const RowProduct::Plan& plan, const T* a, const T* b, T* c, std::int64_t begin,
              std::int64_t end) {
  const ContractionDim inner = plan.out.back();
  alignas(64) Acc sums[kBlock];
  for (std::int64_t row = begin; row < end; ++row) {
    const At at = locate(plan.out, plan.out.size() - 1, row);
    for (std::int64_t j0 = 0; j0 < inner.count; j0 += kBlock) {
      const std::int64_t n = std::min(kBlock, inner.count - j0);
      std::memset(sums, 0, sizeof(sums));
      const T *a0 = a + at.a + j0 * inner.a, *b0 = b + at.b + j0 * inner.b;
      for_each(plan.sum, 0, [&](std::int64_t ka, std::int64_t kb) {
        add_products<Acc>(a0 + ka, inner.a, b0 + kb, inner.b, n, sums);
      });
      T* to = c + at.c + j0 * inner.c;
      for (std::int64_t j = 0; j < n; ++j) to[j * inner.c] = narrowed<T>(sums[j]);
    }
  }
}

template <class T, class Acc>
void typed_rows(const RowProduct::Plan& plan, const void* a, const void* b, void* c, std::int64_t begin,
                std::int64_t end) {
  (plan.dot ? dot_rows<T, Acc> : sum_rows<T, Acc>)(plan, static_cast<const T*>(a), static_cast<const T*>(b),
                                                   static_cast<T*>(c), begin, end);
}

}  // namespace

void row_product(const RowProduct::Plan& plan, const void* a, const void* b, void* c, std::int64_t begin,
                 std::int64_t end) {
  switch (plan.dtype) {
    case DType::F32:
      return typed_rows<float, float>(plan, a, b, c, begin, end);
    case DType::BF16:
      return typed_rows<bf16, float>(plan, a, b, c, begin, end);
    case DType::F64:
      return typed_rows<double, double>(plan, a, b, c, begin, end);
    default:
      return typed_rows<std::uint32_t, std::uint32_t>(plan, a, b, c, begin, end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/check.h"

namespace tessera {

HWY_EXPORT(row_product);

RowProduct::RowProduct(const Contraction& contraction, int threads) : threads_(threads) {
  plan_.dtype = contraction.dtype;
  plan_.sum = contraction.k;
  for (const ContractionDims* group : {&contraction.batch, &contraction.m, &contraction.n}) {
    plan_.out.insert(plan_.out.end(), group->begin(), group->end());
  }
  std::stable_sort(plan_.out.begin(), plan_.out.end(),
                   [](const ContractionDim& x, const ContractionDim& y) { return x.c > y.c; });
  TESSERA_ASSERT(plan_.sum.size() <= 16, "a contraction over {} dimensions", plan_.sum.size());
  const auto fits = [](const ContractionDims& dims, std::int64_t least) {
    return !dims.empty() && dims.back().a <= 1 && dims.back().b <= 1 && dims.back().count >= least;
  };
  plan_.dot = fits(plan_.sum, 16) || !fits(plan_.out, 8);
  plan_.rows = size_of(plan_.out) / (plan_.out.empty() ? 1 : plan_.out.back().count);
}

void RowProduct::run(const void* a, const void* b, void* c) const {
  for_each_part(threads_, [&](int part) {
    const std::int64_t begin = plan_.rows * part / threads_, end = plan_.rows * (part + 1) / threads_;
    if (begin < end) HWY_DYNAMIC_DISPATCH(row_product)(plan_, a, b, c, begin, end);
  });
}

}  // namespace tessera
#endif
