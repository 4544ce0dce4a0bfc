// The truth of roles: cutting a dimension as its role says, in uneven and empty parts, gives the uncut
// result. What is declared Whole but could be split is reported.
#include <fmt/format.h>

#include <cmath>
#include <map>

#include "support/cutting.h"
#include "support/op_param.h"

namespace tessera::testing {
namespace {

int cases = 0;
std::vector<std::string> missed;
std::vector<std::string> inexact;

class Summary : public ::testing::Environment {
 public:
  void TearDown() override {
    fmt::print("role cases: {}\n", cases);
    fmt::print("ops that are not exact: {}\n", fmt::join(inexact, " "));
    fmt::print("missed splits: {}\n", missed.empty() ? "none" : fmt::format("{}", fmt::join(missed, ", ")));
  }
};

const auto* const kSummary = ::testing::AddGlobalTestEnvironment(new Summary);

double unit(DType type) {
  switch (type) {
    case DType::F32:
      return 0x1p-23;
    case DType::BF16:
      return 0x1p-7;
    case DType::F64:
      return 0x1p-52;
    default:
      return 0;
  }
}

std::string mismatch(const Op& op, const std::vector<Array>& parts, const std::vector<Array>& whole) {
  for (std::size_t o = 0; o < whole.size(); ++o) {
    const double bound = 4 * op.ulps * unit(whole[o].type.dtype);
    const bool equal = op.exact && same_bits(parts[o], whole[o]);
    const std::string text =
        equal ? "" : difference(parts[o], whole[o], op.exact ? 0 : bound, op.exact ? 0 : bound);
    if (!text.empty()) return fmt::format("output {}: {}", o, text);
  }
  return "";
}

class Roles : public EveryOp {
 protected:
  void check(const SampleCase& c, const Call& call, const CutPlan& plan) {
    const std::vector<Array> inputs = inputs_of(c, Fill::Integers);
    const std::vector<Array> whole = run_op(call, inputs);
    for (const auto& cut : uneven_cuts(plan.size)) {
      const std::vector<std::int64_t> cuts = aligned_cuts(call, plan, cut);
      ++cases;
      EXPECT_EQ(mismatch(op(), run_in_parts(call, inputs, plan, cuts), whole), "")
          << "dimension " << plan.dim << " cut at " << fmt::format("{}", fmt::join(cuts, " "));
    }
  }
};

// The samples, and the samples with one dimension of size 1 or 2: less than the number of parts.
std::vector<SampleCase> sized_cases(const Op& op) {
  std::vector<SampleCase> all;
  for (const SampleCase& c : cases_of(op)) {
    if (depends_on_parts(c)) continue;
    all.push_back(c);
    for (const Dim& dim : input_dims(c.call())) {
      for (std::int64_t size : {1, 2}) {
        if (const auto other = dim.size == size ? std::nullopt : resized(c, dim.name, dim.size, size))
          all.push_back(*other);
      }
    }
  }
  return all;
}

TEST_P(Roles, OfInputDimensionsAreTrue) {
  if (!op().exact) inexact.push_back(op().name);
  for (const SampleCase& c : sized_cases(op())) {
    SCOPED_TRACE(c.text());
    const Call call = c.call();
    for (const Dim& dim : input_dims(call)) {
      std::optional<CutPlan> plan;
      ASSERT_NO_THROW(plan = plan_of(call, dim));
      if (plan) check(c, call, *plan);
    }
  }
}

TEST_P(Roles, OfMadeDimensionsAreTrue) {
  for (const SampleCase& c : sized_cases(op())) {
    SCOPED_TRACE(c.text());
    const Call call = c.call();
    for (const Dim& dim : made_dims(call)) {
      if (const auto plan = plan_of_made(call, dim)) check(c, call, *plan);
    }
  }
}

// `linear(i)`: the op of a sum is the sum of the ops (of all linear inputs at once when the op is additive).
TEST_P(Roles, LinearInputsPassSums) {
  if (!op().linear) GTEST_SKIP() << "not linear";
  for (const SampleCase& c : cases_of(op(), DType::F64)) {
    SCOPED_TRACE(c.text());
    const Call call = c.call();
    std::vector<std::vector<std::size_t>> groups;
    for (std::size_t i = 0; i < call.in.size(); ++i) {
      if (!op().linear(call, static_cast<int>(i)) || call.in[i].dtype == DType::Bool) continue;
      if (groups.empty() || !op().additive) groups.emplace_back();
      groups.back().push_back(i);
    }
    const std::vector<Array> u = inputs_of(c, Fill::Integers, 1), v = inputs_of(c, Fill::Integers, 2);
    for (const auto& group : groups) {
      std::vector<Array> second = u, both = u;
      for (std::size_t i : group) {
        second[i] = v[i];
        for (std::int64_t k = 0; k < u[i].elements(); ++k) both[i].set(k, u[i].get(k) + v[i].get(k));
      }
      const std::vector<Array> a = run_op(call, u), b = run_op(call, second), sum = run_op(call, both);
      for (std::size_t o = 0; o < sum.size(); ++o) {
        Array expected(sum[o].type);
        for (std::int64_t k = 0; k < expected.elements(); ++k) expected.set(k, a[o].get(k) + b[o].get(k));
        EXPECT_EQ(difference(sum[o], expected, 1e-12, 1e-12), "") << "input " << group[0];
      }
    }
  }
}

// Tries the other roles on a dimension that the record keeps whole.
std::vector<CutPlan> untried(const Call& call, const Dim& dim) {
  CutPlan plan{dim.name, dim.size, {}, Role::Map, {}, true};
  for (const Type& in : call.in)
    plan.cut_input.push_back(in.shape.has(dim.name) && in.shape.size(dim.name) == dim.size);
  bool everywhere = true, nowhere = true;
  for (const Type& out : call.out) {
    const bool has = out.shape.has(dim.name) && out.shape.size(dim.name) == dim.size;
    plan.output_dim.push_back(has ? dim.name : "");
    everywhere = everywhere && has;
    nowhere = nowhere && !out.shape.has(dim.name);
  }
  if (everywhere) return {plan};
  std::vector<CutPlan> plans;
  for (Role role : {Role::Sum, Role::Max, Role::Min}) {
    plan.combine = role;
    if (nowhere) plans.push_back(plan);
  }
  return plans;
}

bool would_do(const SampleCase& c, const Call& call, const CutPlan& plan) {
  try {
    for (Fill fill : {Fill::Reals, Fill::Integers}) {
      const std::vector<Array> inputs = inputs_of(c, fill);
      const std::vector<Array> whole = run_op(call, inputs);
      for (const auto& cuts : uneven_cuts(plan.size)) {
        const std::vector<Array> parts = run_in_parts(call, inputs, plan, cuts);
        for (std::size_t o = 0; o < whole.size(); ++o) {
          if (!difference(parts[o], whole[o], 1e-6, 1e-6).empty()) return false;
        }
      }
    }
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

TEST_P(Roles, MissedSplitsAreReported) {
  if (op().moves) GTEST_SKIP() << "its copies say which piece each rank needs";
  std::map<std::string, bool> verdict;  // over all samples: one that fails settles it
  for (const SampleCase& c : cases_of(op(), DType::F32)) {
    const Call call = c.call();
    if (depends_on_parts(c)) continue;
    for (const Dim& dim : input_dims(call)) {
      if (dim.size < 2 || plan_of(call, dim)) continue;
      for (const CutPlan& plan : untried(call, dim)) {
        const std::string key =
            fmt::format("{}.{} as {}", op().name, dim.name, static_cast<int>(plan.combine));
        const bool does = would_do(c, call, plan);
        verdict[key] = verdict.emplace(key, true).first->second && does;
      }
    }
  }
  for (const auto& [key, does] : verdict) {
    if (does) missed.push_back(key);
  }
}

TESSERA_FOR_EVERY_OP(Roles);

}  // namespace
}  // namespace tessera::testing
