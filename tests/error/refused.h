// Asserts the whole text and the exit code of a refusal. Line numbers of the test itself are written LINE.
#pragma once

#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "tessera/error.h"

namespace tessera::testing {

inline std::string without_lines(const std::string& message) {
  return std::regex_replace(message, std::regex("(_test\\.cpp):[0-9]+"), "$1:LINE");
}

template <class Body>
void expect_refused(const std::string& message, ExitCode code, Body body) {
  try {
    body();
    ADD_FAILURE() << "accepted; expected: " << message;
  } catch (const UserError& error) {
    EXPECT_EQ(without_lines(error.what()), message);
    EXPECT_EQ(error.code(), code) << message;
  }
}

}  // namespace tessera::testing
