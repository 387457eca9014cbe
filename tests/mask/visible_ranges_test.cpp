// visible_ranges_test.cpp -- derived ranges hold just what the mask shows, for random masks, data and scalars; and the
// masks that people use have the number of ranges that they should.
#include "codegen/mask/visible_ranges.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "codegen/mask/named_masks.hpp"
#include "codegen/mask/simplify.hpp"
#include "tests/mask/parsed.hpp"
#include "tests/mask/random_choice.hpp"
#include "tests/mask/random_programs.hpp"
#include "tests/mask/range_masks.hpp"

namespace flashspan::mask::test {
namespace {

void expect_equal_everywhere(const Program& mask, const VisibleRanges& visible, Environment& environment) {
  const Bindings bindings = bindings_for(mask, environment);
  ASSERT_EQ(mask.scalars(), visible.program.scalars());
  ASSERT_EQ(mask.tensors(), visible.program.tensors());
  for (std::int64_t q = 0; q < environment.q_len; ++q) {
    for (std::int64_t k = 0; k < environment.kv_len; ++k) {
      const Point at{environment.b, environment.h, q, k, environment.q_len, environment.kv_len, 0};
      ASSERT_EQ(evaluate_mask(visible.program, bindings, at), evaluate_mask(mask, bindings, at))
          << mask.to_text() << "\nat q " << q << " k " << k << " left " << environment.integers["left"] << " huge "
          << environment.integers["huge"] << "\nranges: " << visible.program.to_text();
    }
  }
}

// The same at points as far out as sequences can be, where sums come near to the limits of 32 bits.
void expect_equal_far_out(const Program& mask, const VisibleRanges& visible, Environment& environment) {
  const Bindings bindings = bindings_for(mask, environment);
  const std::int64_t far[] = {0, 1, max_sequence_length / 2, max_sequence_length - 2, max_sequence_length - 1};
  for (const std::int64_t q : far) {
    for (const std::int64_t k : far) {
      const Point at{0, 0, q, k, max_sequence_length, max_sequence_length, 0};
      ASSERT_EQ(evaluate_mask(visible.program, bindings, at), evaluate_mask(mask, bindings, at))
          << mask.to_text() << "\nat q " << q << " k " << k << " left " << environment.integers["left"] << " huge "
          << environment.integers["huge"] << "\nranges: " << visible.program.to_text();
    }
  }
}

void expect_ends_without(Variable axis, const VisibleRanges& visible) {
  const std::vector<VariableSet> sets = visible.program.dependencies_by_node();
  for (const IndexRange& range : visible.ranges) {
    for (const NodeId end : {range.begin, range.end}) {
      EXPECT_EQ(sets[static_cast<std::size_t>(end)] & set_of(axis), 0u) << visible.program.to_text();
    }
  }
}

// Scalars that no index reaches, and those around zero, where signs and divisions turn.
void make_awkward(Environment& environment, Random& random) {
  const std::int64_t values[] = {0, 1, -1, 2, -3, 5, INT64_MAX, INT64_MIN, INT64_MAX - 1, INT64_MIN + 1, 1LL << 30};
  environment.integers["left"] = values[pick(random, 11)];
  environment.integers["huge"] = values[pick(random, 11)];
}

class DerivedRanges : public ::testing::TestWithParam<Variable> {};

TEST_P(DerivedRanges, HoldWhatMasksOfRangesShow) {
  Random random(11);
  int found = 0;
  std::size_t most = 0;
  for (int round = 0; round < 6000; ++round) {
    Environment environment = random_environment(random);
    make_awkward(environment, random);
    const std::string text = random_range_mask(random, GetParam(), round % 4);
    const Program mask =
        simplify(parsed_with(text, scalar_declarations(environment), tensor_declarations(environment)));
    const RangeDerivation derivation = derive_visible_ranges(mask, GetParam());
    EXPECT_EQ(derivation.found, derivation.obstacle.empty());
    if (!derivation.found) continue;
    ++found;
    most = std::max(most, derivation.visible.ranges.size());
    expect_ends_without(GetParam(), derivation.visible);
    expect_equal_everywhere(mask, derivation.visible, environment);
    if (round % 4 == 0) expect_equal_far_out(mask, derivation.visible, environment);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(found, 3000);
  EXPECT_EQ(most, max_visible_ranges);
}

TEST_P(DerivedRanges, HoldWhatArbitraryMasksShowIfThereAreAny) {
  Random random(12);
  int found = 0;
  for (int round = 0; round < 3000; ++round) {
    Environment environment = random_environment(random);
    const Expression expression = random_expression(
        random, ValueType::boolean, {.may_use_score = false, .may_use_reals = round % 4 == 0, .depth = 1 + round % 4});
    const Program mask =
        simplify(parsed_with(expression.text, scalar_declarations(environment), tensor_declarations(environment)));
    const RangeDerivation derivation = derive_visible_ranges(mask, GetParam());
    if (!derivation.found) continue;
    ++found;
    expect_ends_without(GetParam(), derivation.visible);
    expect_equal_everywhere(mask, derivation.visible, environment);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(found, 1000);
}

INSTANTIATE_TEST_SUITE_P(Axes, DerivedRanges, ::testing::Values(Variable::k, Variable::q),
                         [](const auto& tested) { return tested.param == Variable::k ? "OfKeys" : "OfQueries"; });

constexpr int no_ranges = 0;

struct Known {
  const char* text;
  int rows, columns;  // number of ranges; no_ranges: not derivable
};
void PrintTo(const Known& known, std::ostream* out) { *out << known.text; }

// A named mask of the catalogue or an expression.
Program known_program(const std::string& text) {
  static const std::vector<ScalarDeclaration> scalars = {{"w", ValueType::integer},
                                                         {"left", ValueType::integer},
                                                         {"sinks", ValueType::integer},
                                                         {"prefix", ValueType::integer}};
  static const std::vector<TensorDeclaration> tensors = {
      {"doc", DType::i32, 1},  {"seg", DType::i32, 1},  {"start", DType::i32, 1},    {"end", DType::i32, 1},
      {"qi", DType::i32, 1},   {"ki", DType::i32, 1},   {"ranges", DType::i32, 5},   {"offsets", DType::i32, 1},
      {"list", DType::i32, 2}, {"real", DType::f32, 1}, {"startend", DType::i32, 4}, {"pre", DType::i32, 1}};
  const NamedMask* named = find_named_mask(text);
  if (named == nullptr) return simplify(parsed_with(text, scalars, tensors));
  std::vector<ScalarDeclaration> arguments(named->arguments.size());
  for (std::size_t place = 0; place < arguments.size(); ++place) arguments[place].name = named->arguments[place].name;
  return simplify(parsed_with(named->text, arguments, named->tensors));
}

std::string text_of_count(const RangeDerivation& derivation) {
  return derivation.found ? std::to_string(derivation.visible.ranges.size()) : derivation.obstacle;
}

TEST(VisibleRanges, LoopsInLoopsAreGivenUpBeforeTheyAreWrittenOut) {
  std::string text = "k <= q", loops;
  for (int depth = 0; depth < 40; ++depth) {
    const std::string variable = "r" + std::to_string(depth);
    text += " + " + variable + " * " + std::to_string(depth + 1);
    loops += " for " + variable + " in range(3))";
  }
  for (int depth = 0; depth < 40; ++depth) text = "any(" + text;
  const RangeDerivation derivation = derive_visible_ranges(simplify(parsed(text + loops)), Variable::k);
  EXPECT_FALSE(derivation.found);
  EXPECT_NE(derivation.obstacle, "");
}

class KnownMasks : public ::testing::TestWithParam<Known> {};

TEST_P(KnownMasks, HaveAsManyRangesAsTheyShould) {
  const Program mask = known_program(GetParam().text);
  for (const auto& [axis, count] : {std::pair{Variable::k, GetParam().rows}, {Variable::q, GetParam().columns}}) {
    const RangeDerivation derivation = derive_visible_ranges(mask, axis);
    const int found = derivation.found ? static_cast<int>(derivation.visible.ranges.size()) : no_ranges;
    EXPECT_EQ(found, count) << to_string(axis) << ": " << text_of_count(derivation);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Catalogue, KnownMasks,
    ::testing::Values(Known{"full", 1, 1}, Known{"causal", 1, 1}, Known{"window", 1, 1}, Known{"causal_window", 1, 1},
                      Known{"sink_window", 2, 1}, Known{"global_window", 2, 2},
                      Known{"dilated_window", no_ranges, no_ranges}, Known{"chunked", 1, 1}, Known{"prefix_lm", 1, 1},
                      Known{"document", no_ranges, no_ranges}, Known{"causal_document", no_ranges, no_ranges},
                      Known{"shared_question", no_ranges, no_ranges}, Known{"causal_blockwise", no_ranges, no_ranges}));

INSTANTIATE_TEST_SUITE_P(
    PositionalExpressions, KnownMasks,
    ::testing::Values(Known{"q >= k", 1, 1}, Known{"(q >= k) & (q - k < 1024)", 1, 1}, Known{"0 <= q - k < w", 1, 1},
                      Known{"abs(q - k) <= w", 1, 1}, Known{"abs(q - k) > w", 2, 2},
                      Known{"(q >= k) & ((q - k < 1024) | (k < 64))", 2, 1}, Known{"(k < 4) | (0 <= q - k < w)", 2, 1},
                      Known{"(q >= k) | (k < prefix)", 1, 1}, Known{"q // 64 == k // 64", 1, 1},
                      Known{"(q // 64 == k // 64) & (q >= k)", 1, 1}, Known{"q // w == k // w", 1, 1},
                      Known{"q == k", 1, 1}, Known{"q != k", 2, 2}, Known{"h < 4", 1, 1}, Known{"False", 1, 1},
                      Known{"q - k < 128 if h < 8 else q - k < 1024", 1, 1}, Known{"k % 2 == 0", no_ranges, 1},
                      Known{"q * k < w", 1, 1}));

INSTANTIATE_TEST_SUITE_P(
    RangesForEachQuery, KnownMasks,
    ::testing::Values(
        Known{"start[q] <= k < end[q]", 1, no_ranges}, Known{"(start[q] <= k < end[q]) & (q >= k)", 1, no_ranges},
        Known{"(start[q] <= k < end[q]) & ((q >= k) | (k < pre[q]))", 1, no_ranges},
        Known{"any(ranges[b, h, q, r, 0] <= k < ranges[b, h, q, r, 1] for r in range(0, 1))", 1, no_ranges},
        Known{"any(ranges[b, h, q, r, 0] <= k < ranges[b, h, q, r, 1] for r in range(0, 2))", 2, no_ranges},
        Known{"any(ranges[b, h, q, r, 0] <= k < ranges[b, h, q, r, 1] for r in range(0, 3))", 3, no_ranges},
        Known{"any(ranges[b, h, q, r, 0] <= k < ranges[b, h, q, r, 1] for r in range(0, 4))", no_ranges, no_ranges},
        Known{"any(ranges[b, h, q, r, 0] <= k < ranges[b, h, q, r, 1] for r in range(0, w))", no_ranges, no_ranges},
        Known{"any(list[r, 0] <= k < list[r, 1] for r in range(offsets[q], offsets[q + 1]))", no_ranges, no_ranges}));

INSTANTIATE_TEST_SUITE_P(
    ColumnsOfFlashMask, KnownMasks,
    ::testing::Values(
        Known{"q < startend[b, h, k, 0] and k <= q + kv_len - q_len", no_ranges, 1},
        Known{"(q < startend[b, h, k, 0] or q >= startend[b, h, k, 1]) and k <= q + kv_len - q_len", no_ranges, 2},
        Known{"startend[b, h, k, 1] <= q < startend[b, h, k, 0]", no_ranges, 1},
        Known{"(q < startend[b, h, k, 0] or q >= startend[b, h, k, 1]) and (q < startend[b, h, k, 2] or q >= "
              "startend[b, h, k, 3])",
              no_ranges, 3},
        Known{"(q >= k) & ~(start[k] <= q < end[k])", no_ranges, 2}, Known{"(q >= k) & (q < end[k])", no_ranges, 1}));

INSTANTIATE_TEST_SUITE_P(WhatIsNotRanges, KnownMasks,
                         ::testing::Values(Known{"doc[q] == doc[k]", no_ranges, no_ranges},
                                           Known{"(doc[q] == doc[k]) & (q >= k)", no_ranges, no_ranges},
                                           Known{"(doc[q] == doc[k]) & (q >= k) & ((seg[k] == 0) | (seg[q] == seg[k]))",
                                                 no_ranges, no_ranges},
                                           Known{"qi[q] >= ki[k]", no_ranges, no_ranges},
                                           Known{"(doc[q] == seg[k]) & (qi[q] >= ki[k])", no_ranges, no_ranges},
                                           Known{"k * 0.5 < q", no_ranges, no_ranges},
                                           Known{"q * k * left < w", no_ranges, no_ranges},
                                           Known{"q + k * w < 5", no_ranges, no_ranges},
                                           Known{"k + w < q", no_ranges, 1}));

TEST(VisibleRanges, ObstaclesNameWhatIsInTheWay) {
  const auto obstacle = [](const std::string& text) {
    return derive_visible_ranges(known_program(text), Variable::k).obstacle;
  };
  EXPECT_EQ(obstacle("doc[q] == doc[k]"), "doc[k] is looked up by k");
  EXPECT_EQ(obstacle("k % 3 == 0"), "k % 3 is not linear in k");
  EXPECT_EQ(obstacle("k + w < 5"), "k + w may wrap");
  EXPECT_EQ(obstacle("k * 0.5 < q"), "float(k) * 0.5 < float(q) compares reals");
  EXPECT_EQ(obstacle("k // 2 < q - k"), "k // 2 < q - k has k on both sides");
  EXPECT_EQ(obstacle("any(list[r, 0] == k for r in range(w))"),
            "any(list[r0, 0] == k for r0 in range(0, w)) loops over what depends on k");
  EXPECT_EQ(obstacle("any(seg[r] == k for r in range(4))"), "4 ranges, of which 3 would do");
}

// Each step is the smaller and the larger of two neighbours, so the ways to k double with it.
TEST(VisibleRanges, ExpressionsOfManyWaysToTheAxisAreGivenUpSoon) {
  std::string text = "k";
  const auto stepped = [](const std::string& k) { return "min(abs(" + k + " - 3), 10 - abs(" + k + " - 7))"; };
  for (int step = 0; step < 8; ++step) text = stepped(text);
  const RangeDerivation derivation = derive_visible_ranges(known_program(text + " < q"), Variable::k);
  EXPECT_FALSE(derivation.found);
  EXPECT_FALSE(derivation.obstacle.empty());
}

}  // namespace
}  // namespace flashspan::mask::test
