#include "exec/cpu/narrow.h"

#include "base/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/narrow.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {

void narrow_vectors(const float* from, bf16* to, std::int64_t count) {
  narrow_run(from, to, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {

HWY_EXPORT(narrow_vectors);

void narrow_sums(const float* from, bf16* to, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(narrow_vectors)(from, to, count);
}

}  // namespace tessera
#endif
