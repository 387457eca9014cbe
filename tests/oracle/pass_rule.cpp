// pass_rule.cpp -- the comparisons, with messages that say which element of which tensor is wrong.
#include "pass_rule.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <sstream>

namespace oracle {
namespace {

std::string place_of(const Tensor& tensor, std::size_t position) {
  const auto index = static_cast<Index>(position);
  std::ostringstream text;
  text << "[" << index / (tensor.heads * tensor.rows * tensor.columns) << ", "
       << index / (tensor.rows * tensor.columns) % tensor.heads << ", " << index / tensor.columns % tensor.rows << ", "
       << index % tensor.columns << "]";
  return text.str();
}

std::string describe(const Tensor& ours, const Tensor& expected, std::size_t position) {
  std::ostringstream text;
  text.precision(9);
  text << place_of(ours, position) << ": got " << ours.values[position] << ", expected " << expected.values[position];
  return text.str();
}

double distance(double ours, double expected) {
  if (std::isnan(ours) && std::isnan(expected)) return 0;
  if (ours == expected) return 0;
  if (!std::isfinite(ours) || !std::isfinite(expected)) return std::numeric_limits<double>::infinity();
  return std::fabs(ours - expected);
}

/// Largest and root-mean-square magnitude of the finite elements.
Difference magnitude(const Tensor& tensor) {
  Tensor finite = tensor;
  for (double& value : finite.values) value = std::isfinite(value) ? value : 0.0;
  return difference(finite, Tensor(tensor.batch, tensor.heads, tensor.rows, tensor.columns));
}

testing::AssertionResult shape_failure(const std::string& name, const Tensor& ours, const Tensor& expected) {
  return testing::AssertionFailure() << name << " has " << ours.values.size() << " elements, expected "
                                     << expected.values.size();
}

}  // namespace

Difference difference(const Tensor& ours, const Tensor& reference) {
  Difference result;
  double squares = 0;
  for (std::size_t i = 0; i < reference.values.size(); ++i) {
    const double error = distance(ours.values[i], reference.values[i]);
    squares += error * error;
    if (error > result.largest) {
      result.largest = error;
      result.where = describe(ours, reference, i);
    }
  }
  if (!reference.values.empty()) {
    result.root_mean_square = std::sqrt(squares / static_cast<double>(reference.values.size()));
  }
  return result;
}

testing::AssertionResult passes(const std::string& name, const Tensor& ours, const Tensor& reference,
                                const Tensor& plain, Format format, double further_rounding, double absolute_rounding) {
  if (!ours.same_shape(reference)) return shape_failure(name, ours, reference);
  const Difference error = difference(ours, reference);
  const Difference yardstick = difference(plain, reference);
  const Difference size = magnitude(reference);
  // binary32 results are sums of many roundings; 16-bit ones end in one rounding that dwarfs those.
  const double roundings = format == Format::f32 ? 16.0 : 1.0;
  const double rounding = roundings * unit_roundoff(format) + further_rounding;
  const double largest_allowed =
      2 * yardstick.largest + rounding * size.largest + absolute_rounding + underflow_unit(format);
  const double mean_allowed =
      2 * yardstick.root_mean_square + rounding * size.root_mean_square + absolute_rounding + underflow_unit(format);
  if (error.largest <= largest_allowed && error.root_mean_square <= mean_allowed) return testing::AssertionSuccess();
  return testing::AssertionFailure() << name << " is off by " << error.largest << " (allowed " << largest_allowed
                                     << "), root mean square " << error.root_mean_square << " (allowed " << mean_allowed
                                     << "), most at " << error.where;
}

testing::AssertionResult passes(const Answer& ours, const Answer& reference, const Answer& plain, Format format) {
  testing::AssertionResult all = testing::AssertionSuccess();
  const auto check = [&](const char* name, const Tensor& left, const Tensor& right, const Tensor& third, Format in,
                         double further_rounding = 0, double absolute_rounding = 0) {
    const testing::AssertionResult one = passes(name, left, right, third, in, further_rounding, absolute_rounding);
    if (!one) all = testing::AssertionFailure() << (all ? "" : all.message()) << one.message() << "\n";
  };
  check("out", ours.out, reference.out, plain.out, format);
  if (!ours.lse.values.empty()) check("lse", ours.lse, reference.lse, plain.lse, Format::f32);
  if (!reference.query_gradient.values.empty() || !reference.key_gradient.values.empty()) {
    const double of_lse = unit_roundoff(Format::f32) * magnitude(reference.lse).largest;
    check("query_gradient", ours.query_gradient, reference.query_gradient, plain.query_gradient, format, of_lse,
          plain.query_gradient_rounding);
    check("key_gradient", ours.key_gradient, reference.key_gradient, plain.key_gradient, format, of_lse,
          plain.key_gradient_rounding);
    check("value_gradient", ours.value_gradient, reference.value_gradient, plain.value_gradient, format, of_lse);
  }
  if (!ours.sink_gradient.values.empty()) {
    check("sink_gradient", ours.sink_gradient, reference.sink_gradient, plain.sink_gradient, Format::f32, 0,
          plain.sink_gradient_rounding);
  }
  if (ours.score_gradients.size() != reference.score_gradients.size()) {
    return testing::AssertionFailure() << ours.score_gradients.size() << " score gradients, expected "
                                       << reference.score_gradients.size();
  }
  for (std::size_t i = 0; i < ours.score_gradients.size(); ++i) {
    const std::string name = "score_gradients " + std::to_string(i);
    check(name.c_str(), ours.score_gradients[i], reference.score_gradients[i], plain.score_gradients[i], Format::f32,
          unit_roundoff(Format::f32) * magnitude(reference.lse).largest, 2 * plain.score_gradient_roundings[i]);
  }
  return all;
}

testing::AssertionResult near(const std::string& name, const Tensor& ours, const Tensor& expected, double tolerance) {
  if (!ours.same_shape(expected)) return shape_failure(name, ours, expected);
  const Difference error = difference(ours, expected);
  if (error.largest <= tolerance) return testing::AssertionSuccess();
  return testing::AssertionFailure() << name << " is off by " << error.largest << " (allowed " << tolerance << ") at "
                                     << error.where;
}

testing::AssertionResult same_bits(const std::string& name, const Tensor& left, const Tensor& right) {
  if (!left.same_shape(right)) return shape_failure(name, left, right);
  for (std::size_t i = 0; i < left.values.size(); ++i) {
    if (std::bit_cast<std::uint64_t>(left.values[i]) != std::bit_cast<std::uint64_t>(right.values[i])) {
      return testing::AssertionFailure() << name << " differs at " << describe(left, right, i);
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult same_bits(const Answer& left, const Answer& right) {
  testing::AssertionResult all = testing::AssertionSuccess();
  const auto check = [&](const char* name, const Tensor& first, const Tensor& second) {
    const testing::AssertionResult one = same_bits(name, first, second);
    if (!one) all = testing::AssertionFailure() << (all ? "" : all.message()) << one.message() << "\n";
  };
  check("out", left.out, right.out);
  check("lse", left.lse, right.lse);
  check("query_gradient", left.query_gradient, right.query_gradient);
  check("key_gradient", left.key_gradient, right.key_gradient);
  check("value_gradient", left.value_gradient, right.value_gradient);
  check("sink_gradient", left.sink_gradient, right.sink_gradient);
  if (left.score_gradients.size() != right.score_gradients.size())
    return testing::AssertionFailure() << "score gradients";
  for (std::size_t i = 0; i < left.score_gradients.size(); ++i) {
    check(("score_gradients " + std::to_string(i)).c_str(), left.score_gradients[i], right.score_gradients[i]);
  }
  return all;
}

testing::AssertionResult same_bits_but_for_sums(const Answer& left, const Answer& right) {
  constexpr double neighbours = 1.0 / 128;     // two of the 8 bits of a bf16
  constexpr double of_cancelled_terms = 1e-5;  // fp32 sums of terms of about 1
  Answer rounded = right;
  if (!left.query_gradient.same_shape(right.query_gradient)) return same_bits(left, right);
  for (std::size_t i = 0; i < rounded.query_gradient.values.size(); ++i) {
    const double ours = left.query_gradient.values[i];
    double& theirs = rounded.query_gradient.values[i];
    if (std::abs(ours - theirs) <= neighbours * std::abs(theirs) + of_cancelled_terms) theirs = ours;
  }
  rounded.score_gradients = left.score_gradients;
  return same_bits(left, rounded);
}

testing::AssertionResult all_equal(const std::string& name, const Tensor& ours, double value) {
  for (std::size_t i = 0; i < ours.values.size(); ++i) {
    if (distance(ours.values[i], value) != 0) {
      return testing::AssertionFailure() << name << " at " << place_of(ours, i) << " is " << ours.values[i]
                                         << ", expected exactly " << value;
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace oracle
