// Dropout: the same bits as the record's kernel, with the random numbers drawn in vector registers.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/simd.h"
#include "exec/cpu/records.h"
#include "exec/cpu/rows.h"
#include "tessera/random.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/dropout.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/philox-inl.h"
#include "exec/cpu/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// out[i] = x[i] * factor where the i-th half-word keeps it, else 0.
template <class T>
void drop_run(const T* x, T* out, const std::uint16_t* halves, DropoutRate rate, float factor,
              std::int64_t n) {
  const hn::ScalableTag<float> d;
  constexpr auto kLanes = static_cast<std::int64_t>(HWY_LANES(float));
  const auto scale = hn::Set(d, factor);
  for (std::int64_t i = 0; i < n;
       i += kLanes) {  // there is room for a whole vector behind the last half-word
    const auto kept = kept_halves(d, halves + i, rate.dropped);
    write(d, hn::IfThenElseZero(kept, hn::Mul(read(d, x, i, n), scale)), out, i, n);
  }
}

void drop_run(const double* x, double* out, const std::uint16_t* halves, DropoutRate rate, double factor,
              std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = rate.drops(halves[i]) ? 0.0 : x[i] * factor;
}

template <class T>
void drop_row(std::uint64_t key, DropoutRate rate, std::int64_t first, std::int64_t step, const void* in,
              void* out, std::int64_t at, std::int64_t n) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto factor = static_cast<Wide>(rate.factor());
  const PhiloxKeys keys(key);
  const T* x = static_cast<const T*>(in) + at;
  T* y = static_cast<T*>(out) + at;
  alignas(64) std::uint16_t halves[kHalfRoom];
  std::size_t skip = 0;
  if (step == 0) std::fill_n(halves, kHalfRoom, random_half_at({key}, static_cast<std::uint64_t>(first)));
  for (std::int64_t done = 0; done < n; done += kHalfRun) {
    const std::int64_t count = std::min<std::int64_t>(kHalfRun, n - done);
    if (step == 1) {
      skip = philox_halves(keys, static_cast<std::uint64_t>(first + done), static_cast<std::size_t>(count),
                           halves);
    }
    drop_run(x + done, y + done, halves + skip, rate, factor, count);
  }
}

}  // namespace

void dropout_row(DType dtype, std::uint64_t key, DropoutRate rate, std::int64_t first, std::int64_t step,
                 const void* in, void* out, std::int64_t at, std::int64_t n) {
  switch (dtype) {
    case DType::F32:
      return drop_row<float>(key, rate, first, step, in, out, at, n);
    case DType::BF16:
      return drop_row<bf16>(key, rate, first, step, in, out, at, n);
    default:
      return drop_row<double>(key, rate, first, step, in, out, at, n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {

HWY_EXPORT(dropout_row);

namespace {

constexpr std::size_t kMaxDims = 16;

// The loops over a shard, outermost first, with the step of the mask's global element index; the last one is
// the row.
struct Loops {
  std::array<std::int64_t, kMaxDims> count{}, step{};
  std::size_t size = 0;
  std::int64_t first = 0;  // index of the shard's first element

  void add(std::int64_t extent, std::int64_t index_step) {
    if (extent == 1) return;
    if (size > 0 && step[size - 1] == index_step * extent) {
      count[size - 1] *= extent;
      step[size - 1] = index_step;
    } else {
      count[size] = extent, step[size] = index_step;
      ++size;
    }
  }
};

// Depends on the run: a window moves the shard within the whole tensor.
Loops loops_of(const View& view, const Strings& noise) {
  std::array<std::int64_t, kMaxDims> stride{};
  std::int64_t step = 1;
  Loops loops;
  for (std::size_t d = view.shape.count(); d-- > 0;) {
    if (!noise.empty() && std::find(noise.begin(), noise.end(), view.shape[d].name) == noise.end()) continue;
    stride[d] = step;
    loops.first += view.start[d] * step;
    step *= view.full[d];
  }
  for (std::size_t d = 0; d < view.shape.count(); ++d) loops.add(view.shape[d].size, stride[d]);
  if (loops.size == 0) loops.count[0] = 1, loops.size = 1;
  return loops;
}

// A row whose mask is strided (its dimension is neither the last one of the mask nor without one) is left to
// the record.
bool supports(const KernelSite& site) {
  const View& x = site.in[0];
  if (x.shape.count() > kMaxDims || x.elements() == 0) return false;
  const Strings& noise = site.call.attrs.texts("noise");
  const Loops loops = loops_of(x, noise);
  return loops.step[loops.size - 1] <= 1;
}

PreparedKernel prepare(const KernelSite& site) {
  const DropoutRate rate(site.call.attrs.number("rate"));
  return
      [rate, noise = site.call.attrs.texts("noise"), threads = site.threads](const KernelContext& c, void*) {
        TESSERA_ASSERT(c.key != nullptr, "dropout '{}' runs without a key", c.call.name);
        const View& x = c.in[0];
        const std::uint64_t key = random_key(c.seed, *c.key, c.step).value;
        const Loops loops = loops_of(x, noise);
        const std::size_t last = loops.size - 1;
        const std::int64_t length = loops.count[last];
        // A long row is cut into runs, so that threads can share it.
        constexpr std::int64_t kRun = 1024;
        const std::int64_t runs = (length + kRun - 1) / kRun;
        over_rows(x.elements() / length * runs, threads, [&](std::int64_t begin, std::int64_t end, int) {
          for (std::int64_t item = begin; item < end; ++item) {
            std::int64_t index = loops.first, rest = item / runs;
            const std::int64_t row = rest, from = item % runs * kRun;
            for (std::size_t l = last; l-- > 0; rest /= loops.count[l])
              index += rest % loops.count[l] * loops.step[l];
            HWY_DYNAMIC_DISPATCH(dropout_row)
            (x.dtype, key, rate, index + from * loops.step[last], loops.step[last], x.data, c.out[0].data,
             row * length + from, std::min(kRun, length - from));
          }
        });
      };
}

}  // namespace

const CpuKernel kDropoutKernel = {
    .op = "dropout", .supports = supports, .prepare = prepare, .in_place = [](const Call&, int, int) {
      return true;
    }};

}  // namespace tessera
#endif
