// lowering_test.cpp -- which lowering a mask gets, what is said about it, and which can be asked for.
#include "codegen/mask/lowering.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen/mask/simplify.hpp"
#include "tests/mask/parsed.hpp"

namespace flashspan::mask::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr LoweringKind every_kind[] = {LoweringKind::none, LoweringKind::row_ranges, LoweringKind::column_bounds,
                                       LoweringKind::bit_tiles, LoweringKind::expression};

Program mask_of(const std::string& text) {
  return simplify(parsed_with(text, {{"w", ValueType::integer}, {"n", ValueType::integer}},
                              {{"doc", DType::i32, 1}, {"lo", DType::i32, 1}, {"head", DType::i32, 2}}));
}

struct Choice {
  const char* text;
  LoweringKind kind;
  const char* reason;
};
void PrintTo(const Choice& choice, std::ostream* out) { *out << choice.text; }

class ForwardLowering : public ::testing::TestWithParam<Choice> {};

TEST_P(ForwardLowering, IsTheCheapestThatServesAndSaysWhyNotTheOthers) {
  const Lowering lowering = lower(mask_of(GetParam().text), Direction::forward);
  EXPECT_STREQ(to_string(lowering.kind), to_string(GetParam().kind));
  EXPECT_EQ(lowering.reason, GetParam().reason);
}

INSTANTIATE_TEST_SUITE_P(
    Masks, ForwardLowering,
    ::testing::Values(
        Choice{"(q < k) | (k <= q) | True", LoweringKind::none, "every pair is visible, whatever the data"},
        Choice{"q >= k", LoweringKind::row_ranges, "for each query the visible keys form 1 range"},
        Choice{"False", LoweringKind::row_ranges, "for each query the visible keys form 1 range"},
        Choice{"(k < 4) | (0 <= q - k < w)", LoweringKind::row_ranges, "for each query the visible keys form 2 ranges"},
        Choice{"(q >= k) & (q < lo[k])", LoweringKind::column_bounds,
               "for each key the queries that see it form 1 range; not row_ranges: lo[k] is looked up by k"},
        Choice{
            "doc[q] == doc[k]", LoweringKind::bit_tiles,
            "all heads share the mask, so open tiles are evaluated once, into bits; not row_ranges: doc[k] is looked "
            "up by k; not column_bounds: doc[q] is looked up by q"},
        Choice{"(k < 4) | (abs(q - k) < 5) | (k == w)", LoweringKind::column_bounds,
               "for each key the queries that see it form 1 range; not row_ranges: 3 ranges, of which 2 are cheap"},
        Choice{"k < where(any(lo[r] == q for r in range(n)), 3, 5)", LoweringKind::bit_tiles,
               "all heads share the mask, so open tiles are evaluated once, into bits; not row_ranges: the ends take a "
               "loop; not column_bounds: any(lo[r0] == q for r0 in range(0, n)) loops over what depends on q"},
        Choice{
            "head[h, k] == doc[q]", LoweringKind::expression,
            "forward: tiles that interval analysis leaves open evaluate the mask element by element; not row_ranges: "
            "head[h, k] is looked up by k; not column_bounds: doc[q] is looked up by q; not bit_tiles: the mask "
            "depends on h"}));

TEST(BackwardLowering, HasBoundsOfColumnsWhereAForwardHasRangesOfRows) {
  EXPECT_EQ(lower(mask_of("True"), Direction::backward).kind, LoweringKind::none);
  for (const char* text : {"q >= k", "False", "(q >= k) & (q - k < 5)"}) {
    EXPECT_EQ(lower(mask_of(text), Direction::backward).kind, LoweringKind::column_bounds) << text;
  }
  EXPECT_EQ(lower(mask_of("doc[q] == doc[k]"), Direction::backward).kind, LoweringKind::bit_tiles);
  const Lowering expression = lower(mask_of("head[h, k] == doc[q]"), Direction::backward);
  EXPECT_EQ(expression.kind, LoweringKind::expression);
  EXPECT_THAT(expression.reason, AllOf(HasSubstr("backward"), HasSubstr("not column_bounds")));
}

TEST(LoweringOfAKind, IsGivenJustWhereItGivesTheMask) {
  using Kinds = std::vector<LoweringKind>;
  const auto given = [](const std::string& text, Direction direction) {
    Kinds kinds;
    for (const LoweringKind kind : every_kind) {
      const auto lowering = lower_as(mask_of(text), direction, kind);
      if (!lowering) continue;
      EXPECT_EQ(lowering->kind, kind);
      kinds.push_back(kind);
    }
    return kinds;
  };
  const auto all = Kinds(std::begin(every_kind), std::end(every_kind));
  EXPECT_EQ(given("True", Direction::forward), all);
  EXPECT_EQ(given("q >= k", Direction::forward), Kinds(all.begin() + 1, all.end()));
  EXPECT_EQ(given("doc[q] == doc[k]", Direction::forward), (Kinds{LoweringKind::bit_tiles, LoweringKind::expression}));
  EXPECT_EQ(given("head[h, k] < q", Direction::forward),
            (Kinds{LoweringKind::column_bounds, LoweringKind::expression}));
  EXPECT_EQ(given("True", Direction::backward), (Kinds{LoweringKind::none, LoweringKind::column_bounds,
                                                       LoweringKind::bit_tiles, LoweringKind::expression}));
  EXPECT_EQ(given("q >= k", Direction::backward),
            (Kinds{LoweringKind::column_bounds, LoweringKind::bit_tiles, LoweringKind::expression}));
  EXPECT_EQ(given("head[h, k] == doc[q]", Direction::backward), (Kinds{LoweringKind::expression}));
}

TEST(LoweringOfAKind, IsRefusedWithWhatStandsInTheWay) {
  const auto refused = [](const std::string& text, Direction direction, LoweringKind kind) {
    const auto lowering = lower_as(mask_of(text), direction, kind);
    EXPECT_FALSE(lowering);
    return lowering ? Error{} : lowering.error();
  };
  const Error rows = refused("doc[q] == doc[k]", Direction::forward, LoweringKind::row_ranges);
  EXPECT_EQ(rows.code, ErrorCode::unsupported);
  EXPECT_EQ(rows.message(),
            "forward lowering: got row_ranges; takes a mask where for each query the visible keys form at most 3 "
            "ranges; here: doc[k] is looked up by k");
  EXPECT_THAT(refused("q >= k", Direction::forward, LoweringKind::none).message(), HasSubstr("shows every pair"));
  EXPECT_THAT(refused("h < q", Direction::forward, LoweringKind::bit_tiles).message(),
              HasSubstr("does not depend on h"));
  EXPECT_THAT(refused("q >= k", Direction::backward, LoweringKind::row_ranges).message(),
              AllOf(HasSubstr("backward lowering"), HasSubstr("none, column_bounds, bit_tiles or expression")));
}

TEST(LoweringNames, AreReadAsTheyAreWritten) {
  for (const LoweringKind kind : every_kind) EXPECT_EQ(lowering_from_string(to_string(kind)), kind);
  EXPECT_EQ(lowering_from_string("fast"), std::nullopt);
}

}  // namespace
}  // namespace flashspan::mask::test
