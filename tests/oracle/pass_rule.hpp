// pass_rule.hpp -- the accuracy rule: error against fp64 at most twice a plain dense attention's, plus rounding.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "attention.hpp"

namespace oracle {

/// Largest and root-mean-square difference over the elements that are finite in both; equal infinities and NaN
/// in both places count as no difference, anything else as infinite.
struct Difference {
  double largest = 0;
  double root_mean_square = 0;
  std::string where;  ///< of the largest: "[b, h, s, d]: got .., expected .."
};
[[nodiscard]] Difference difference(const Tensor& ours, const Tensor& reference);

/// The rule, for the largest error and for the root mean square. `further_rounding` is the relative error of one more
/// rounding that the method under test has and a plain one has not, `absolute_rounding` an error of any size of result.
[[nodiscard]] testing::AssertionResult passes(const std::string& name, const Tensor& ours, const Tensor& reference,
                                              const Tensor& plain, Format format, double further_rounding = 0,
                                              double absolute_rounding = 0);
/// The rule for out and lse, and for the gradients if the reference has them. Gradients come from weights
/// exp(score - lse) with lse stored in binary32: its absolute rounding error is their relative one. What cancels
/// in them may leave plain.query_gradient_rounding and plain.key_gradient_rounding, in the sink's gradient
/// plain.sink_gradient_rounding, in those of what the score reads twice plain.score_gradient_roundings.
[[nodiscard]] testing::AssertionResult passes(const Answer& ours, const Answer& reference, const Answer& plain,
                                              Format format);

/// Every element within `tolerance` of `expected`, infinities and NaN in the same places.
[[nodiscard]] testing::AssertionResult near(const std::string& name, const Tensor& ours, const Tensor& expected,
                                            double tolerance);
/// Equal in every bit; the message names the first difference.
[[nodiscard]] testing::AssertionResult same_bits(const std::string& name, const Tensor& left, const Tensor& right);
[[nodiscard]] testing::AssertionResult same_bits(const Answer& left, const Answer& right);
/// The same, but for the gradient of the query, where a kernel that is not asked to be deterministic adds in any order:
/// there an element may be rounded to a neighbour, of numbers of at most about 1.
[[nodiscard]] testing::AssertionResult same_bits_but_for_sums(const Answer& left, const Answer& right);
/// Every element equals `value` exactly.
[[nodiscard]] testing::AssertionResult all_equal(const std::string& name, const Tensor& ours, double value);

}  // namespace oracle
