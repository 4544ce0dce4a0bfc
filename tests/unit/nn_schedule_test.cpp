// Schedules against their formulas, and their text form.
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/error.h"
#include "tessera/optimizer.h"

namespace tessera {
namespace {

double at(const char* text, double step, double total = 1000) {
  return Schedule::parse(text).at(step, total);
}

TEST(Schedule, FactorsFollowTheirFormulas) {
  EXPECT_DOUBLE_EQ(at("0.25", 7), 0.25);
  EXPECT_DOUBLE_EQ(at("constant(3)", 7), 3);
  EXPECT_DOUBLE_EQ(at("linear_warmup(100)", 25), 0.25);
  EXPECT_DOUBLE_EQ(at("linear_warmup(100)", 250), 1);
  EXPECT_DOUBLE_EQ(at("linear_decay(0.1)", 950), 0.5);  // the last 100 of 1000 steps
  EXPECT_DOUBLE_EQ(at("linear_decay(200)", 950), 0.25);
  EXPECT_DOUBLE_EQ(at("linear_decay", 1200), 0);
  EXPECT_DOUBLE_EQ(at("truncated_rsqrt(100)", 25), 0.1);
  EXPECT_DOUBLE_EQ(at("truncated_rsqrt(100)", 400), 0.05);
  EXPECT_DOUBLE_EQ(at("noam(warmup=100, decay=0.5, multiplier=2)", 900), 2 / 30.0 * 0.2);
  EXPECT_DOUBLE_EQ(at("noam(100, 0)", 900), 1 / 30.0);
  EXPECT_DOUBLE_EQ(at("slanted_triangular", 0), 0.01 / 32);
  EXPECT_DOUBLE_EQ(at("slanted_triangular", 100), 0.01);
  EXPECT_NEAR(at("slanted_triangular", 550), 0.01 * (1 + 0.5 * 31) / 32, 1e-15);
  EXPECT_DOUBLE_EQ(at("cosine(0.1)", 0), 1);
  EXPECT_NEAR(at("cosine(0.1)", 500), 0.55, 1e-15);
  EXPECT_DOUBLE_EQ(at("cosine(0.1)", 1000), 0.1);
  EXPECT_DOUBLE_EQ(at("inverse_sqrt(100)", 49), 0.5);
  EXPECT_DOUBLE_EQ(at("inverse_sqrt(100)", 99), 1);
  EXPECT_DOUBLE_EQ(at("inverse_sqrt(100)", 399), 0.5);
  EXPECT_DOUBLE_EQ(at("warmup_linear(100)", 0), 0.01);
  EXPECT_DOUBLE_EQ(at("warmup_linear(0.1)", 99), 1);
  EXPECT_DOUBLE_EQ(at("warmup_linear(100)", 550), 0.5);
  EXPECT_DOUBLE_EQ(at("warmup_linear(100)", 1000), 0);
  EXPECT_DOUBLE_EQ(at("exponential(0.3, 100)", 250), 0.09);
  EXPECT_DOUBLE_EQ(at("adafactor()", 3), 0.01);
  EXPECT_DOUBLE_EQ(at("adafactor", 39999), 0.005);
}

TEST(Schedule, ProductsMultiplyAndOffsetsShiftStepAndTotal) {
  EXPECT_DOUBLE_EQ(at("2 * linear_warmup(100) * truncated_rsqrt(100)", 50), 2 * 0.5 * 0.1);
  EXPECT_DOUBLE_EQ(at("linear_warmup(100) * offset(200)", 250), 0.5);
  EXPECT_DOUBLE_EQ(at("linear_warmup(100) * offset(200)", 100), 0);
  EXPECT_DOUBLE_EQ(at("linear_decay(0.1) * offset(500)", 975), 0.5);  // the last 50 of 500
  EXPECT_DOUBLE_EQ(Schedule().at(5, 10), 1);
}

TEST(Schedule, TextFormParsesBack) {
  for (const char* text : {"0.002 * warmup_linear(0.1)", "1e-05", "noam(1000, 0.1, 2)", "adafactor()", "1",
                           "0.1 * offset(30) * cosine(0.25)"}) {
    const Schedule schedule = Schedule::parse(text);
    EXPECT_EQ(Schedule::parse(to_string(schedule)), schedule) << text;
    EXPECT_EQ(to_string(Schedule::parse(to_string(schedule))), to_string(schedule));
  }
  EXPECT_EQ(to_string(Schedule::parse(" 2*linear_warmup ( steps = 4 )")), "2 * linear_warmup(4)");
}

TEST(Schedule, BadTextIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"0.1 * linear_warmpu(3)",
       "schedule '0.1 * linear_warmpu(3)': there is no factor 'linear_warmpu'; did you mean "
       "'linear_warmup'?; the factors "
       "are numbers and constant, linear_warmup, linear_decay, truncated_rsqrt, noam, slanted_triangular, "
       "cosine, "
       "inverse_sqrt, warmup_linear, exponential, adafactor, offset"},
      {"", "schedule '', column 1: expected a number or the name of a factor"},
      {"0.1 *", "schedule '0.1 *', column 6: expected a number or the name of a factor"},
      {"0.1 0.2", "schedule '0.1 0.2', column 5: expected '*' or the end"},
      {"cosine(1, 2)", "schedule 'cosine(1, 2)': cosine takes at most 1 arguments"},
      {"cosine(end=1)", "schedule 'cosine(end=1)': cosine has no argument 'end'; it takes final"},
      {"cosine(-1)", "schedule 'cosine(-1)', column 8: expected a number that is not negative"},
      {"offset()", "schedule 'offset()': offset needs 'steps'"},
      {"cosine(1", "schedule 'cosine(1', column 9: expected ',' or ')'"},
  };
  for (const auto& [text, message] : cases) {
    try {
      Schedule::parse(text);
      ADD_FAILURE() << text << " was accepted";
    } catch (const UserError& error) {
      EXPECT_STREQ(error.what(), message);
    }
  }
}

}  // namespace
}  // namespace tessera
