// user_expression_test.cpp -- integer arithmetic in masks means the same in every compiler: Python's.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"

namespace flashspan::tests {
namespace {

class UserExpressions : public AttentionTest {
 protected:
  static Index floor_div(Index a, Index b) {
    return static_cast<Index>(std::floor(static_cast<double>(a) / static_cast<double>(b)));
  }
  static Index floor_mod(Index a, Index b) { return a - b * floor_div(a, b); }

  /// Counts and sums the visible keys of all rows of a long pair of sequences; zero queries make LSE their log count,
  /// and a value of k / 2048 makes out their mean position.
  void expect_pairs(const std::string& text, const oracle::Visible& visible) {
    SCOPED_TRACE(text);
    constexpr Index length = 2048;
    const Scenario scenario{
        .shape = shape_of(1, 1, 1, length, length, 16), .mask = expect_value(Mask::parse(text)), .backward = false};
    Inputs inputs = random_inputs(scenario.shape);
    inputs.query = oracle::Tensor(1, 1, length, 16);
    inputs.value = oracle::Tensor(1, 1, length, 16);
    // Bits of k, one a column: a wrong key shows in some column's mean.
    for (Index k = 0; k < length; ++k)
      for (Index bit = 0; bit < 11; ++bit) inputs.value.at(0, 0, k, bit) = static_cast<double>((k >> bit) & 1);
    const oracle::Answer answer = run(scenario, inputs);
    for (Index q = 0; q < length; ++q) {
      Index count = 0;
      std::array<Index, 11> ones{};
      for (Index k = 0; k < length; ++k) {
        if (!visible(0, 0, q, k)) continue;
        ++count;
        for (std::size_t bit = 0; bit < 11; ++bit) ones[bit] += (k >> bit) & 1;
      }
      if (count == 0) {
        ASSERT_EQ(answer.lse.at(0, 0, q), -INFINITY) << q;
        continue;
      }
      ASSERT_NEAR(answer.lse.at(0, 0, q), std::log(static_cast<double>(count)), 1e-4) << q;
      for (std::size_t bit = 0; bit < 11; ++bit) {
        const double mean = static_cast<double>(ones[bit]) / static_cast<double>(count);
        ASSERT_NEAR(answer.out.at(0, 0, q, static_cast<Index>(bit)), mean, 2 * oracle::unit_roundoff(format()) + 1e-6)
            << "query " << q << ", bit " << bit;
      }
    }
  }
};
FLASHSPAN_ON_EVERY_PLACE(UserExpressions);

// F065: they differ from truncation at q = 1021..1023 and 1025..1027.
TEST_P(UserExpressions, DivisionOfNegativeNumbersFloors) {
  expect_pairs("(q - 1028) // 4 == (k - 1028) // 4",
               [](Index, Index, Index q, Index k) { return floor_div(q - 1028, 4) == floor_div(k - 1028, 4); });
  expect_pairs("((q - 1028) % 4 == 3) & (k // 64 == q // 64)",
               [](Index, Index, Index q, Index k) { return floor_mod(q - 1028, 4) == 3 && k / 64 == q / 64; });
  expect_pairs("(q - k) % -3 == -2", [](Index, Index, Index q, Index k) { return floor_mod(q - k, -3) == -2; });
  expect_pairs("(q - k) // -4 >= -20", [](Index, Index, Index q, Index k) { return floor_div(q - k, -4) >= -20; });
}

// F065
TEST_P(UserExpressions, ProductsDoNotWrapAtThirtyTwoBits) {
  expect_pairs("q * k * 3000 > 2147483647",
               [](Index, Index, Index q, Index k) { return q * k * 3000 > Index{2147483647}; });
}

// F067
TEST_P(UserExpressions, AStepOfZeroGivesZeroAndNoTrap) {
  Integers steps = {3, 0};
  expect_passes({.shape = shape_of(2, 1, 1, 100, 100, 64),
                 .mask = expect_value(Mask::parse("(q - k) % step[b] == 1", {{"step", view_of(steps, {2})}})),
                 .visible = [](Index b, Index, Index q, Index k) { return b == 0 && floor_mod(q - k, 3) == 1; }});
}

// F067
TEST_P(UserExpressions, PermutedPositionsAreTheirDenseMask) {
  constexpr Index length = 300;
  Integers position(length);
  for (std::size_t i = 0; i < length; ++i) position[i] = static_cast<std::int32_t>(i * 77 % length);
  const TensorView view = view_of(position, {length});
  expect_passes({.shape = shape_of(1, 2, 1, length, length, 64),
                 .mask = expect_value(Mask::parse("pos_k[k] <= pos_q[q]", {{"pos_k", view}, {"pos_q", view}})),
                 .visible = [&](Index, Index, Index q, Index k) {
                   return position[static_cast<std::size_t>(k)] <= position[static_cast<std::size_t>(q)];
                 }});
}

// More lookups than registers beside the products of the fastest kernels, which another kernel then replaces.
TEST_P(UserExpressions, SixteenConditionsOnTwelveTensorsAreTheirDenseMask) {
  constexpr Index length = 300;
  constexpr std::size_t conditions = 16, count = 12;
  std::vector<Integers> values;
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < count; ++i) values.push_back(random_integers(length, 0, 1200, i + 1));
  for (std::size_t i = 0; i < count; ++i) tensors.push_back({"t" + std::to_string(i), view_of(values[i], {length})});
  std::string text;
  for (std::size_t i = 0; i < conditions; ++i) {
    text += (i == 0 ? "" : " & ") + ("(" + tensors[i % count].name + "[q] + k * " + std::to_string(i + 3)) +
            " >= " + tensors[(i + 5) % count].name + "[k] - q * " + std::to_string(i + 1) + ")";
  }
  expect_passes({.shape = shape_of(1, 2, 1, length, length, 128),
                 .mask = expect_value(Mask::parse(text, tensors)),
                 .visible =
                     [&](Index, Index, Index q, Index k) {
                       for (std::size_t i = 0; i < conditions; ++i) {
                         const Index left = values[i % count][static_cast<std::size_t>(q)];
                         const Index right = values[(i + 5) % count][static_cast<std::size_t>(k)];
                         const auto step = static_cast<Index>(i);
                         if (left + k * (step + 3) < right - q * (step + 1)) return false;
                       }
                       return true;
                     },
                 .backward = false});
}

}  // namespace
}  // namespace flashspan::tests
