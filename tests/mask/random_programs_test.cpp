// random_programs_test.cpp -- properties that hold for every program, checked on random ones against the oracle of
// random_programs.hpp at every point of small shapes.
#include "tests/mask/random_programs.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "codegen/mask/evaluate.hpp"
#include "codegen/mask/parser.hpp"
#include "codegen/mask/simplify.hpp"
#include "codegen/mask/tile_intervals.hpp"

namespace flashspan::mask::test {
namespace {

struct Case {
  Environment environment;
  Expression expression;
  Program program;
};

// Parses what it generates; the text must be legal.
std::optional<Case> random_case(std::mt19937_64& random, ValueType type, const Grammar& grammar) {
  Case result{
      .environment = random_environment(random), .expression = random_expression(random, type, grammar), .program = {}};
  const ProgramKind kind = type == ValueType::boolean ? ProgramKind::mask : ProgramKind::score;
  auto parsed = parse(result.expression.text, kind, scalar_declarations(result.environment),
                      tensor_declarations(result.environment));
  if (!parsed) {
    ADD_FAILURE() << result.expression.text << "\n" << parsed.error().message();
    return std::nullopt;
  }
  result.program = *std::move(parsed);
  return result;
}

Point point_of(const Environment& e) {
  return {.b = e.b, .h = e.h, .q = e.q, .k = e.k, .q_len = e.q_len, .kv_len = e.kv_len, .score = e.score};
}

template <typename Visit>
void for_every_pair(Environment& environment, Visit visit) {
  for (environment.q = 0; environment.q < environment.q_len; ++environment.q) {
    for (environment.k = 0; environment.k < environment.kv_len; ++environment.k) visit();
  }
}

bool same_real(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

TEST(RandomPrograms, MasksEvaluateAsTheOracleDoesAlsoWhenSimplified) {
  std::mt19937_64 random(1);
  std::int64_t visible = 0;
  std::int64_t pairs = 0;
  for (int round = 0; round < 2000; ++round) {
    auto test = random_case(random, ValueType::boolean,
                            {.may_use_score = false, .may_use_reals = true, .depth = 2 + round % 4});
    ASSERT_TRUE(test.has_value());
    Environment& environment = test->environment;
    const Program simplified = simplify(test->program);
    const Bindings bindings = bindings_for(test->program, environment);
    const Bindings simplified_bindings = bindings_for(simplified, environment);
    for_every_pair(environment, [&] {
      const bool expected = test->expression.value(environment).truth;
      const Point point = point_of(environment);
      ASSERT_EQ(evaluate_mask(test->program, bindings, point), expected)
          << test->expression.text << "\nq " << environment.q << " k " << environment.k;
      ASSERT_EQ(evaluate_mask(simplified, simplified_bindings, point), expected)
          << test->expression.text << "\nsimplified " << simplified.to_text() << "\nq " << environment.q << " k "
          << environment.k;
      visible += expected ? 1 : 0;
      ++pairs;
    });
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(visible, pairs / 5);  // the programs are not all alike
  EXPECT_LT(visible, pairs * 4 / 5);
}

TEST(RandomPrograms, ScoresEvaluateAsTheOracleDoesAlsoWhenSimplified) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 1500; ++round) {
    auto test =
        random_case(random, ValueType::real, {.may_use_score = true, .may_use_reals = true, .depth = 2 + round % 4});
    ASSERT_TRUE(test.has_value());
    Environment& environment = test->environment;
    const Program simplified = simplify(test->program);
    const Bindings bindings = bindings_for(test->program, environment);
    const Bindings simplified_bindings = bindings_for(simplified, environment);
    for_every_pair(environment, [&] {
      environment.score = static_cast<float>(static_cast<int>(random() % 64) - 32) / 4.0f;
      const float expected = test->expression.value(environment).real;
      const float got = evaluate_score(test->program, bindings, point_of(environment));
      ASSERT_TRUE(same_real(got, expected)) << test->expression.text << "\n" << got << " for " << expected;
      const float simpler = evaluate_score(simplified, simplified_bindings, point_of(environment));
      ASSERT_TRUE(same_real(simpler, expected)) << test->expression.text << "\n"
                                                << simplified.to_text() << "\n"
                                                << simpler << " for " << expected;
    });
    if (HasFatalFailure()) return;
  }
}

TEST(RandomPrograms, TextAndSignatureGiveTheProgramBack) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 1000; ++round) {
    const bool mask = round % 2 == 0;
    auto test = random_case(random, mask ? ValueType::boolean : ValueType::real,
                            {.may_use_score = !mask, .may_use_reals = true, .depth = 5});
    ASSERT_TRUE(test.has_value());
    for (const Program& program : {test->program, simplify(test->program)}) {
      const auto parsed =
          parse(program.to_text(), mask ? ProgramKind::mask : ProgramKind::score, program.scalars(), program.tensors());
      ASSERT_TRUE(parsed) << parsed.error().message();
      EXPECT_EQ(parsed->to_signature(), program.to_signature());
      const auto read = Program::from_signature(program.to_signature());
      ASSERT_TRUE(read) << read.error().message();
      EXPECT_EQ(read->to_signature(), program.to_signature());
      EXPECT_EQ(read->scalars(), program.scalars());
      EXPECT_EQ(read->tensors(), program.tensors());
      EXPECT_EQ(read->nodes(), parsed->nodes());
    }
  }
}

TEST(RandomPrograms, SimplifyingTwiceChangesNothing) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 1000; ++round) {
    auto test = random_case(random, ValueType::boolean, {.may_use_score = false, .may_use_reals = true, .depth = 5});
    ASSERT_TRUE(test.has_value());
    const Program once = simplify(test->program);
    EXPECT_EQ(simplify(once).to_signature(), once.to_signature()) << test->expression.text;
  }
}

Interval random_part(std::mt19937_64& random, std::int64_t length) {
  const auto first = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(length));
  const auto second = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(length));
  return {std::min(first, second), std::max(first, second)};
}

// Whether the mask has the given value at every point of the tile.
bool is_uniform(const Expression& mask, Environment& environment, const TileBounds& tile, bool truth) {
  bool uniform = true;
  const auto visit_queries_and_keys = [&] {
    for (environment.q = tile.q.lo; environment.q <= tile.q.hi; ++environment.q) {
      for (environment.k = tile.k.lo; environment.k <= tile.k.hi; ++environment.k) {
        uniform = uniform && mask.value(environment).truth == truth;
      }
    }
  };
  for (environment.b = tile.b.lo; environment.b <= tile.b.hi; ++environment.b) {
    for (environment.h = tile.h.lo; environment.h <= tile.h.hi; ++environment.h) visit_queries_and_keys();
  }
  return uniform;
}

TEST(RandomPrograms, ClassificationOfTilesIsNeverWrong) {
  std::mt19937_64 random(5);
  int decided = 0;
  for (int round = 0; round < 2500; ++round) {
    auto test = random_case(random, ValueType::boolean,
                            {.may_use_score = false, .may_use_reals = round % 3 == 0, .depth = 2 + round % 4});
    ASSERT_TRUE(test.has_value());
    Environment& environment = test->environment;
    const Program program = round % 2 == 0 ? simplify(test->program) : test->program;
    const Bindings bindings = bindings_for(program, environment);
    for (int part = 0; part < 4; ++part) {
      const TileBounds tile{.b = random_part(random, 3),
                            .h = random_part(random, 3),
                            .q = random_part(random, environment.q_len),
                            .k = random_part(random, environment.kv_len),
                            .q_len = environment.q_len,
                            .kv_len = environment.kv_len};
      const TileClass found = classify(program, bindings, tile);
      if (found == TileClass::partial) continue;
      ++decided;
      ASSERT_TRUE(is_uniform(test->expression, environment, tile, found == TileClass::full))
          << test->expression.text << "\n"
          << program.to_text();
    }
  }
  EXPECT_GT(decided, 2500);  // of 10000
}

TEST(RandomPrograms, ExactClassificationCountsTheVisiblePairs) {
  std::mt19937_64 random(6);
  for (int round = 0; round < 1000; ++round) {
    auto test = random_case(random, ValueType::boolean, {.may_use_score = false, .may_use_reals = true, .depth = 4});
    ASSERT_TRUE(test.has_value());
    Environment& environment = test->environment;
    const TileBounds bounds{.b = {environment.b, environment.b},
                            .h = {environment.h, environment.h},
                            .q = {0, environment.q_len - 1},
                            .k = {0, environment.kv_len - 1},
                            .q_len = environment.q_len,
                            .kv_len = environment.kv_len};
    std::int64_t visible = -1;
    const TileClass found = classify_exactly(test->program, bindings_for(test->program, environment), bounds, &visible);
    std::int64_t expected = 0;
    for_every_pair(environment, [&] { expected += test->expression.value(environment).truth ? 1 : 0; });
    ASSERT_EQ(visible, expected) << test->expression.text;
    const TileClass expected_class = expected == 0                                        ? TileClass::empty
                                     : expected == environment.q_len * environment.kv_len ? TileClass::full
                                                                                          : TileClass::partial;
    EXPECT_EQ(found, expected_class) << test->expression.text;
  }
}

TEST(RandomPrograms, ValueRangesHoldTheValue) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 1500; ++round) {
    Environment environment = random_environment(random);
    const Expression expression =
        random_expression(random, ValueType::integer, {.may_use_score = false, .may_use_reals = false, .depth = 4});
    auto program =
        parse(expression.text, ProgramKind::score, scalar_declarations(environment), tensor_declarations(environment));
    ASSERT_TRUE(program) << program.error().message();
    ASSERT_EQ(program->node(program->root()).op, Op::to_real);
    const NodeId integer = program->node(program->root()).operands[0];
    const Interval range = value_ranges(*program)[static_cast<std::size_t>(integer)];
    for_every_pair(environment, [&] {
      const std::int64_t value = expression.value(environment).integer;
      ASSERT_LE(range.lo, value) << expression.text;
      ASSERT_GE(range.hi, value) << expression.text;
    });
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace flashspan::mask::test
