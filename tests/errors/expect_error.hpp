// expect_error.hpp -- one line that checks all that an error has to say.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "flashspan/core/error.hpp"

namespace flashspan::testing {

struct Expected {
  ErrorCode code = ErrorCode::bad_argument;
  std::string argument;
  std::string got;    ///< is part of the error's text
  std::string takes;  ///< is part of the error's text
};

template <typename Outcome>
void expect_error(const Outcome& outcome, const Expected& expected) {
  ASSERT_FALSE(outcome.has_value()) << "no error; expected one about " << expected.argument;
  const Error& error = outcome.error();
  EXPECT_EQ(error.code, expected.code) << error.message();
  EXPECT_EQ(error.argument, expected.argument) << error.message();
  EXPECT_THAT(error.got, ::testing::HasSubstr(expected.got));
  EXPECT_THAT(error.takes, ::testing::HasSubstr(expected.takes));
  EXPECT_NE(error.got, "");
  EXPECT_NE(error.takes, "");
}

}  // namespace flashspan::testing
