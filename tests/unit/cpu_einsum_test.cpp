// Contractions on the CPU against the record's reference kernel: every grouping of dimensions, odd sizes, all
// types.
#include "cpu_harness.h"
#include "exec/cpu/contraction.h"
#include "exec/cpu/dnnl_product.h"

namespace tessera::testing {
namespace {

Strings names(const std::string& list) {
  Strings result;
  for (char c : list) result.emplace_back(1, c);
  return result;
}

Shape shape_of(const std::string& dims, const std::map<char, std::int64_t>& sizes) {
  std::vector<Dim> result;
  for (char c : dims) result.push_back({std::string(1, c), sizes.at(c)});
  return Shape(std::move(result));
}

struct Form {
  std::string a, b, out;
};

// Half the distance from 1 to the next number; four of it are one unit in the last place at most.
double epsilon(DType dtype) {
  return dtype == DType::F32 ? 0x1p-24 : dtype == DType::BF16 ? 0x1p-9 : dtype == DType::F64 ? 0x1p-53 : 0;
}

void check(const Form& form, const std::map<char, std::int64_t>& sizes, DType dtype, std::uint64_t seed) {
  const Array a = random_array({shape_of(form.a, sizes), dtype}, seed, -4, 4);
  const Array b = random_array({shape_of(form.b, sizes), dtype}, seed + 1, -4, 4);
  double terms = 1;
  for (auto [dim, size] : sizes) {
    if (form.out.find(dim) == std::string::npos && (form.a + form.b).find(dim) != std::string::npos)
      terms *= static_cast<double>(size);
  }
  // DESIGN promise 1, with |a b| = 4 on average; bf16 is summed in f32 and rounded once.
  const double sum = epsilon(dtype == DType::BF16 ? DType::F32 : dtype);
  expect_matches("einsum", {a, b}, {{"output", names(form.out)}}, epsilon(dtype) * 4,
                 sum * 4 * std::sqrt(terms) * terms * 4);
}

// Transformer contractions and their gradients, then forms that need packing or have no reuse.
const std::vector<Form>& forms() {
  static const std::vector<Form> all = {
      {"bld", "dhk", "blhk"}, {"bld", "dhk", "bhlk"}, {"blhk", "bmhk", "bhlm"}, {"bhlm", "bmhk", "blhk"},
      {"blhk", "hkd", "bld"}, {"bld", "blhk", "dhk"}, {"blf", "bld", "fd"},     {"bld", "vd", "blv"},
      {"blv", "vd", "bld"},   {"blv", "bld", "vd"},   {"bhlm", "blhk", "bmhk"}, {"bld", "hkd", "lkbh"},
      {"ld", "dk", "kl"},     {"dl", "kd", "kl"},     {"dl", "dk", "lk"},       {"hdk", "bdkh", "bh"},
      {"bd", "d", "b"},       {"d", "dk", "k"},       {"bk", "d", "b"},         {"bld", "bld", "bd"},
      {"bld", "bld", "bl"},   {"bld", "bld", ""},     {"d", "d", ""},           {"bldm", "lk", "dbk"},
      {"bmld", "lmd", "b"},   {"hb", "hd", "dbh"},
  };
  return all;
}

TEST(CpuEinsum, EveryFormInEveryType) {
  const std::vector<std::map<char, std::int64_t>> sizes = {
      {{'b', 2}, {'l', 5}, {'d', 7}, {'h', 3}, {'k', 4}, {'m', 6}, {'f', 9}, {'v', 11}},
      {{'b', 3}, {'l', 17}, {'d', 33}, {'h', 2}, {'k', 19}, {'m', 21}, {'f', 13}, {'v', 35}},
      {{'b', 1}, {'l', 1}, {'d', 40}, {'h', 4}, {'k', 16}, {'m', 8}, {'f', 64}, {'v', 1}}};
  std::uint64_t seed = 1;
  for (const Form& form : forms()) {
    for (const auto& size : sizes) {
      for (DType dtype : {DType::F32, DType::BF16, DType::F64, DType::I32})
        check(form, size, dtype, seed += 2);
    }
  }
}

TEST(CpuEinsum, SizesBeyondEveryBlock) {
  // k beyond one block (256), rows beyond one block (144 and 576), columns beyond one block (512 and 1024).
  for (DType dtype : {DType::F32, DType::BF16}) {
    check({"ld", "df", "lf"}, {{'l', 601}, {'d', 300}, {'f', 70}}, dtype, 5);
    check({"ld", "df", "lf"}, {{'l', 50}, {'d', 530}, {'f', 1100}}, dtype, 7);
    check({"dl", "fd", "lf"}, {{'l', 150}, {'d', 520}, {'f', 530}}, dtype, 9);
  }
  check({"ld", "df", "lf"}, {{'l', 150}, {'d', 400}, {'f', 530}}, DType::F64, 11);
}

TEST(CpuEinsum, EmptySumIsZero) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F64, DType::I32}) {
    check({"ld", "df", "lf"}, {{'l', 4}, {'d', 0}, {'f', 5}}, dtype, 1);
    check({"d", "d", ""}, {{'d', 0}}, dtype, 1);
  }
}

TEST(CpuEinsum, IntegersWrap) {
  Array a(type_of("k:3", DType::I32), {2147483647, 2, -5}), b(type_of("k:3", DType::I32), {2, 2147483647, 7});
  expect_matches("einsum", {a, b}, {{"output", Strings{}}}, 0, 0);
}

TEST(CpuEinsum, InfinityAndNanSpread) {
  Array a = random_array(type_of("l:7;d:40", DType::F32), 1),
        b = random_array(type_of("d:40;f:20", DType::F32), 2);
  a.set(45, INFINITY);
  b.set(9, NAN);
  expect_matches("einsum", {a, b}, {{"output", names("lf")}}, 1e-6, 1e-5);
}

TEST(CpuEinsum, GroupsOfAttention) {
  const std::map<char, std::int64_t> sizes = {{'b', 2}, {'l', 5}, {'m', 6}, {'h', 3}, {'k', 4}};
  const Contraction plan =
      plan_contraction({shape_of("blhk", sizes), DType::F32}, {shape_of("bmhk", sizes), DType::F32},
                       {shape_of("bhlm", sizes), DType::F32});
  ASSERT_EQ(plan.batch.size(), 2u);
  EXPECT_EQ(size_of(plan.m), 5);
  EXPECT_EQ(size_of(plan.n), 6);
  EXPECT_EQ(size_of(plan.k), 4);
  EXPECT_FALSE(plan.swapped);
}

TEST(CpuEinsum, AdjacentDimensionsMerge) {
  const std::map<char, std::int64_t> sizes = {{'b', 2}, {'l', 5}, {'d', 6}, {'h', 3}, {'k', 4}};
  const Contraction plan =
      plan_contraction({shape_of("blhk", sizes), DType::F32}, {shape_of("hkd", sizes), DType::F32},
                       {shape_of("bld", sizes), DType::F32});
  ASSERT_EQ(plan.m.size(), 1u);
  ASSERT_EQ(plan.n.size(), 1u);
  ASSERT_EQ(plan.k.size(), 1u);
  EXPECT_EQ(plan.k[0].count, 12);
}

// oneDNN must agree on any machine, although it is preferred on some only; it must refuse what it would do
// slowly.
TEST(CpuEinsum, OneDnnAgreesOrRefuses) {
  const std::map<char, std::int64_t> sizes = {{'b', 3},  {'l', 17}, {'d', 33}, {'h', 2},
                                              {'k', 19}, {'m', 21}, {'f', 13}, {'v', 35}};
  int done = 0;
  for (const Form& form : forms()) {
    const Array a = random_array({shape_of(form.a, sizes), DType::F32}, 3),
                b = random_array({shape_of(form.b, sizes), DType::F32}, 4);
    Array out({shape_of(form.out, sizes), DType::F32});
    const Contraction plan = plan_contraction(a.type, b.type, out.type);
    if (plan.m.empty() || plan.n.empty()) continue;
    const auto product = DnnlProduct::make(plan, 1, 1 << 20);
    if (!product) continue;
    ++done;
    AlignedBuffer scratch(1 << 20);
    product->run((plan.swapped ? b : a).data.data(), (plan.swapped ? a : b).data.data(), out.data.data(),
                 scratch.data());
    const Array expected = run_op(make_call("einsum", {a, b}, {{"output", names(form.out)}}), {a, b})[0];
    EXPECT_EQ(difference(out, expected, 2e-6, 1e-4), "") << form.a << "," << form.b << "->" << form.out;
  }
  EXPECT_GE(done, 10);
}

}  // namespace
}  // namespace tessera::testing
