// Which vector targets our kernels are compiled for. Include before hwy/foreach_target.h. AVX2 and AVX-512,
// and Highway's portable fallback: more targets would only lengthen the build.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
