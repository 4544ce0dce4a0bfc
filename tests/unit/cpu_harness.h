// Runs fast CPU kernels against the records' reference kernels on fresh random inputs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "exec/cpu/kernels.h"
#include "exec/team.h"
#include "support/array.h"
#include "support/evaluate.h"
#include "tessera/error.h"
#include "tessera/ops.h"

namespace tessera::testing {

inline Type type_of(const std::string& shape, DType dtype) {
  return {parse_shape(shape), dtype};
}

// Uniform in [low, high); i32 whole numbers, bool of either kind.
inline Array random_array(const Type& type, std::uint64_t seed, double low = -2, double high = 2) {
  std::mt19937_64 engine(seed * 7919 + 17);
  std::uniform_real_distribution<double> draw(low, high);
  Array array(type);
  for (std::int64_t i = 0; i < array.elements(); ++i) {
    const double x = draw(engine);
    array.set(i, type.dtype == DType::Bool ? x > 0 : type.dtype == DType::I32 ? std::floor(x) : x);
  }
  return array;
}

inline Call make_call(const std::string& op, const std::vector<Array>& in, const Attrs& attrs) {
  Call call;
  call.op = find_op(op);
  if (!call.op) throw UserError("no op " + op);
  for (const Array& x : in) call.in.push_back(x.type);
  call.attrs = attrs;
  call.name = op;
  call.out = call.op->infer(call);
  return call;
}

// What the fast kernel gives. The workspace and the outputs have guards that must survive, and the outputs
// start as garbage.
inline std::vector<Array> run_fast(const Call& call, const std::vector<Array>& in, int threads = 1,
                                   const RandomState& random = {}) {
  const CpuKernel* kernel = find_kernel(call.op->name);
  if (!kernel) throw UserError(std::string("no fast kernel of ") + call.op->name);
  std::vector<Array> out;
  std::vector<View> in_views, out_views, site_in, site_out;
  for (const Array& x : in) in_views.push_back(view_of(x));
  for (const Type& type : call.out) {
    out.emplace_back(type);
    std::fill(out.back().data.begin(), out.back().data.end(), std::byte{0x5a});
  }
  for (const Array& x : out) out_views.push_back(view_of(x));
  const auto without_data = [](std::vector<View> views) {
    for (View& view : views) view.data = nullptr;
    return views;
  };
  site_in = without_data(in_views), site_out = without_data(out_views);
  const KernelSite site{call, site_in, site_out, threads};
  EXPECT_TRUE(kernel->supports(site)) << call.op->name;
  const PreparedKernel prepared = kernel->prepare(site);
  constexpr std::size_t kGuard = 64;
  const auto bytes =
      static_cast<std::size_t>(kernel->workspace ? kernel->workspace(call, call.in, call.out, threads) : 0);
  AlignedBuffer scratch(bytes + kGuard);
  std::fill_n(scratch.data(), bytes + kGuard, std::byte{0xa5});
  Team team(threads);
  const Team::Use use(team);
  for (int repeat = 0; repeat < 2; ++repeat) {  // a second run finds used scratch memory
    prepared(KernelContext{call, in_views, out_views, random.seed, random.step, &random.key}, scratch.data());
  }
  EXPECT_TRUE(std::all_of(scratch.data() + bytes, scratch.data() + bytes + kGuard,
                          [](std::byte b) { return b == std::byte{0xa5}; }))
      << call.op->name << " wrote behind its workspace of " << bytes << " bytes";
  return out;
}

// Fast against reference: |a - b| <= relative |b| + absolute, and equal bits from 1 and from 3 threads.
inline void expect_matches(const std::string& op, const std::vector<Array>& in, const Attrs& attrs,
                           double relative, double absolute) {
  const Call call = make_call(op, in, attrs);
  std::string what = op + "(";
  for (const Type& type : call.in) what += " " + to_string(type);
  SCOPED_TRACE(what + " ) -> " + to_string(call.out[0]));
  const std::vector<Array> expected = run_op(call, in), one = run_fast(call, in),
                           three = run_fast(call, in, 3);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(difference(one[i], expected[i], relative, absolute), "") << "output " << i;
    EXPECT_TRUE(same_bits(one[i], three[i])) << "output " << i << " depends on the number of threads";
  }
}

}  // namespace tessera::testing
