// Softmax, norms, cross-entropy and reductions on the CPU against the records' reference kernels.
#include "cpu_harness.h"

namespace tessera::testing {
namespace {

// A bf16 result may fall on the other side of a rounding boundary: one unit in the last place.
double relative(DType dtype) {
  return dtype == DType::BF16 ? 0x1p-7 : 4e-6;
}

const std::vector<std::string>& row_shapes() {
  static const std::vector<std::string> all = {"n:1",      "r:3;n:5",    "r:2;q:3;n:16",
                                               "r:7;n:33", "r:2;n:1000", "q:2;r:5;n:130"};
  return all;
}

std::string without_last(const std::string& shape) {
  const std::size_t at = shape.rfind(';');
  return at == std::string::npos ? "" : shape.substr(0, at);
}

std::string last(const std::string& shape) {
  return shape.substr(shape.rfind(';') + 1);
}

TEST(CpuRows, SoftmaxFamily) {
  for (DType dtype : {DType::F32, DType::BF16}) {
    for (const std::string& shape : row_shapes()) {
      const Array x = random_array(type_of(shape, dtype), 1, -9, 9),
                  y = random_array(type_of(shape, dtype), 2, 0, 1);
      const Array dy = random_array(type_of(shape, dtype), 3);
      const double absolute = dtype == DType::BF16 ? 1e-3 : 3e-6;
      for (const char* op : {"softmax", "log_softmax", "log_sum_exp"}) {
        expect_matches(op, {x}, {{"dim", "n"}}, relative(dtype), absolute);
      }
      expect_matches("softmax_grad", {y, dy}, {{"dim", "n"}}, relative(dtype), absolute * 20);
    }
  }
}

TEST(CpuRows, SoftmaxOfMaskedRowsAndSpecialValues) {
  for (DType dtype : {DType::F32, DType::BF16}) {
    Array x = random_array(type_of("r:6;n:37", dtype), 1, -9, 9);
    for (std::int64_t i = 0; i < 37; ++i) x.set(i, -INFINITY);        // fully masked
    for (std::int64_t i = 37; i < 37 + 36; ++i) x.set(i, -INFINITY);  // all but the last one
    x.set(2 * 37 + 5, NAN);
    x.set(3 * 37 + 36, INFINITY);
    x.set(4 * 37 + 3, 3e38);
    x.set(4 * 37 + 30, -3e38);
    for (const char* op : {"softmax", "log_softmax", "log_sum_exp"}) {
      expect_matches(op, {x}, {{"dim", "n"}}, relative(dtype), 1e-3);
    }
  }
}

TEST(CpuRows, Norms) {
  for (DType dtype : {DType::F32, DType::BF16}) {
    for (const std::string& shape : row_shapes()) {
      const Type stat = type_of(without_last(shape), DType::F32), row = type_of(last(shape), dtype);
      const Array x = random_array(type_of(shape, dtype), 1), dy = random_array(type_of(shape, dtype), 2);
      const Array scale = random_array(row, 3), bias = random_array(row, 4);
      const Array mean = random_array(stat, 5), inverse = random_array(stat, 6, 0.5, 2);
      const Attrs attrs = {{"dim", "n"}, {"epsilon", 1e-3}};
      const double absolute = dtype == DType::BF16 ? 2e-2 : 2e-5;
      expect_matches("rms_norm", {x, scale}, attrs, relative(dtype), absolute / 10);
      expect_matches("layer_norm", {x, scale, bias}, attrs, relative(dtype), absolute / 10);
      expect_matches("rms_norm_grad", {x, scale, inverse, dy}, attrs, relative(dtype), absolute);
      expect_matches("layer_norm_grad", {x, scale, mean, inverse, dy}, attrs, relative(dtype), absolute);
      expect_matches("rms_norm_scale_grad", {x, inverse, dy}, {{"output", Strings{"n"}}}, relative(dtype),
                     absolute);
      expect_matches("layer_norm_scale_grad", {x, mean, inverse, dy}, {{"output", Strings{"n"}}},
                     relative(dtype), absolute);
    }
  }
}

TEST(CpuRows, ScaleGradientOfManyRowsAndColumns) {
  const Array x = random_array(type_of("r:300;n:1100", DType::F32), 1),
              dy = random_array(type_of("r:300;n:1100", DType::F32), 2);
  const Array inverse = random_array(type_of("r:300", DType::F32), 3, 0.5, 2);
  expect_matches("rms_norm_scale_grad", {x, inverse, dy}, {{"output", Strings{"n"}}}, 4e-6, 3e-5);
}

// A large mean must not cost the variance its digits.
TEST(CpuRows, LayerNormFarFromZero) {
  const Array x = random_array(type_of("r:4;n:300", DType::F32), 1, 1000, 1001);
  const Array scale = random_array(type_of("n:300", DType::F32), 3),
              bias = random_array(type_of("n:300", DType::F32), 4);
  expect_matches("layer_norm", {x, scale, bias}, {{"dim", "n"}, {"epsilon", 1e-6}}, 1e-3, 1e-3);
}

TEST(CpuRows, CrossEntropy) {
  for (DType dtype : {DType::F32, DType::BF16}) {
    for (const std::string& shape : row_shapes()) {
      for (const auto& [smoothing, z_loss] : {std::pair{0.0, 0.0}, {0.1, 0.0}, {0.1, 0.01}, {0.0, 0.01}}) {
        const Type stat = type_of(without_last(shape), DType::F32);
        const auto classes = static_cast<double>(parse_shape(shape).dims().back().size);
        Array x = random_array(type_of(shape, dtype), 1, -9, 9);
        const Array targets = random_array({stat.shape, DType::I32}, 2, -1.5, classes + 1);
        const Array log_z = random_array(stat, 3, 2, 9), dloss = random_array(stat, 4);
        if (classes > 2) x.set(1, -INFINITY);
        const Attrs attrs = {{"dim", "n"}, {"label_smoothing", smoothing}, {"z_loss", z_loss}};
        if (smoothing == 0) expect_matches("cross_entropy", {x, targets}, attrs, 1e-5, 1e-5);
        expect_matches("cross_entropy_grad", {x, targets, log_z, dloss}, attrs, relative(dtype) * 4, 1e-5);
      }
    }
  }
}

TEST(CpuRows, CrossEntropyWithSmoothing) {
  const Array x = random_array(type_of("r:20;n:777", DType::F32), 1, -9, 9);
  const Array targets = random_array(type_of("r:20", DType::I32), 2, -2, 779);
  expect_matches("cross_entropy", {x, targets}, {{"dim", "n"}, {"label_smoothing", 0.1}, {"z_loss", 1e-4}},
                 1e-5, 1e-5);
}

// A shard of the classes: targets count in the whole vocabulary.
TEST(CpuRows, CrossEntropyGradientOfASplitVocabulary) {
  const Array x = random_array(type_of("r:6;n:40", DType::F32), 1),
              log_z = random_array(type_of("r:6", DType::F32), 2, 3, 6);
  const Array targets = random_array(type_of("r:6", DType::I32), 3, 0, 40),
              dloss = random_array(type_of("r:6", DType::F32), 4);
  const Attrs attrs = {{"dim", "n"}, {"label_smoothing", 0.1}, {"z_loss", 0.0}};
  const Call call = make_call("cross_entropy_grad", {x, targets, log_z, dloss}, attrs);
  const Array whole = run_op(call, {x, targets, log_z, dloss})[0];
  for (auto [begin, size] : {std::pair{0, 13}, {13, 27}, {39, 1}}) {
    const Box box{{0, begin}, {6, size}};
    Array part = part_of(x, box), out(part.type);
    View in_view = view_of(part), out_view = view_of(out);
    in_view.start = out_view.start = {0, begin};
    in_view.full = out_view.full = {6, 40};
    const std::vector<View> in = {in_view, view_of(targets), view_of(log_z), view_of(dloss)},
                            outs = {out_view};
    const KernelSite site{call, in, outs, 1};
    const CpuKernel* kernel = find_kernel("cross_entropy_grad");
    ASSERT_TRUE(kernel->supports(site));
    kernel->prepare(site)(KernelContext{call, in, outs, 0, 0, nullptr}, nullptr);
    EXPECT_EQ(difference(out, part_of(whole, box), 1e-5, 1e-6), "");
  }
}

TEST(CpuRows, ReductionsOverAnyDimensions) {
  const std::vector<std::pair<std::string, Strings>> cases = {{"a:3;b:4;c:5", {"b"}},
                                                              {"a:3;b:4;c:5", {"c", "a"}},
                                                              {"a:3;b:4;c:5", {"a", "b", "c"}},
                                                              {"a:3;b:4;c:5", {}},
                                                              {"a:7;b:300", {"a"}},
                                                              {"a:7;b:300", {"b"}},
                                                              {"a:200;b:3", {"a"}},
                                                              {"a:1;b:9", {"a"}},
                                                              {"a:9;b:1", {"b"}},
                                                              {"", {}},
                                                              {"a:1;b:1", {"a"}},
                                                              {"a:2;b:3;c:2;d:70", {"a", "c"}},
                                                              {"a:2;b:3;c:2;d:70", {"b", "d"}}};
  for (const auto& [shape, dims] : cases) {
    for (DType dtype : {DType::F32, DType::BF16, DType::F64, DType::I32}) {
      const Array x = random_array(type_of(shape, dtype), 1, -40, 40);
      const double eps = dtype == DType::F64 ? 1e-15 : 1e-7;
      const double bound = dtype == DType::I32 ? 0 : eps * 40 * static_cast<double>(x.elements());
      const double step = dtype == DType::I32 ? 0 : dtype == DType::BF16 ? 0x1p-7 : eps;
      expect_matches("reduce_sum", {x}, {{"dims", dims}}, step, bound);
      if (dtype != DType::I32) expect_matches("reduce_mean", {x}, {{"dims", dims}}, step, eps * 40);
      expect_matches("reduce_max", {x}, {{"dims", dims}}, 0, 0);
      expect_matches("reduce_min", {x}, {{"dims", dims}}, 0, 0);
    }
  }
}

TEST(CpuRows, MaximumIsNanIfThereIsOne) {
  for (const Strings& dims : {Strings{"a"}, Strings{"b"}, Strings{"a", "b"}}) {
    Array x = random_array(type_of("a:5;b:37", DType::F32), 1);
    x.set(40, NAN);
    x.set(41, -INFINITY);
    x.set(42, INFINITY);
    for (const char* op : {"reduce_max", "reduce_min"}) expect_matches(op, {x}, {{"dims", dims}}, 0, 0);
  }
}

TEST(CpuRows, IntegerExtremesAndWrapping) {
  const Array x(type_of("a:4", DType::I32), {-2147483648.0, 2147483647, 2147483647, 5});
  for (const char* op : {"reduce_max", "reduce_min", "reduce_sum"})
    expect_matches(op, {x}, {{"dims", Strings{"a"}}}, 0, 0);
}

// A million ones of 0.1: sums in f32 must not drift.
TEST(CpuRows, LongSumsKeepTheirDigits) {
  const Array x(type_of("a:4000;b:250", DType::F32), std::vector<double>(1000000, 0.1));
  for (const Strings& dims : {Strings{"a"}, Strings{"a", "b"}}) {
    const Call call = make_call("reduce_sum", {x}, {{"dims", dims}});
    EXPECT_EQ(difference(run_fast(call, {x})[0], run_op(call, {x})[0], 2e-6, 0), "");
  }
}

}  // namespace
}  // namespace tessera::testing
