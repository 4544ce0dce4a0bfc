// Fused loops against the interpreter of scalar code, and the promise that an element's bits depend on its
// inputs only.
#include <cstring>

#include "cpu_harness.h"
#include "exec/cpu/fused.h"
#include "exec/cpu/fused_sum.h"

namespace tessera::testing {
namespace {

std::vector<std::int64_t> strides_in(const Shape& shape, const Shape& loop) {
  const View view = make_view(nullptr, {shape, DType::F32});
  std::vector<std::int64_t> strides;
  for (const Dim& dim : loop) {
    const int d = shape.find(dim.name);
    strides.push_back(d < 0 ? 0 : view.stride[static_cast<std::size_t>(d)]);
  }
  return strides;
}

FusedSpec spec_of(const ScalarCode& code, const std::vector<Array>& in, const std::vector<Array>& out,
                  int threads) {
  FusedSpec spec;
  spec.code = code;
  spec.threads = threads;
  const Shape& loop = out[0].type.shape;
  for (const Dim& dim : loop) spec.extent.push_back(dim.size);
  for (const Array& x : in) {
    spec.in_types.push_back(x.type.dtype);
    spec.in_strides.push_back(strides_in(x.type.shape, loop));
  }
  for (const Array& x : out) {
    spec.out_types.push_back(x.type.dtype);
    spec.out_strides.push_back(strides_in(x.type.shape, loop));
  }
  return spec;
}

std::vector<Array> run_loop(const ScalarCode& code, std::vector<Array> in, const std::vector<Type>& types,
                            int threads = 1, const std::vector<double>& sums = {}) {
  std::vector<Array> out;
  for (const Type& type : types) out.emplace_back(type);
  std::vector<void*> from, to;
  for (Array& x : in) from.push_back(x.data.data());
  for (Array& x : out) to.push_back(x.data.data());
  Team team(threads);
  const Team::Use use(team);
  FusedSpec spec = spec_of(code, in, out, threads);
  spec.sums = sums;
  std::int64_t scratch = 0;
  for (std::size_t o = 0; o < sums.size(); ++o)
    if (sums[o] != 0) scratch += FusedSums::workspace(out[o].elements());
  AlignedBuffer buffer(static_cast<std::size_t>(scratch));
  FusedLoop(spec).run(from.data(), to.data(), buffer.data());
  return out;
}

// The interpreter on every element, the loop being over the dimensions of the first output.
std::vector<Array> interpreted(const ScalarCode& code, const std::vector<Array>& in,
                               const std::vector<Type>& types) {
  std::vector<Array> out;
  for (const Type& type : types) out.emplace_back(type);
  const Shape& loop = types[0].shape;
  for (std::int64_t i = 0; i < loop.elements(); ++i) {
    std::vector<std::int64_t> index(loop.count());
    std::int64_t rest = i;
    for (std::size_t d = loop.count(); d-- > 0; rest /= loop[d].size) index[d] = rest % loop[d].size;
    const auto at = [&](const Shape& shape) {
      const auto strides = strides_in(shape, loop);
      std::int64_t offset = 0;
      for (std::size_t d = 0; d < index.size(); ++d) offset += index[d] * strides[d];
      return offset;
    };
    std::vector<double> values;
    for (const Array& x : in) values.push_back(x.get(at(x.type.shape)));
    const std::vector<double> results = interpret(code, values);
    for (std::size_t o = 0; o < out.size(); ++o) out[o].set(at(types[o].shape), results[o]);
  }
  return out;
}

ScalarCode one(Scalar op, int inputs, DType type) {
  Instruction instruction{op, 0, inputs > 1 ? 1 : -1, inputs > 2 ? 2 : -1, 0, type};
  return {inputs, {instruction}, {inputs}};
}

bool gives_bool(Scalar op) {
  return op >= Scalar::Less && op <= Scalar::Not;
}

TEST(CpuFused, EveryInstructionOnFloats) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F64}) {
    const double relative = dtype == DType::F32 ? 6e-7 : dtype == DType::BF16 ? 4e-3 : 1e-15;
    for (int k = static_cast<int>(Scalar::Neg); k <= static_cast<int>(Scalar::NotEqual); ++k) {
      const auto op = static_cast<Scalar>(k);
      if (op == Scalar::And || op == Scalar::Or) continue;
      const int inputs = op < Scalar::Add ? 1 : 2;
      const bool positive =
          op == Scalar::Sqrt || op == Scalar::Rsqrt || op == Scalar::Log || op == Scalar::Pow;
      const double low = positive ? 0.01 : op == Scalar::Log1p ? -0.95 : -9, high = 9;
      const std::vector<Array> in = {random_array(type_of("a:9;b:37", dtype), 3, low, high),
                                     random_array(type_of("a:9;b:37", dtype), 4, positive ? -3 : -9, 7)};
      const std::vector<Array> used(in.begin(), in.begin() + inputs);
      const DType result = gives_bool(op) ? DType::Bool : dtype;
      const ScalarCode code = one(op, inputs, result);
      const std::vector<Type> out = {type_of("a:9;b:37", result)};
      EXPECT_EQ(
          difference(run_loop(code, used, out)[0], interpreted(code, used, out)[0], relative, relative / 8),
          "")
          << "instruction " << k << " on " << to_string(dtype);
    }
  }
}

TEST(CpuFused, EveryInstructionOnIntegers) {
  const Array a(type_of("n:8", DType::I32), {7, -7, 0, 2147483647, -2147483648.0, 5, -6, 1});
  const Array b(type_of("n:8", DType::I32), {2, 2, 0, 2, -1, -3, -3, 31});
  for (Scalar op : {Scalar::Neg, Scalar::Abs, Scalar::Sign, Scalar::Not, Scalar::Add, Scalar::Sub,
                    Scalar::Mul, Scalar::FloorDiv, Scalar::Mod, Scalar::Min, Scalar::Max, Scalar::Less,
                    Scalar::LessEqual, Scalar::Equal, Scalar::NotEqual, Scalar::And, Scalar::Or}) {
    const int inputs = op < Scalar::Add || op == Scalar::Not ? 1 : 2;
    const std::vector<Array> in = inputs == 1 ? std::vector<Array>{a} : std::vector<Array>{a, b};
    const DType result = gives_bool(op) ? DType::Bool : DType::I32;
    const ScalarCode code = one(op, inputs, result);
    const std::vector<Type> out = {type_of("n:8", result)};
    EXPECT_TRUE(same_bits(run_loop(code, in, out)[0], interpreted(code, in, out)[0]))
        << "instruction " << static_cast<int>(op);
  }
}

TEST(CpuFused, SpecialValues) {
  const std::vector<double> x = {0.0,   -0.0, INFINITY, -INFINITY, NAN,    1e-40, -1e-40, 3e38,
                                 -3e38, 88.7, 89.0,     -103,      -104.5, 1,     -1,     20};
  for (DType dtype : {DType::F32, DType::F64}) {
    for (int k = static_cast<int>(Scalar::Neg); k <= static_cast<int>(Scalar::Floor); ++k) {
      const auto op = static_cast<Scalar>(k);
      const std::vector<Array> in = {Array(type_of("n:16", dtype), x)};
      const std::vector<Type> out = {type_of("n:16", dtype)};
      const ScalarCode code = one(op, 1, dtype);
      EXPECT_EQ(difference(run_loop(code, in, out)[0], interpreted(code, in, out)[0], 6e-7, 2e-38), "")
          << "instruction " << k << " on " << to_string(dtype);
    }
    for (Scalar op : {Scalar::Min, Scalar::Max, Scalar::Div, Scalar::Equal, Scalar::NotEqual, Scalar::Less,
                      Scalar::LessEqual}) {
      std::vector<double> y(x.rbegin(), x.rend());
      y[11] = NAN;
      const DType result = gives_bool(op) ? DType::Bool : dtype;
      const std::vector<Array> in = {Array(type_of("n:16", dtype), x), Array(type_of("n:16", dtype), y)};
      const std::vector<Type> out = {type_of("n:16", result)};
      const ScalarCode code = one(op, 2, result);
      EXPECT_EQ(difference(run_loop(code, in, out)[0], interpreted(code, in, out)[0], 1e-7, 0), "")
          << static_cast<int>(op);
    }
  }
}

TEST(CpuFused, SelectTakesNothingFromTheOtherBranch) {
  const ScalarCode code = one(Scalar::Select, 3, DType::F32);
  const std::vector<Array> in = {Array(type_of("n:3", DType::Bool), {1, 0, 1}),
                                 Array(type_of("n:3", DType::F32), {1, NAN, 3}),
                                 Array(type_of("n:3", DType::F32), {INFINITY, 5, NAN})};
  EXPECT_EQ(run_loop(code, in, {type_of("n:3", DType::F32)})[0].values(), (std::vector<double>{1, 5, 3}));
}

TEST(CpuFused, Casts) {
  const std::vector<DType> all = {DType::F32, DType::BF16, DType::F64, DType::I32, DType::Bool};
  for (DType from : all) {
    for (DType to : all) {
      Array x = random_array(type_of("n:37", from), 5, -300, 300);
      if (is_floating(from)) x.set(3, NAN), x.set(4, 3e20), x.set(5, -3e20), x.set(6, 0);
      if (from == DType::F32) {  // rounding upwards must not carry a NaN into an infinity
        const std::uint32_t bits = 0x7fffffffu;
        std::memcpy(x.data.data(), &bits, sizeof(bits));
      }
      const ScalarCode code = one(Scalar::Cast, 1, to);
      const std::vector<Type> out = {type_of("n:37", to)};
      EXPECT_TRUE(same_bits(run_loop(code, {x}, out)[0], interpreted(code, {x}, out)[0]))
          << to_string(from) << " to " << to_string(to);
    }
  }
}

// (a * b + c) and exp of it, with a constant.
ScalarCode chain(DType dtype) {
  ScalarCode code{3, {}, {4, 6}};
  code.code.push_back({Scalar::Mul, 0, 1, -1, 0, dtype});
  code.code.push_back({Scalar::Add, 3, 2, -1, 0, dtype});
  code.code.push_back({Scalar::Const, -1, -1, -1, 0.25, dtype});
  code.code.push_back({Scalar::Max, 4, 5, -1, 0, dtype});
  return code;
}

TEST(CpuFused, BroadcastsAndPermutedInputs) {
  struct Shapes {
    const char *a, *b, *c, *out;
  };
  for (const Shapes& s :
       {Shapes{"r:5;q:7;p:11", "p:11", "q:7", "r:5;q:7;p:11"},
        Shapes{"p:300;r:3", "r:3;p:300", "", "r:3;p:300"}, Shapes{"r:40", "r:40;p:3", "p:3", "r:40;p:3"},
        Shapes{"", "", "", "r:4;p:5"}, Shapes{"", "", "", ""},
        Shapes{"r:2;q:3;p:700", "q:3", "r:2;p:700", "r:2;q:3;p:700"}, Shapes{"r:1;p:1", "p:1", "", "p:1;r:1"},
        Shapes{"q:70;r:65", "r:65;q:70", "r:65", "r:65;q:70"},
        Shapes{"n:5000", "n:5000", "n:5000", "n:5000"}}) {
    for (DType dtype : {DType::F32, DType::BF16, DType::F64, DType::I32}) {
      const std::vector<Array> in = {random_array(type_of(s.a, dtype), 1),
                                     random_array(type_of(s.b, dtype), 2),
                                     random_array(type_of(s.c, dtype), 3)};
      const std::vector<Type> out = {type_of(s.out, dtype), type_of(s.out, dtype)};
      const auto got = run_loop(chain(dtype), in, out), want = interpreted(chain(dtype), in, out);
      for (std::size_t o = 0; o < 2; ++o) {
        EXPECT_EQ(difference(got[o], want[o], dtype == DType::BF16 ? 4e-3 : 3e-7, 3e-7), "")
            << s.out << " " << to_string(dtype);
      }
    }
  }
}

TEST(CpuFused, BitsDependOnTheInputsOnly) {
  ScalarCode code{1, {}, {3}};
  code.code.push_back({Scalar::Exp, 0, -1, -1, 0, DType::F32});
  code.code.push_back({Scalar::Tanh, 1, -1, -1, 0, DType::F32});
  code.code.push_back({Scalar::Mul, 1, 2, -1, 0, DType::F32});
  const Array x = random_array(type_of("n:70001", DType::F32), 9);
  const Array whole = run_loop(code, {x}, {x.type})[0];
  EXPECT_TRUE(same_bits(whole, run_loop(code, {x}, {x.type}, 3)[0]));
  for (auto [begin, size] : {std::pair{1, 1}, {3, 17}, {100, 2049}, {69990, 11}, {5, 40000}}) {
    const Box box{{begin}, {size}};
    const Array part = part_of(x, box);
    EXPECT_TRUE(same_bits(run_loop(code, {part}, {part.type})[0], part_of(whole, box)))
        << begin << " " << size;
  }
}

TEST(CpuFused, InPlaceOverAnInput) {
  for (const char* shape : {"n:5000", "r:9;p:37", "r:3;p:300"}) {
    Array x = random_array(type_of(shape, DType::F32), 1), y = random_array(type_of(shape, DType::F32), 2);
    const Array z = random_array(type_of("", DType::F32), 3);
    const auto want = run_loop(chain(DType::F32), {x, y, z}, {x.type, x.type});
    const FusedLoop loop(spec_of(chain(DType::F32), {x, y, z}, {x, y}, 1));
    void* in[] = {x.data.data(), y.data.data(), const_cast<std::byte*>(z.data.data())};
    void* out[] = {x.data.data(), y.data.data()};
    loop.run(in, out, nullptr);
    EXPECT_TRUE(same_bits(x, want[0])) << shape;
    EXPECT_TRUE(same_bits(y, want[1])) << shape;
  }
}

TEST(CpuFused, ResultThatIsAnInputOrAConstant) {
  ScalarCode code{
      1, {{Scalar::Const, -1, -1, -1, 2.5, DType::F32}, {Scalar::Neg, 0, -1, -1, 0, DType::F32}}, {0, 1, 2}};
  Array x = random_array(type_of("n:100", DType::F32), 1);
  const Array before = x;
  Array second(x.type), third(x.type);
  void* in[] = {x.data.data()};
  void* out[] = {third.data.data(), second.data.data(), x.data.data()};
  FusedLoop(spec_of(code, {x}, {x, x, x}, 1)).run(in, out, nullptr);
  EXPECT_TRUE(same_bits(third, before));
  EXPECT_EQ(second.get(99), 2.5);
  EXPECT_EQ(x.get(99), -before.get(99));
}

// The last instruction may write straight to one output, but not when another one wants its result too.
TEST(CpuFused, OneResultForTwoOutputs) {
  const ScalarCode code{1, {{Scalar::Neg, 0, -1, -1, 0, DType::F32}}, {1, 1}};
  const Array x = random_array(type_of("n:96", DType::F32), 1);
  const std::vector<Array> out = run_loop(code, {x}, {x.type, x.type});
  EXPECT_EQ(out[0].get(95), -x.get(95));
  EXPECT_TRUE(same_bits(out[0], out[1]));
}

// Angles up to, around and beyond those that vectors reduce by themselves; positions times frequencies are
// there.
TEST(CpuFused, SinesOfLargeAngles) {
  std::vector<double> x;
  for (int i = 0; i < 4096; ++i) x.push_back(static_cast<double>(static_cast<float>(i * 0.7310585786)));
  for (double angle : {3.14159265, 1e4, 38999.0, 39000.5, 1e5, 1e7, -38000.25, -2e6, 0.0, -0.0})
    x.push_back(angle);
  const std::vector<Array> in = {Array(type_of("n:4106", DType::F32), x)};
  for (Scalar op : {Scalar::Sin, Scalar::Cos}) {
    const ScalarCode code = one(op, 1, DType::F32);
    EXPECT_EQ(
        difference(run_loop(code, in, {in[0].type})[0], interpreted(code, in, {in[0].type})[0], 4e-7, 2e-7),
        "")
        << static_cast<int>(op);
  }
}

// Sums over any of the loop's dimensions, beside a value that is written: against sums in double of what is
// written, and the same bits from any number of threads.
TEST(CpuFused, SumsOverAnyDimensions) {
  const ScalarCode code{
      2, {{Scalar::Mul, 0, 1, -1, 0, DType::F32}, {Scalar::Abs, 2, -1, -1, 0, DType::F32}}, {2, 3, 3}};
  for (DType dtype : {DType::F32, DType::BF16, DType::F64}) {
    for (const char* shape :
         {"a:1;b:1", "a:7;b:300;c:5", "a:70;b:3;c:700", "a:65000", "a:3;b:11000", "a:400;b:2;c:64"}) {
      ScalarCode typed = code;
      for (Instruction& i : typed.code) i.type = dtype;
      if (dtype == DType::BF16) {
        typed.code.insert(typed.code.begin() + 1, {Scalar::Cast, 2, -1, -1, 0, dtype});
        typed.code[2].a = 3;
        typed.results = {3, 4, 4};
      }
      const Shape loop = parse_shape(shape);
      for (std::size_t kept = 0; kept < (std::size_t{1} << loop.count()); ++kept) {
        std::vector<Dim> dims;
        for (std::size_t d = 0; d < loop.count(); ++d)
          if ((kept >> d) % 2 == 1) dims.push_back(loop[d]);
        const std::vector<Array> in = {random_array({loop, dtype}, 1), random_array({loop, dtype}, 2)};
        const std::vector<Type> types = {{loop, dtype}, {Shape(dims), dtype}, {Shape(), dtype}};
        const std::vector<double> divisors = {0, 1, 4};
        const std::vector<Array> one = run_loop(typed, in, types, 1, divisors),
                                 three = run_loop(typed, in, types, 3, divisors);
        for (std::size_t o = 0; o < 3; ++o)
          EXPECT_TRUE(same_bits(one[o], three[o])) << shape << " kept " << kept << " output " << o;
        Array sums(types[1]), total(types[2]);
        std::vector<double> in_double(static_cast<std::size_t>(sums.elements()), 0.0);
        double all = 0;
        for (std::int64_t i = 0; i < loop.elements(); ++i) {
          std::int64_t rest = i, at = 0, stride = 1;
          for (std::size_t d = loop.count(); d-- > 0; rest /= loop[d].size) {
            if ((kept >> d) % 2 == 0) continue;
            at += rest % loop[d].size * stride;
            stride *= loop[d].size;
          }
          in_double[static_cast<std::size_t>(at)] += std::abs(one[0].get(i));
          all += std::abs(one[0].get(i)) / 4;
        }
        for (std::int64_t i = 0; i < sums.elements(); ++i)
          sums.set(i, in_double[static_cast<std::size_t>(i)]);
        total.set(0, all);
        const double relative = dtype == DType::F32 ? 1e-6 : dtype == DType::BF16 ? 8e-3 : 1e-13;
        EXPECT_EQ(difference(one[1], sums, relative, 0), "") << shape << " kept " << kept;
        EXPECT_EQ(difference(one[2], total, relative, 0), "") << shape;
      }
    }
  }
}

// A long chain needs more registers than fit the cache in full blocks.
TEST(CpuFused, ManyLiveRegisters) {
  ScalarCode code{1, {}, {}};
  for (int i = 0; i < 150; ++i) {
    code.code.push_back({Scalar::Const, -1, -1, -1, i * 0.5, DType::F32});
    code.code.push_back({Scalar::Add, 0, 1 + 2 * i, -1, 0, DType::F32});
  }
  int sum = 2;
  for (int i = 1; i < 150; ++i) {
    code.code.push_back({Scalar::Add, sum, 2 + 2 * i, -1, 0, DType::F32});
    sum = static_cast<int>(code.code.size());
  }
  code.results = {sum};
  const std::vector<Array> in = {random_array(type_of("n:1003", DType::F32), 1)};
  EXPECT_EQ(difference(run_loop(code, in, {in[0].type})[0], interpreted(code, in, {in[0].type})[0],
                       150 * 0x1p-24, 0),
            "");
}

}  // namespace
}  // namespace tessera::testing
