// tile_intervals_test.cpp -- interval arithmetic against enumeration, and what classification must be able to decide.
#include "codegen/mask/tile_intervals.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "codegen/mask/arithmetic.hpp"
#include "codegen/mask/interval_arithmetic.hpp"
#include "codegen/mask/simplify.hpp"
#include "tests/mask/parsed.hpp"

namespace flashspan::mask::test {
namespace {

constexpr std::int64_t smallest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();

using Function = std::int64_t (*)(std::int64_t, std::int64_t);
struct Operation {
  Op op;
  Function function;
};
void PrintTo(const Operation& operation, std::ostream* out) { *out << "operation " << static_cast<int>(operation.op); }
const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = {
      {Op::add, wrapping_add},
      {Op::subtract, wrapping_subtract},
      {Op::multiply, wrapping_multiply},
      {Op::minimum, minimum<std::int64_t>},
      {Op::maximum, maximum<std::int64_t>},
      {Op::floor_divide, floor_divide},
      {Op::modulo, floor_modulo},
      {Op::negate, [](std::int64_t a, std::int64_t) { return wrapping_negate(a); }},
      {Op::absolute, [](std::int64_t a, std::int64_t) { return wrapping_absolute(a); }}};
  return all;
}

std::vector<Interval> intervals_between(std::int64_t lo, std::int64_t hi) {
  std::vector<Interval> all;
  for (std::int64_t first = lo; first <= hi; ++first) {
    for (std::int64_t last = first; last <= hi; ++last) all.push_back({first, last});
  }
  return all;
}

// Smallest interval that holds every result, by trying every pair of operands.
Interval exact_range(const Operation& operation, Interval a, Interval b) {
  Interval exact{largest, smallest};
  for (std::int64_t x = a.lo; x <= a.hi; ++x) {
    for (std::int64_t y = b.lo; y <= b.hi; ++y) {
      const std::int64_t value = operation.function(x, y);
      exact = {std::min(exact.lo, value), std::max(exact.hi, value)};
    }
  }
  return exact;
}

class IntervalArithmeticOf : public ::testing::TestWithParam<Operation> {};

// Modulo may be wider; what it must manage is tested below.
TEST_P(IntervalArithmeticOf, SmallOperandsIsExact) {
  for (const Interval a : intervals_between(-6, 6)) {
    for (const Interval b : intervals_between(-4, 4)) {
      const Interval result = interval_of(GetParam().op, a, b);
      const Interval exact = exact_range(GetParam(), a, b);
      ASSERT_LE(result.lo, exact.lo) << a.lo << ".." << a.hi << " and " << b.lo << ".." << b.hi;
      ASSERT_GE(result.hi, exact.hi) << a.lo << ".." << a.hi << " and " << b.lo << ".." << b.hi;
      if (GetParam().op == Op::modulo) continue;
      ASSERT_EQ(result.lo, exact.lo) << a.lo << ".." << a.hi << " and " << b.lo << ".." << b.hi;
      ASSERT_EQ(result.hi, exact.hi) << a.lo << ".." << a.hi << " and " << b.lo << ".." << b.hi;
    }
  }
}

// Bounds and operands at the ends of the 64-bit range, where results wrap.
TEST_P(IntervalArithmeticOf, HugeOperandsHoldsEveryResult) {
  const std::vector<std::int64_t> edges = {smallest, smallest + 1, -2, -1, 0, 1, 2, largest - 1, largest};
  const std::size_t count = edges.size();
  const auto expect_inside = [&](std::size_t a_lo, std::size_t a_hi, std::size_t b_lo, std::size_t b_hi) {
    const Interval result = interval_of(GetParam().op, {edges[a_lo], edges[a_hi]}, {edges[b_lo], edges[b_hi]});
    for (std::size_t x = a_lo; x <= a_hi; ++x) {
      for (std::size_t y = b_lo; y <= b_hi; ++y) {
        const std::int64_t value = GetParam().function(edges[x], edges[y]);
        EXPECT_TRUE(result.lo <= value && value <= result.hi) << edges[x] << " and " << edges[y];
      }
    }
  };
  for (std::size_t choice = 0; choice < count * count * count * count; ++choice) {
    const std::size_t a_lo = choice % count;
    const std::size_t a_hi = choice / count % count;
    const std::size_t b_lo = choice / (count * count) % count;
    const std::size_t b_hi = choice / (count * count * count);
    if (a_lo <= a_hi && b_lo <= b_hi) expect_inside(a_lo, a_hi, b_lo, b_hi);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryOperation, IntervalArithmeticOf, ::testing::ValuesIn(operations()));

TEST(IntervalArithmetic, ModuloIsExactBetweenMultiplesOfTheDivisor) {
  const auto modulo = [](Interval a, Interval b) {
    const Interval result = interval_modulo(a, b);
    return std::pair(result.lo, result.hi);
  };
  using Pair = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(modulo({33, 62}, {32, 32}), Pair(1, 30));
  EXPECT_EQ(modulo({-31, -2}, {32, 32}), Pair(1, 30));
  EXPECT_EQ(modulo({30, 33}, {32, 32}), Pair(0, 31));
  EXPECT_EQ(modulo({2, 5}, {8, 100}), Pair(2, 5));
  EXPECT_EQ(modulo({2, 5}, {4, 100}), Pair(0, 5));
  EXPECT_EQ(modulo({-5, -2}, {-100, -8}), Pair(-5, -2));
  EXPECT_EQ(modulo({-5, -2}, {-100, -4}), Pair(-5, 0));
  EXPECT_EQ(modulo({3, 9}, {0, 0}), Pair(0, 0));
  EXPECT_EQ(modulo({3, 9}, {-4, 5}), Pair(-3, 4));
}

TEST(IntervalArithmetic, IsTheWholeRangeWhereResultsMayWrap) {
  for (const Interval whole : {interval_add({0, largest}, {0, 1}), interval_subtract({smallest, 0}, {0, 1}),
                               interval_multiply({0, largest}, {0, 2}), interval_negate({smallest, 0}),
                               interval_absolute({smallest, 0}), interval_floor_divide({smallest, 0}, {-1, -1})}) {
    EXPECT_EQ(whole.lo, smallest);
    EXPECT_EQ(whole.hi, largest);
  }
}

struct Tile {
  Interval q, k;
  Interval b{0, 0}, h{0, 0};
};

TileClass classified(const std::string& text, const Tile& tile, std::vector<std::int32_t> doc = {},
                     std::int64_t left = 0) {
  const Program program = simplify(parsed_with(text, {{.name = "left", .type = ValueType::integer}},
                                               {{.name = "doc", .dtype = DType::i32, .rank = 1}}));
  Bindings bindings;
  if (!program.scalars().empty()) bindings.scalars = {{.integer = left, .real = 0}};
  if (!program.tensors().empty()) bindings.tensors = {view_of(doc)};
  return classify(program, bindings,
                  {.b = tile.b, .h = tile.h, .q = tile.q, .k = tile.k, .q_len = 4096, .kv_len = 4096});
}

TEST(Classify, CausalTilesBelowOnAndAboveTheDiagonal) {
  EXPECT_EQ(classified("q >= k", {.q = {64, 127}, .k = {0, 63}}), TileClass::full);
  EXPECT_EQ(classified("q >= k", {.q = {64, 127}, .k = {64, 127}}), TileClass::partial);
  EXPECT_EQ(classified("q >= k", {.q = {64, 127}, .k = {128, 191}}), TileClass::empty);
  EXPECT_EQ(classified("q >= k", {.q = {63, 63}, .k = {0, 63}}), TileClass::full);
  EXPECT_EQ(classified("q > k", {.q = {63, 63}, .k = {0, 63}}), TileClass::partial);
  EXPECT_EQ(classified("q > k", {.q = {63, 63}, .k = {63, 80}}), TileClass::empty);
}

TEST(Classify, BottomRightCausalUsesTheLengthsOfTheCall) {
  EXPECT_EQ(classified("k <= q + kv_len - q_len + 100", {.q = {0, 63}, .k = {37, 100}}), TileClass::full);
  EXPECT_EQ(classified("k <= q + kv_len - q_len", {.q = {0, 63}, .k = {64, 100}}), TileClass::empty);
}

TEST(Classify, WindowsWithARunTimeWidth) {
  EXPECT_EQ(classified("(q >= k) & (q - k <= left)", {.q = {128, 191}, .k = {64, 127}}, {}, 127), TileClass::full);
  EXPECT_EQ(classified("(q >= k) & (q - k <= left)", {.q = {128, 191}, .k = {64, 127}}, {}, 126), TileClass::partial);
  EXPECT_EQ(classified("(q >= k) & (q - k <= left)", {.q = {256, 319}, .k = {64, 127}}, {}, 128), TileClass::empty);
  EXPECT_EQ(classified("(q >= k) & (q - k <= left)", {.q = {128, 191}, .k = {64, 127}}, {}, largest), TileClass::full);
}

TEST(Classify, DocumentsAreEqualOnlyWhereBothAreOneValue) {
  std::vector<std::int32_t> doc(256);
  for (std::size_t i = 0; i < doc.size(); ++i) doc[i] = static_cast<std::int32_t>(i / 100);
  EXPECT_EQ(classified("doc[q] == doc[k]", {.q = {0, 63}, .k = {32, 95}}, doc), TileClass::full);
  EXPECT_EQ(classified("doc[q] == doc[k]", {.q = {0, 63}, .k = {64, 127}}, doc), TileClass::partial);
  EXPECT_EQ(classified("doc[q] == doc[k]", {.q = {0, 63}, .k = {128, 191}}, doc), TileClass::empty);
  EXPECT_EQ(classified("doc[q] != doc[k]", {.q = {0, 63}, .k = {128, 191}}, doc), TileClass::full);
  EXPECT_EQ(classified("doc[q] != doc[k]", {.q = {0, 63}, .k = {32, 95}}, doc), TileClass::empty);
  EXPECT_EQ(classified("(doc[q] == doc[k]) & (k <= q)", {.q = {0, 63}, .k = {64, 127}}, doc), TileClass::empty);
}

TEST(Classify, LookupsPastTheEndLetZeroJoin) {
  const std::vector<std::int32_t> doc(100, 5);
  EXPECT_EQ(classified("doc[q] == 5", {.q = {0, 99}, .k = {0, 0}}, doc), TileClass::full);
  EXPECT_EQ(classified("doc[q] == 5", {.q = {0, 100}, .k = {0, 0}}, doc), TileClass::partial);
  EXPECT_EQ(classified("doc[q] == 0", {.q = {100, 120}, .k = {0, 0}}, doc), TileClass::full);
  EXPECT_EQ(classified("doc[q - 1] == 5", {.q = {0, 3}, .k = {0, 0}}, doc), TileClass::partial);
}

TEST(Classify, BoxesBeyondTheLimitAreAnyValue) {
  const std::vector<std::int32_t> doc(4096, 5);
  EXPECT_EQ(classified("doc[q] == 5", {.q = {0, max_lookup_box - 1}, .k = {0, 0}}, doc), TileClass::full);
  EXPECT_EQ(classified("doc[q] == 5", {.q = {0, max_lookup_box}, .k = {0, 0}}, doc), TileClass::partial);
  EXPECT_EQ(classified("doc[q] <= 2147483647", {.q = {0, max_lookup_box}, .k = {0, 0}}, doc), TileClass::full);
}

TEST(Classify, BroadcastAxesOfABoxCountOnce) {
  std::vector<std::int32_t> bounds(64, 7);
  TensorView view = view_of(bounds);
  view.rank = 3;
  view.shape = {100, 100, 64};
  view.strides = {0, 0, 1};
  const Program program = parsed_with("bound[b, h, q] == 7", {}, {{.name = "bound", .dtype = DType::i32, .rank = 3}});
  const Bindings bindings{.scalars = {}, .tensors = {view}};
  const TileBounds tile{.b = {0, 99}, .h = {0, 99}, .q = {0, 63}, .k = {0, 63}, .q_len = 64, .kv_len = 64};
  EXPECT_EQ(classify(program, bindings, tile), TileClass::full);
  bounds[63] = 8;
  EXPECT_EQ(classify(program, bindings, tile), TileClass::partial);
}

// FlashMask's skip test: rows in [lo, hi) of a column are masked.
TEST(Classify, ColumnBoundsDecideByTheirExtremes) {
  std::vector<std::int32_t> lo(64, 40);
  std::vector<std::int32_t> hi(64, 90);
  lo[5] = 44;
  hi[9] = 80;
  const Program program =
      parsed_with("~((lo[k] <= q) & (q < hi[k]))", {},
                  {{.name = "lo", .dtype = DType::i32, .rank = 1}, {.name = "hi", .dtype = DType::i32, .rank = 1}});
  const Bindings bindings{.scalars = {}, .tensors = {view_of(lo), view_of(hi)}};
  const auto rows = [&](std::int64_t first, std::int64_t last) {
    return classify(program, bindings,
                    {.b = {0, 0}, .h = {0, 0}, .q = {first, last}, .k = {0, 63}, .q_len = 128, .kv_len = 64});
  };
  EXPECT_EQ(rows(0, 39), TileClass::full);
  EXPECT_EQ(rows(0, 40), TileClass::partial);
  EXPECT_EQ(rows(44, 79), TileClass::empty);
  EXPECT_EQ(rows(43, 79), TileClass::partial);
  EXPECT_EQ(rows(44, 80), TileClass::partial);
  EXPECT_EQ(rows(90, 127), TileClass::full);
}

TEST(Classify, HeadsAndBatchesMayBeRanges) {
  EXPECT_EQ(classified("h < 4", {.q = {0, 1}, .k = {0, 1}, .h = {0, 3}}), TileClass::full);
  EXPECT_EQ(classified("h < 4", {.q = {0, 1}, .k = {0, 1}, .h = {2, 5}}), TileClass::partial);
  EXPECT_EQ(classified("(b == 1) | (q >= k)", {.q = {0, 9}, .k = {0, 9}, .b = {1, 1}}), TileClass::full);
}

// Key ranges per query, R to a row.
TEST(Classify, LoopsOverRangesDecide) {
  std::vector<std::int32_t> ranges;  // every row: [0, 10) and [64, 128)
  for (int row = 0; row < 64; ++row) ranges.insert(ranges.end(), {0, 10, 64, 128});
  const Program program = parsed_with("any(ranges[q, r, 0] <= k < ranges[q, r, 1] for r in range(count))",
                                      {{.name = "count", .type = ValueType::integer}},
                                      {{.name = "ranges", .dtype = DType::i32, .rank = 3}});
  const Bindings bindings{.scalars = {{.integer = 2, .real = 0}},
                          .tensors = {TensorView::contiguous(ranges.data(), DType::i32, {64, 2, 2})}};
  const auto keys = [&](std::int64_t first, std::int64_t last) {
    return classify(program, bindings,
                    {.b = {0, 0}, .h = {0, 0}, .q = {0, 63}, .k = {first, last}, .q_len = 64, .kv_len = 256});
  };
  EXPECT_EQ(keys(64, 127), TileClass::full);
  EXPECT_EQ(keys(0, 9), TileClass::full);
  EXPECT_EQ(keys(0, 63), TileClass::partial);
  EXPECT_EQ(keys(10, 63), TileClass::empty);
  EXPECT_EQ(keys(128, 255), TileClass::empty);
}

TEST(Classify, LoopsWithBoundsThatVaryDecideOnlyWhatIsCertain) {
  // For q in 4..7 the values 0..3 are always taken, 4..6 sometimes.
  EXPECT_EQ(classified("any(r == 3 for r in range(q))", {.q = {4, 7}, .k = {0, 0}}), TileClass::full);
  EXPECT_EQ(classified("any(r == 4 for r in range(q))", {.q = {4, 7}, .k = {0, 0}}), TileClass::partial);
  EXPECT_EQ(classified("any(r == 7 for r in range(q))", {.q = {4, 7}, .k = {0, 0}}), TileClass::empty);
  EXPECT_EQ(classified("any(r == 5 for r in range(q, 9))", {.q = {2, 6}, .k = {0, 0}}), TileClass::partial);
  EXPECT_EQ(classified("any(r == 6 for r in range(q, 9))", {.q = {2, 6}, .k = {0, 0}}), TileClass::full);
  EXPECT_EQ(classified("any(r == 1 for r in range(q, 9))", {.q = {2, 6}, .k = {0, 0}}), TileClass::empty);
}

TEST(Classify, LongLoopsAreMaybe) {
  EXPECT_EQ(classified("any(r == 3 for r in range(left))", {.q = {0, 1}, .k = {0, 1}}, {}, max_analysed_trips),
            TileClass::full);
  EXPECT_EQ(classified("any(r == 3 for r in range(left))", {.q = {0, 1}, .k = {0, 1}}, {}, max_analysed_trips + 1),
            TileClass::partial);
  EXPECT_EQ(classified("any(r == 3 for r in range(left))", {.q = {0, 1}, .k = {0, 1}}, {}, largest),
            TileClass::partial);
  EXPECT_EQ(classified("any(r == 3 for r in range(-2, left))", {.q = {0, 1}, .k = {0, 1}}, {}, largest),
            TileClass::partial);
  EXPECT_EQ(classified("any(r == 3 for r in range(left))", {.q = {0, 1}, .k = {0, 1}}, {}, smallest), TileClass::empty);
}

TEST(Classify, ComparisonsOfRealsAreMaybe) {
  EXPECT_EQ(classified("q / 2 >= 0.0", {.q = {0, 1}, .k = {0, 1}}), TileClass::partial);
  EXPECT_EQ(classified("(q / 2 >= 0.0) & (k > 5)", {.q = {0, 1}, .k = {0, 1}}), TileClass::empty);
}

std::pair<std::int64_t, std::int64_t> range_of_text(const std::string& text) {
  const Program program = parsed(text, ProgramKind::score);  // float(<integer>)
  const NodeId integer = program.node(program.root()).operands[0];
  const Interval range = value_ranges(program)[static_cast<std::size_t>(integer)];
  return {range.lo, range.hi};
}

TEST(ValueRanges, AreWhatLegalCallsAllow) {
  using Pair = std::pair<std::int64_t, std::int64_t>;
  constexpr std::int64_t length = max_sequence_length;
  EXPECT_EQ(range_of_text("q"), Pair(0, length - 1));
  EXPECT_EQ(range_of_text("kv_len"), Pair(0, length));
  EXPECT_EQ(range_of_text("q + kv_len - q_len"), Pair(-length, 2 * length - 1));
  EXPECT_EQ(range_of_text("q - k"), Pair(1 - length, length - 1));
  EXPECT_EQ(range_of_text("doc[q]"), Pair(INT32_MIN, INT32_MAX));
  EXPECT_EQ(range_of_text("doc[q] + 1"), Pair(std::int64_t{INT32_MIN} + 1, std::int64_t{INT32_MAX} + 1));
  EXPECT_EQ(range_of_text("left"), Pair(smallest, largest));
  EXPECT_EQ(range_of_text("q % 16"), Pair(0, 15));
  EXPECT_EQ(range_of_text("where(q < k, 3, -2)"), Pair(-2, 3));
  EXPECT_EQ(range_of_text("q * k"), Pair(0, (length - 1) * (length - 1)));
  EXPECT_EQ(range_of_text("q * k * h"), Pair(smallest, largest));
}

TEST(ValueRanges, OfLoopVariablesFollowFromTheirBounds) {
  const Program program = parsed("any(r + 1 == k for r in range(3, kv_len))");
  const std::vector<Interval> ranges = value_ranges(program);
  for (NodeId id = 0; id < static_cast<NodeId>(program.nodes().size()); ++id) {
    const Interval range = ranges[static_cast<std::size_t>(id)];
    if (program.node(id).op == Op::loop_variable) {
      EXPECT_EQ(range.lo, 3);
      EXPECT_EQ(range.hi, max_sequence_length - 1);
    }
    if (program.node(id).op == Op::add) {
      EXPECT_EQ(range.hi, max_sequence_length);
    }
  }
}

}  // namespace
}  // namespace flashspan::mask::test
