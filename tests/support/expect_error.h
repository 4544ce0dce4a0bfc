// Asserts the whole text of an error.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace tessera::testing {

template <class Kind, class Body>
void expect_error(Body body, const std::string& message) {
  try {
    body();
    ADD_FAILURE() << "no error; expected: " << message;
  } catch (const Kind& error) {
    EXPECT_EQ(std::string(error.what()), message);
  }
}

}  // namespace tessera::testing
