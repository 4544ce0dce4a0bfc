// A fused op must equal its own expansion into primitives.
#include <cmath>

#include "support/op_param.h"
#include "support/samples.h"

namespace tessera::testing {
namespace {

class Fused : public EveryOp {};

double epsilon_of(DType type) {
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

void compare(const SampleCase& c, const std::vector<Array>& inputs) {
  const Call call = c.call();
  const std::vector<Array> kernel = run_op(call, inputs), expansion = run_expansion(call, inputs);
  ASSERT_EQ(kernel.size(), expansion.size());
  for (std::size_t o = 0; o < kernel.size(); ++o) {
    // The coarsest type on the way bounds the error, units apply to values of order one.
    double eps = epsilon_of(kernel[o].type.dtype);
    for (const Type& type : call.in) eps = std::max(eps, epsilon_of(type.dtype));
    EXPECT_EQ(difference(kernel[o], expansion[o], 4 * c.op->ulps * eps, 4 * c.op->ulps * eps), "")
        << "output " << o;
  }
}

TEST_P(Fused, KernelEqualsExpansion) {
  if (!op().expand) GTEST_SKIP() << "not fused";
  for (const SampleCase& c : cases_of(op())) {
    SCOPED_TRACE(c.text());
    compare(c, inputs_of(c, Fill::Reals));
    compare(c, inputs_of(c, Fill::Integers));
  }
}

TESSERA_FOR_EVERY_OP(Fused);

}  // namespace
}  // namespace tessera::testing
