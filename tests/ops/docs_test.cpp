// docs/ops.md is what the records say. To write it anew: TESSERA_UPDATE=1 tessera_ops_tests
// --gtest_filter='Docs.*'
#include "ops/docs.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace tessera {
namespace {

const std::string kPath = std::string(TESSERA_SOURCE_DIR) + "/docs/ops.md";

TEST(Docs, OpsPageIsCurrent) {
  const std::string expected = ops_markdown();
  if (std::getenv("TESSERA_UPDATE")) std::ofstream(kPath) << expected;
  std::ostringstream found;
  found << std::ifstream(kPath).rdbuf();
  EXPECT_TRUE(found.str() == expected) << "docs/ops.md is out of date; run with TESSERA_UPDATE=1 to write it";
}

}  // namespace
}  // namespace tessera
