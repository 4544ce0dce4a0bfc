// Blocks of the blocked product: few, of equal size, never more workspace for less work; and sums over
// several of them.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "exec/cpu/gemm.h"
#include "exec/cpu/gemm_blocks.h"
#include "exec/team.h"

namespace tessera {
namespace {

TEST(Gemm, BlocksOfTheSumAreFewAndEqual) {
  for (const DType dtype : {DType::F32, DType::F64}) {
    const std::int64_t deepest = dtype == DType::F32 ? 320 : 240;
    for (std::int64_t k = 1; k <= 3000; ++k) {
      const std::int64_t kc = GemmBlocks(dtype, dtype, 100, 100, k, 1).kc, count = (k + kc - 1) / kc;
      ASSERT_LE(kc, deepest) << k;
      ASSERT_EQ(count, (k + deepest - 1) / deepest) << k;
      const std::int64_t last = k - (count - 1) * kc;
      ASSERT_TRUE(count == 1 || last >= kc - 8 * count) << k << ": the last block is short";
    }
  }
}

TEST(Gemm, SmallerProductsNeedNoMoreWorkspace) {
  std::mt19937 random(std::random_device{}());
  const auto size = [&] { return static_cast<std::int64_t>(random() % 3000) + 1; };
  for (const auto& [dtype, result] : {std::pair(DType::F32, DType::F32), std::pair(DType::BF16, DType::BF16),
                                      std::pair(DType::F64, DType::F64)}) {
    for (int i = 0; i < 2000; ++i) {
      const std::int64_t m = size(), n = size(), k = size();
      const std::int64_t all = gemm_workspace(dtype, result, m, n, k, 1);
      const auto part = [&](std::int64_t whole) { return static_cast<std::int64_t>(random()) % whole + 1; };
      const std::int64_t pm = part(m), pn = part(n), pk = part(k);
      ASSERT_LE(gemm_workspace(dtype, result, pm, pn, pk, 1), all)
          << m << "x" << n << "x" << k << " and " << pm << "x" << pn << "x" << pk;
    }
  }
}

// Sizes around those of blocks, in k and in n.
TEST(Gemm, SumsOverBlocks) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const std::int64_t k : {1, 8, 319, 320, 321, 328, 329, 640, 641, 1000}) {
    for (const auto& [m, n] : {std::pair<std::int64_t, std::int64_t>(7, 33), {150, 20}, {5, 2053}}) {
      std::vector<float> a(static_cast<std::size_t>(m * k)), b(static_cast<std::size_t>(k * n)),
          c(static_cast<std::size_t>(m * n), 0.5F);
      for (float& x : a) x = normal(random);
      for (float& x : b) x = normal(random);
      GemmPlan plan;
      plan.accumulate = true;
      plan.a_m = {m, k}, plan.a_k = {k, 1}, plan.b_k = {k, n}, plan.b_n = {n, 1}, plan.c_m = {m, n},
      plan.c_n = {n, 1};
      AlignedBuffer workspace(static_cast<std::size_t>(gemm_workspace(plan.dtype, plan.result, m, n, k, 1)));
      gemm(plan, a.data(), b.data(), c.data(), workspace.data());
      for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < n; j += 1 + n / 50) {
          double sum = 0.5;
          for (std::int64_t l = 0; l < k; ++l)
            sum += static_cast<double>(a[static_cast<std::size_t>(i * k + l)]) *
                   static_cast<double>(b[static_cast<std::size_t>(l * n + j)]);
          ASSERT_NEAR(c[static_cast<std::size_t>(i * n + j)], sum, 1e-5 * std::sqrt(k) + 1e-5)
              << m << "x" << n << "x" << k << " at " << i << "," << j;
        }
      }
    }
  }
}

// However many threads there are, and whoever of them does which part: sizes on both sides of what is shared.
TEST(Gemm, TheSameBitsForAnyThreads) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  struct Case {
    std::int64_t m, n, k;
    DType dtype, result;
  };
  for (const Case& size : {Case{431, 530, 333, DType::F32, DType::F32},
                           {600, 520, 650, DType::BF16, DType::BF16},
                           {300, 1030, 321, DType::F64, DType::F64},
                           {290, 600, 100, DType::BF16, DType::F32},
                           {1201, 140, 100, DType::F32, DType::F32},
                           {100, 2500, 90, DType::F32, DType::F32}}) {
    const auto buffer = [&](std::int64_t elements, DType dtype) {
      AlignedBuffer data(static_cast<std::size_t>(elements) * size_of(dtype));
      for (std::int64_t i = 0; i < elements; ++i) {
        const float x = normal(random);
        if (dtype == DType::F32) reinterpret_cast<float*>(data.data())[i] = x;
        if (dtype == DType::F64) reinterpret_cast<double*>(data.data())[i] = x;
        if (dtype == DType::BF16) reinterpret_cast<bf16*>(data.data())[i] = bf16(x);
      }
      return data;
    };
    const AlignedBuffer a = buffer(size.m * size.k, size.dtype), b = buffer(size.k * size.n, size.dtype);
    std::vector<std::string> results;
    for (const int threads : {1, 2, 3, 5}) {
      Team team(threads);
      const Team::Use use(team);
      GemmPlan plan;
      plan.dtype = size.dtype, plan.result = size.result, plan.threads = threads;
      plan.a_m = {size.m, size.k}, plan.a_k = {size.k, 1}, plan.b_n = {size.n, 1};
      plan.b_k = {size.k, size.n}, plan.c_m = {size.m, size.n}, plan.c_n = {size.n, 1};
      AlignedBuffer workspace(
          static_cast<std::size_t>(gemm_workspace(plan.dtype, plan.result, size.m, size.n, size.k, threads)));
      AlignedBuffer c(static_cast<std::size_t>(size.m * size.n) * size_of(size.result));
      gemm(plan, a.data(), b.data(), c.data(), workspace.data());
      results.emplace_back(reinterpret_cast<const char*>(c.data()), c.size());
      EXPECT_TRUE(results.back() == results.front()) << threads << " threads, " << size.m << "x" << size.n;
    }
  }
}

}  // namespace
}  // namespace tessera
