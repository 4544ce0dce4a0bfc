// Fast kernels of this machine, in a table by op name. An op without an entry (or for which no entry says `supports`) runs
// its record's reference kernel.
//
// A kernel is prepared once per step and rank, for the local types of that rank, and then run many times without allocating:
// its scratch memory is the workspace that the memory plan reserved. All buffers are dense and row-major by their shape.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "tessera/op.h"

namespace tessera::cpu {

// One step to prepare. `call` has global types; `in` and `out` are the local ones. `threads` is the OpenMP width of the rank
// thread that will run it.
struct KernelRequest {
  const Call& call;
  std::span<const Type> in;
  std::span<const Type> out;
  int threads = 1;
};

class PreparedKernel {
 public:
  virtual ~PreparedKernel() = default;
  // Buffers as in the request; `workspace` holds at least as many bytes as `workspace(request)` said, at a multiple of 64.
  virtual void run(KernelContext& context, void* workspace) = 0;
};

struct CpuKernel {
  const char* op = nullptr;
  bool (*supports)(const KernelRequest&) = nullptr;                            // nullptr: always
  std::int64_t (*workspace)(const KernelRequest&) = nullptr;                   // nullptr: none
  std::unique_ptr<PreparedKernel> (*prepare)(const KernelRequest&) = nullptr;  // any thread
  bool (*in_place)(const Call&, int in, int out) = nullptr;                    // output may be the input's buffer; nullptr: never
};

// The entry for an op; nullptr when there is none.
const CpuKernel* find_kernel(std::string_view op);

// The entry that will run this step, or nullptr: then the record's reference kernel does.
const CpuKernel* kernel_for(const KernelRequest& request);

}  // namespace tessera::cpu
