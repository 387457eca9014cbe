// evaluate_test.cpp -- the meaning of the operations at their edges, and evaluation of whole strips and tiles.
#include "codegen/mask/evaluate.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "codegen/mask/arithmetic.hpp"
#include "codegen/mask/element.hpp"
#include "codegen/mask/strip_evaluator.hpp"
#include "tests/mask/parsed.hpp"

namespace flashspan::mask::test {
namespace {

constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();

TEST(Arithmetic, DivisionFloorsAndModuloHasTheSignOfTheDivisor) {
  for (std::int64_t a = -40; a <= 40; ++a) {
    for (std::int64_t b = -9; b <= 9; ++b) {
      if (b == 0) continue;
      const auto quotient = static_cast<std::int64_t>(std::floor(static_cast<double>(a) / static_cast<double>(b)));
      EXPECT_EQ(floor_divide(a, b), quotient) << a << " // " << b;
      EXPECT_EQ(floor_modulo(a, b), a - b * quotient) << a << " % " << b;
    }
  }
  EXPECT_EQ(floor_modulo(-1, 4), 3);
}

TEST(Arithmetic, NothingTraps) {
  EXPECT_EQ(floor_divide(5, 0), 0);
  EXPECT_EQ(floor_modulo(5, 0), 0);
  EXPECT_EQ(floor_divide(least, -1), least);
  EXPECT_EQ(floor_modulo(least, -1), 0);
  EXPECT_EQ(wrapping_negate(least), least);
  EXPECT_EQ(wrapping_absolute(least), least);
  EXPECT_EQ(wrapping_add(std::numeric_limits<std::int64_t>::max(), 1), least);
  EXPECT_EQ(wrapping_multiply(least, -1), least);
  EXPECT_EQ(divide(1.0f, 0.0f), 0.0f);
  EXPECT_EQ(divide(1.0f, -0.0f), 0.0f);
  EXPECT_EQ(divide(std::nanf(""), 0.0f), 0.0f);
}

TEST(Arithmetic, MinimumAndMaximumWithANaNGiveTheSecondOperand) {
  const float nan = std::nanf("");
  EXPECT_EQ(minimum(nan, 1.0f), 1.0f);
  EXPECT_TRUE(std::isnan(minimum(1.0f, nan)));
  EXPECT_EQ(maximum(nan, 1.0f), 1.0f);
  EXPECT_TRUE(std::isnan(maximum(1.0f, nan)));
}

// Every bit pattern against the definition of the format.
TEST(Element, HalfPrecisionConvertsExactly) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const int exponent = (bits >> 10) & 31;
    const int fraction = bits & 1023;
    const float got = real_from_f16(static_cast<std::uint16_t>(bits));
    if (exponent == 31 && fraction != 0) {
      EXPECT_TRUE(std::isnan(got));
      continue;
    }
    double expected = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    if (exponent == 31) expected = std::numeric_limits<double>::infinity();
    EXPECT_EQ(static_cast<double>(got), (bits & 0x8000) != 0 ? -expected : expected) << bits;
    EXPECT_EQ(std::signbit(got), (bits & 0x8000) != 0) << bits;
  }
}

TEST(Element, Bfloat16ConvertsExactly) {
  EXPECT_EQ(real_from_bf16(0x3f80), 1.0f);
  EXPECT_EQ(real_from_bf16(0xc049), -3.140625f);
  EXPECT_EQ(real_from_bf16(0x0001), std::ldexp(1.0f, -133));
  EXPECT_TRUE(std::isinf(real_from_bf16(0x7f80)));
  EXPECT_TRUE(std::isnan(real_from_bf16(0x7fc0)));
}

float score_of(const std::string& text, float score, float slope = 0) {
  const Program program = parsed_with(text, {{.name = "slope", .type = ValueType::real}}, {}, ProgramKind::score);
  Bindings bindings;
  if (!program.scalars().empty()) bindings.scalars = {{.integer = 0, .real = slope}};
  return evaluate_score(program, bindings, {.b = 0, .h = 0, .q = 0, .k = 0, .q_len = 1, .kv_len = 1, .score = score});
}

TEST(Evaluate, ComparisonsWithANaNAreFalseSaveNotEqual) {
  const float nan = std::nanf("");
  for (const char* comparison : {"<", "<=", ">", ">=", "=="}) {
    EXPECT_EQ(score_of("where(score " + std::string(comparison) + " score, 1, 0)", nan), 0.0f) << comparison;
    EXPECT_EQ(score_of("where(not score " + std::string(comparison) + " score, 1, 0)", nan), 1.0f) << comparison;
  }
  EXPECT_EQ(score_of("where(score != score, 1, 0)", nan), 1.0f);
}

TEST(Evaluate, ScoresAreBinary32) {
  EXPECT_EQ(score_of("score + 1", 16777216.0f), 16777216.0f);
  EXPECT_EQ(score_of("score / slope", 1.0f, 3.0f), 1.0f / 3.0f);
  EXPECT_EQ(score_of("score / slope", 1.0f, 0.0f), 0.0f);
  EXPECT_EQ(score_of("tanh(score / 30) * 30", 45.0f), std::tanh(1.5f) * 30.0f);
  EXPECT_EQ(score_of("exp(score) + log(score) + sqrt(score)", 2.0f), std::exp(2.0f) + std::log(2.0f) + std::sqrt(2.0f));
}

Point at(std::int64_t q, std::int64_t k) {
  return {.b = 0, .h = 0, .q = q, .k = k, .q_len = 64, .kv_len = 64, .score = 0};
}

TEST(Evaluate, LookupsOutsideTheTensorAreZero) {
  std::vector<std::int32_t> doc = {7, 8, 9};
  const std::vector<TensorDeclaration> tensors = {{.name = "doc", .dtype = DType::i32, .rank = 1}};
  const Bindings bindings{.scalars = {}, .tensors = {view_of(doc)}};
  const auto visible = [&](const std::string& text) {
    return evaluate_mask(parsed_with(text, {}, tensors), bindings, at(2, 3));
  };
  EXPECT_TRUE(visible("doc[q] == 9"));
  EXPECT_TRUE(visible("doc[k] == 0"));
  EXPECT_TRUE(visible("doc[-1] == 0"));          // not the last element
  EXPECT_TRUE(visible("doc[4294967296] == 0"));  // the index is not cut to 32 bits
  EXPECT_TRUE(visible("doc[9223372036854775807] == 0"));
}

TEST(Evaluate, EmptyTensorsAreZeroEverywhere) {
  std::int32_t nothing = 5;
  const Program program = parsed_with("doc[q] == 0", {}, {{.name = "doc", .dtype = DType::i32, .rank = 1}});
  const Bindings bindings{.scalars = {}, .tensors = {TensorView::contiguous(&nothing, DType::i32, {0})}};
  EXPECT_TRUE(evaluate_mask(program, bindings, at(0, 0)));
  EXPECT_EQ(classify(program, bindings, {.b = {0, 0}, .h = {0, 0}, .q = {0, 7}, .k = {0, 7}, .q_len = 8, .kv_len = 8}),
            TileClass::full);
}

TEST(Evaluate, LoopsOverInvertedRangesAreFalse) {
  const auto visible = [](const std::string& text) { return evaluate_mask(parsed_with(text, {}, {}), {}, at(5, 3)); };
  EXPECT_FALSE(visible("any(True for r in range(q, k))"));
  EXPECT_FALSE(visible("any(r == r for r in range(k, k))"));
  EXPECT_TRUE(visible("any(r == 4 for r in range(k, q))"));
  EXPECT_FALSE(visible("any(r == 5 for r in range(k, q))"));
  EXPECT_FALSE(visible("any(r == 5 for r in range(9223372036854775807, -9223372036854775808))"));
}

TEST(Evaluate, LoopBoundsMayDifferFromKeyToKey) {
  const Program program = parsed_with("any(r * r == q for r in range(k - 2, k))", {}, {});
  StripEvaluator evaluator(program, {}, 64);
  evaluator.set_head(0, 0, 64, 64);
  for (std::int64_t q = 0; q < 64; ++q) {
    evaluator.set_query(q);
    evaluator.evaluate(0, 64);
    for (std::int64_t k = 0; k < 64; ++k) {
      EXPECT_EQ(evaluator.visible(static_cast<int>(k)), (k - 2) * (k - 2) == q || (k - 1) * (k - 1) == q)
          << q << " " << k;
    }
  }
}

TEST(Evaluate, LoopsInsideLoopsSeeTheVariablesAround) {
  const Program program = parsed_with("any(any(r * 4 + s == k for s in range(r, 4)) for r in range(q))", {}, {});
  for (std::int64_t q = 0; q < 6; ++q) {
    for (std::int64_t k = 0; k < 24; ++k) {
      bool expected = false;
      for (std::int64_t r = 0; r < q; ++r) expected = expected || (k - 4 * r >= r && k - 4 * r < 4);
      EXPECT_EQ(evaluate_mask(program, {}, at(q, k)), expected) << q << " " << k;
    }
  }
}

// The third loop uses one variable around it, the second one, which it stands in, two.
TEST(Evaluate, LoopsFourDeepUseWhateverStandsAround) {
  const Program program = parsed_with(
      "any(any(any(any(u + 10 * s == k for u in range(s, 3)) & (s + r + t < 4) for s in range(3)) for t in range(2)) "
      "for r in range(q))",
      {}, {});
  for (std::int64_t q = 0; q < 4; ++q) {
    for (std::int64_t k = 0; k < 30; ++k) {
      const std::int64_t s = k / 10;
      const std::int64_t u = k % 10;
      const bool expected = q > 0 && u >= s && u < 3;  // r = t = 0 leaves most room for s
      EXPECT_EQ(evaluate_mask(program, {}, at(q, k)), expected) << q << " " << k;
    }
  }
}

std::int64_t floored(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(std::floor(static_cast<double>(a) / static_cast<double>(b)));
}

struct FlooredMask {
  const char* text;
  bool (*visible)(std::int64_t q, std::int64_t k);
};
void PrintTo(const FlooredMask& mask, std::ostream* out) { *out << mask.text; }

// Block schedules around position 1028 went wrong where the host floored and the device truncated.
class FlooredBlocks : public ::testing::TestWithParam<FlooredMask> {};

TEST_P(FlooredBlocks, AgreeOverAllPairs) {
  constexpr int length = 2048;
  const Program program = parsed_with(GetParam().text, {}, {});
  StripEvaluator evaluator(program, {}, length);
  evaluator.set_head(0, 0, length, length);
  for (std::int64_t q = 0; q < length; ++q) {
    evaluator.set_query(q);
    evaluator.evaluate(0, length);
    int wrong = 0;
    for (int k = 0; k < length; ++k) wrong += evaluator.visible(k) == GetParam().visible(q, k) ? 0 : 1;
    ASSERT_EQ(wrong, 0) << "q " << q;
  }
}

TEST_P(FlooredBlocks, AgreeInEveryTile) {
  const Program program = parsed_with(GetParam().text, {}, {});
  const auto expected_in = [](const TileBounds& tile) {
    std::int64_t count = 0;
    for (std::int64_t q = tile.q.lo; q <= tile.q.hi; ++q) {
      for (std::int64_t k = tile.k.lo; k <= tile.k.hi; ++k) count += GetParam().visible(q, k) ? 1 : 0;
    }
    return count;
  };
  for (std::int64_t q = 960; q < 1088; q += 32) {
    for (std::int64_t k = 960; k < 1088; k += 32) {
      const TileBounds tile{
          .b = {0, 0}, .h = {0, 0}, .q = {q, q + 31}, .k = {k, k + 31}, .q_len = 2048, .kv_len = 2048};
      const std::int64_t expected = expected_in(tile);
      std::int64_t visible = 0;
      const TileClass found = classify_exactly(program, {}, tile, &visible);
      EXPECT_EQ(visible, expected);
      EXPECT_EQ(found, expected == 0 ? TileClass::empty : expected == 1024 ? TileClass::full : TileClass::partial);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    NearPosition1028, FlooredBlocks,
    ::testing::Values(
        FlooredMask{"(q - 1028) // 4 == (k - 1028) // 4",
                    [](std::int64_t q, std::int64_t k) { return floored(q - 1028, 4) == floored(k - 1028, 4); }},
        FlooredMask{"(q - 1028) % 4 == (k - 1028) % 4", [](std::int64_t q, std::int64_t k) { return q % 4 == k % 4; }},
        FlooredMask{"(q - k) % 3 == 0", [](std::int64_t q, std::int64_t k) { return (q - k) % 3 == 0; }},
        FlooredMask{"(q - k) % -3 == 0", [](std::int64_t q, std::int64_t k) { return (q - k) % 3 == 0; }},
        FlooredMask{"(q - k) // 4 == -1", [](std::int64_t q, std::int64_t k) { return floored(q - k, 4) == -1; }},
        FlooredMask{"(q - k) // -4 == 1", [](std::int64_t q, std::int64_t k) { return floored(q - k, -4) == 1; }},
        FlooredMask{"(q - k) % 4 == 3",
                    [](std::int64_t q, std::int64_t k) { return q - k - 4 * floored(q - k, 4) == 3; }}));

TEST(Evaluate, StepOfZeroFromATensorDoesNotTrap) {
  std::vector<std::int32_t> step = {2, 0};
  const Program program = parsed_with("(q - k) % step[b] == 0", {}, {{.name = "step", .dtype = DType::i32, .rank = 1}});
  const Bindings bindings{.scalars = {}, .tensors = {view_of(step)}};
  for (std::int64_t q = 0; q < 8; ++q) {
    for (std::int64_t k = 0; k < 8; ++k) {
      Point point = at(q, k);
      EXPECT_EQ(evaluate_mask(program, bindings, point), (q - k) % 2 == 0);
      point.b = 1;
      EXPECT_TRUE(evaluate_mask(program, bindings, point));  // x % 0 is 0
    }
  }
}

TEST(Evaluate, PermutedPositionsGiveTheExplicitDenseMask) {
  std::vector<std::int32_t> pos_q = {3, 0, 2, 1, 5, 4};
  std::vector<std::int32_t> pos_k = {1, 4, 0, 5, 2, 3};
  const Program program = parsed_with(
      "pos_k[k] <= pos_q[q]", {},
      {{.name = "pos_q", .dtype = DType::i32, .rank = 1}, {.name = "pos_k", .dtype = DType::i32, .rank = 1}});
  ASSERT_EQ(program.tensors()[0].name, "pos_q");
  const Bindings bindings{.scalars = {}, .tensors = {view_of(pos_q), view_of(pos_k)}};
  for (std::size_t q = 0; q < 6; ++q) {
    for (std::size_t k = 0; k < 6; ++k) {
      EXPECT_EQ(evaluate_mask(program, bindings, at(static_cast<std::int64_t>(q), static_cast<std::int64_t>(k))),
                pos_k[k] <= pos_q[q]);
    }
  }
}

TEST(Evaluate, StripsOfAnyWidthAgreeWithSinglePoints) {
  std::vector<std::int32_t> doc(300);
  for (std::size_t i = 0; i < doc.size(); ++i) doc[i] = static_cast<std::int32_t>(i / 37);
  const Program program = parsed_with("(doc[q] == doc[k]) & (k <= q) | (k % 7 == q % 5)", {},
                                      {{.name = "doc", .dtype = DType::i32, .rank = 1}});
  const Bindings bindings{.scalars = {}, .tensors = {view_of(doc)}};
  std::int64_t expected = 0;
  for (std::int64_t q = 90; q < 100; ++q) {
    for (std::int64_t k = 3; k < 290; ++k) {
      const bool visible =
          (doc[static_cast<std::size_t>(q)] == doc[static_cast<std::size_t>(k)] && k <= q) || k % 7 == q % 5;
      EXPECT_EQ(evaluate_mask(program, bindings, at(q, k)), visible);
      expected += visible ? 1 : 0;
    }
  }
  std::int64_t visible = 0;
  const TileClass found =
      classify_exactly(program, bindings,
                       {.b = {0, 0}, .h = {0, 0}, .q = {90, 99}, .k = {3, 289}, .q_len = 300, .kv_len = 300}, &visible);
  EXPECT_EQ(visible, expected);
  EXPECT_EQ(found, TileClass::partial);
}

// Loops that are short for every key, however far apart they are, and whatever their bounds would be past their ends.
TEST(Evaluate, StripsFollowOnlyTheTurnsThatTheirKeysTake) {
  for (const char* text :
       {"any(r % 7 == q % 7 for r in range(k * 1000000000, k * 1000000000 + 4))",
        "any(any(s == q for s in range(0 if r < 1 + k % 2 else 1000000000, 3 if r < 1 + k % 2 else 4000000000000)) "
        "for r in range(1 + k % 2))"}) {
    const Program program = parsed_with(text, {}, {});
    std::int64_t expected = 0;
    for (std::int64_t q = 0; q < 12; ++q) {
      for (std::int64_t k = 0; k < 40; ++k) expected += evaluate_mask(program, {}, at(q, k)) ? 1 : 0;
    }
    std::int64_t visible = 0;
    (void)classify_exactly(
        program, {}, {.b = {0, 0}, .h = {0, 0}, .q = {0, 11}, .k = {0, 39}, .q_len = 300, .kv_len = 300}, &visible);
    EXPECT_EQ(visible, expected) << text;
    EXPECT_GT(visible, 0) << text;
  }
}

TEST(Evaluate, StripsOfScoresTakeOneScorePerKey) {
  const Program program = parsed("score * 2 - k + slope", ProgramKind::score);
  const Bindings bindings{.scalars = {{.integer = 0, .real = 0.5f}}, .tensors = {}};
  StripEvaluator evaluator(program, bindings, 4);
  evaluator.set_head(0, 0, 9, 9);
  evaluator.set_query(0);
  const std::array<float, 3> scores = {1, 2, 3};
  evaluator.evaluate(5, 3, scores);
  for (int place = 0; place < 3; ++place) {
    EXPECT_EQ(evaluator.score(place),
              scores[static_cast<std::size_t>(place)] * 2 - static_cast<float>(5 + place) + 0.5f);
  }
}

}  // namespace
}  // namespace flashspan::mask::test
