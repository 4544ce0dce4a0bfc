// Fast kernels of single ops on a CPU: a table by op name. What the table lacks runs as a fused loop (ops
// with scalar code) or by the op's own reference kernel, so every entry is an optimisation and is tested
// against the record.
//
// A kernel is used in two steps. `prepare` runs once per program and rank, sees local shapes, strides and
// types (View::data is null, View::start and View::full are those of a run without windows) and returns a
// callable with everything that can be worked out early: primitives, blockings, stride tables. The callable
// then runs once per step and must not allocate.
//
// Threads: prepare is called from one thread at a time. A callable belongs to one rank: it is called from
// that rank's thread, whose team has KernelSite::threads threads.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/op.h"

namespace tessera {

// One step on one rank as `prepare` sees it.
struct KernelSite {
  const Call& call;           // global types
  std::span<const View> in;   // local; data is null
  std::span<const View> out;  // local; data is null; never empty (the executor skips empty outputs)
  int threads = 1;
};

// Runs the kernel. The context's views are those of the site with data filled in and, in a windowed run, with
// other start and full. `workspace` has the bytes that CpuKernel::workspace asked for, 64-byte aligned; null
// when it asked for none.
using PreparedKernel = std::function<void(const KernelContext& context, void* workspace)>;

struct CpuKernel {
  const char* op;  // name of the record

  // False where the kernel does not do these types or sizes; the record's reference kernel runs then. An
  // input may be empty (a contraction over an empty part gives zeros); a kernel that cannot fill such an
  // output says false.
  bool (*supports)(const KernelSite& site);

  // Scratch bytes for local types (row-major). Counted in the arena, once for the largest parts: REQUIRES
  // that smaller parts never need more, so round up where that is not natural. nullptr: none.
  std::int64_t (*workspace)(const Call& call, const std::vector<Type>& in, const std::vector<Type>& out,
                            int threads) = nullptr;

  PreparedKernel (*prepare)(const KernelSite& site);

  // True when output `out` may be written over input `in` (equal local types). nullptr: never.
  bool (*in_place)(const Call& call, int in, int out) = nullptr;
};

// nullptr when there is none.
const CpuKernel* find_kernel(std::string_view op);

// The one that serves a site; nullptr: fused loops, or the record's reference kernel.
const CpuKernel* kernel_for(const KernelSite& site);

// All of them, for tests and benchmarks.
std::span<const CpuKernel* const> all_kernels();

}  // namespace tessera
