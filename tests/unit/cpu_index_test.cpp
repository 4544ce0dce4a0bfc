// Dropout and scatter-add on the CPU against the records' reference kernels: the same bits.
#include "cpu_harness.h"

namespace tessera::testing {
namespace {

// A shard of x as the kernel sees it; the same shard of what the record gives for the whole.
void expect_same_mask(const Array& x, const Box& box, const Strings& noise, int threads) {
  const Attrs attrs = {{"rate", 0.3}, {"noise", noise}};
  const Call call = make_call("dropout", {x}, attrs);
  const RandomState random;
  const Array whole = run_op(call, {x}, random)[0];
  Array part = part_of(x, box), out(part.type);
  View in_view = view_of(part), out_view = view_of(out);
  in_view.start = out_view.start = box.start;
  for (std::size_t d = 0; d < box.size.size(); ++d) in_view.full[d] = out_view.full[d] = x.type.shape[d].size;
  const std::vector<View> in = {in_view}, outs = {out_view};
  const CpuKernel* kernel = find_kernel("dropout");
  const KernelSite site{call, in, outs, threads};
  ASSERT_TRUE(kernel->supports(site));
  Team team(threads);
  const Team::Use use(team);
  kernel->prepare(site)(KernelContext{call, in, outs, random.seed, random.step, &random.key}, nullptr);
  EXPECT_TRUE(same_bits(out, part_of(whole, box)))
      << to_string(x.type) << to_string(box) << " threads " << threads;
}

TEST(CpuDropout, SameBitsAsTheRecordOnEveryShard) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F64}) {
    const Array x = random_array(type_of("a:3;b:7;c:37", dtype), 1);
    for (const Box& box : {Box{{0, 0, 0}, {3, 7, 37}}, Box{{1, 2, 0}, {2, 5, 37}}, Box{{0, 3, 5}, {3, 4, 30}},
                           Box{{2, 6, 36}, {1, 1, 1}}}) {
      for (int threads : {1, 3}) {
        expect_same_mask(x, box, {}, threads);
        expect_same_mask(x, box, {"a", "c"}, threads);
        expect_same_mask(x, box, {"c"}, threads);
        expect_same_mask(x, box, {"a", "b"}, threads);
      }
    }
  }
}

TEST(CpuDropout, LongRowsAndOddStarts) {
  const Array x = random_array(type_of("n:5003", DType::F32), 1);
  for (std::int64_t start : {0, 1, 2, 3, 5, 1023, 4999})
    expect_same_mask(x, {{start}, {5003 - start}}, {}, 2);
}

TEST(CpuDropout, NanAndInfinityThatAreDroppedGiveZero) {
  const Array x(type_of("n:64", DType::F32), std::vector<double>(64, NAN));
  expect_same_mask(x, {{0}, {64}}, {}, 1);
}

TEST(CpuScatterAdd, SumsInIndexOrder) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F64, DType::I32}) {
    for (const auto& [rows, width] : {std::pair{6, 3}, {1, 700}, {40, 33}}) {
      const std::string w = std::to_string(width), v = std::to_string(rows);
      const Array indices = random_array(type_of("b:3;l:13", DType::I32), 1, -2, rows + 2);
      const Array updates = random_array(type_of("b:3;l:13;d:" + w, dtype), 2);
      const Attrs attrs = {{"dim", "v"}, {"shape", Shape{{"v", rows}, {"d", width}}}};
      const Call call = make_call("scatter_add", {indices, updates}, attrs);
      const Array expected = run_op(call, {indices, updates})[0];
      for (int threads : {1, 3})
        EXPECT_TRUE(same_bits(run_fast(call, {indices, updates}, threads)[0], expected));
    }
  }
}

TEST(CpuScatterAdd, NoUpdatesGiveZeros) {
  const Array indices(type_of("l:0", DType::I32)), updates(type_of("l:0;d:5", DType::F32));
  const Call call =
      make_call("scatter_add", {indices, updates}, {{"dim", "v"}, {"shape", Shape{{"v", 4}, {"d", 5}}}});
  EXPECT_TRUE(same_bits(run_fast(call, {indices, updates})[0], Array(call.out[0])));
}

TEST(CpuScatterAdd, LeavesOtherFormsToTheRecord) {
  const Array indices = random_array(type_of("b:3;l:4", DType::I32), 1, 0, 3),
              updates = random_array(type_of("b:3;l:4;d:2", DType::F32), 2);
  const Call call = make_call("scatter_add", {indices, updates},
                              {{"dim", "v"}, {"shape", Shape{{"b", 3}, {"v", 4}, {"d", 2}}}});
  const Array result(call.out[0]);
  const std::vector<View> in = {view_of(indices), view_of(updates)}, out = {view_of(result)};
  EXPECT_FALSE(find_kernel("scatter_add")->supports(KernelSite{call, in, out, 1}));
}

}  // namespace
}  // namespace tessera::testing
