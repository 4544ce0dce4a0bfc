// Sums of blocks, vectorised, and of parts.
#include "exec/cpu/fused_sum.h"

#include <algorithm>

#include "base/check.h"
#include "base/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/fused_sum.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "exec/cpu/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
double summed(const T* x, std::int64_t n) {
  const hn::ScalableTag<T> d;
  return static_cast<double>(sum_row(d, n, [&](std::int64_t i) HWY_ATTR { return read(d, x, i, n); }));
}

}  // namespace

double sum_of_block(Lane lane, const void* block, std::size_t n) {
  const auto count = static_cast<std::int64_t>(n);
  return lane == Lane::F32 ? summed(static_cast<const float*>(block), count)
                           : summed(static_cast<const double*>(block), count);
}

// A row of f32 onto a row of sums.
void add_floats(const float* x, std::size_t n, double* to) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::PromoteTo(d, hn::LoadU(half, x + i))), d, to + i);
  for (; i < n; ++i) to[i] += static_cast<double>(x[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {

HWY_EXPORT(sum_of_block);
HWY_EXPORT(add_floats);

namespace {

std::int64_t in_lines(std::int64_t doubles) {
  return (doubles + 7) / 8 * 8;
}

template <class T>
void add_each(const T* x, std::size_t n, double* to, std::int64_t stride) {
  for (std::size_t i = 0; i < n; ++i) to[static_cast<std::int64_t>(i) * stride] += static_cast<double>(x[i]);
}

}  // namespace

std::int64_t FusedSums::workspace(std::int64_t elements) {
  return kMaxParts * in_lines(elements) * static_cast<std::int64_t>(sizeof(double));
}

void FusedSums::add(DType type, std::int64_t elements, double divisor) {
  TESSERA_ASSERT(is_floating(type), "a sum of {} in a fused loop", to_string(type));
  sums_.push_back({type, elements, doubles_, divisor});
  doubles_ += in_lines(elements);
}

void FusedSums::clear(double* sums) const {
  std::fill_n(sums, doubles_, 0.0);
}

void FusedSums::add_block(std::size_t index, const void* block, std::size_t n, double* sums, std::int64_t at,
                          std::int64_t stride) const {
  const Sum& sum = sums_[index];
  const Lane lane = lane_of(sum.type);
  double* to = sums + sum.at + at;
  if (stride == 0) {
    *to += HWY_DYNAMIC_DISPATCH(sum_of_block)(lane, block, n);
  } else if (lane == Lane::F64) {
    add_each(static_cast<const double*>(block), n, to, stride);
  } else if (stride != 1) {
    add_each(static_cast<const float*>(block), n, to, stride);
  } else {
    HWY_DYNAMIC_DISPATCH(add_floats)(static_cast<const float*>(block), n, to);
  }
}

void FusedSums::finish(std::size_t index, const double* scratch, std::int64_t parts, void* out, int share,
                       int shares) const {
  const Sum& sum = sums_[index];
  const std::int64_t end = sum.elements * (share + 1) / shares;
  for (std::int64_t i = sum.elements * share / shares; i < end; ++i) {
    double total = 0;
    for (std::int64_t part = 0; part < parts; ++part) total += scratch[part * doubles_ + sum.at + i];
    total /= sum.divisor;
    const auto single = static_cast<float>(total);
    const void* from = sum.type == DType::F64 ? static_cast<const void*>(&total) : &single;
    store_block(sum.type, from,
                static_cast<std::byte*>(out) + i * static_cast<std::int64_t>(size_of(sum.type)), 1, 1);
  }
}

}  // namespace tessera
#endif
