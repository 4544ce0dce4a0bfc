// The table in docs/faults.md: a row for every case, and no row names a test that is not there.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

namespace tessera::testing {
namespace {

const char* const kCases =
    "U1 U4 U5 U6 U8 U9 U10 U11 U12 U13 L1 L2 L3 L5 L7 L8 P1 P2 P4 P5 R1 R3 R4 R6 R7 X1 X2 X3 X4 X5 X7 X10 "
    "X12 X13 X16 G1 G2 G5 G7 G8 G9 G10 G11 G12 N2 N4 N5 D1 D3 D4 D5 F1 F2 F3 M2 M3 M5 M6 M8 C4 C5 E2 E4 E5 "
    "K1 K3 K4 K7 "
    "K8 "
    "H3 H5 H6 H9 S2 S5 S6 S8 O1 O2 O3 O6";

std::string text_of(const std::string& path) {
  std::ifstream in(std::string(TESSERA_SOURCE_DIR) + "/" + path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

struct Row {
  std::string id, covered;
};

std::vector<Row> rows() {
  std::vector<Row> all;
  std::istringstream lines(text_of("docs/faults.md"));
  const std::regex row(R"(\| ([A-Z][0-9]+) \| .* \| (.*) \|)");
  std::smatch m;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_match(line, m, row)) all.push_back({m[1], m[2]});
  }
  return all;
}

TEST(FaultsTable, HasEveryCaseOnce) {
  std::multiset<std::string> have, want;
  for (const Row& row : rows()) have.insert(row.id);
  std::istringstream ids(kCases);
  for (std::string id; ids >> id;) want.insert(id);
  EXPECT_EQ(have, want);
}

TEST(FaultsTable, NamesTestsThatExist) {
  for (const Row& row : rows()) {
    if (row.covered.rfind("does not exist yet: ", 0) == 0) continue;
    std::istringstream tests(std::regex_replace(row.covered, std::regex(", "), "\n"));
    for (std::string test; std::getline(tests, test);) {
      std::smatch m;
      ASSERT_TRUE(std::regex_match(test, m, std::regex(R"(([a-z_/]+\.cpp)::(\w+)\.(\w+))")))
          << row.id << ": " << test;
      const std::regex declared("TEST(_F|_P)?\\(" + m[2].str() + ", " + m[3].str() + "\\)");
      EXPECT_TRUE(std::regex_search(text_of("tests/" + m[1].str()), declared))
          << row.id << ": there is no test " << test;
    }
  }
}

}  // namespace
}  // namespace tessera::testing
