// Instantiates a suite of tests once for every op record.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tessera/ops.h"

namespace tessera::testing {

class EveryOp : public ::testing::TestWithParam<const Op*> {
 protected:
  const Op& op() const { return *GetParam(); }
};

inline std::string op_test_name(const ::testing::TestParamInfo<const Op*>& info) {
  return info.param->name;
}

}  // namespace tessera::testing

#define TESSERA_FOR_EVERY_OP(suite)                                                                   \
  INSTANTIATE_TEST_SUITE_P(, suite,                                                                   \
                           ::testing::ValuesIn(tessera::all_ops().begin(), tessera::all_ops().end()), \
                           tessera::testing::op_test_name)
