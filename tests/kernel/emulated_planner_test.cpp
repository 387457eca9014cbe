// The planner's kernels, run on the host by the emulator, against looking at every pair of the mask.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>

#include "codegen/mask/evaluate.hpp"
#include "codegen/mask/parser.hpp"
#include "codegen/mask/simplify.hpp"
#include "tests/kernel/emulator/emulated_plan.hpp"
#include "tests/mask/random_programs.hpp"

namespace flashspan::test {
namespace {

using flashspan_device::evaluated_tile;
using flashspan_device::full_tile;
using flashspan_device::TileEntry;
using mask::Program;

constexpr int full_cost = 16;
constexpr int partial_cost = 18;

Program parsed(const std::string& text, const std::vector<mask::ScalarDeclaration>& scalars = {},
               const std::vector<mask::TensorDeclaration>& tensors = {}) {
  const auto program = mask::parse(text, mask::ProgramKind::mask, scalars, tensors);
  EXPECT_TRUE(program) << program.error().message();
  return program ? mask::simplify(*program) : Program();
}

/// Visibility of every pair of one list, pair by pair.
class Pairs {
 public:
  Pairs(const PlanRequest& request, std::int64_t b, std::int64_t h)
      : request_(request), visible_(static_cast<std::size_t>(request.shape.q_len * request.shape.kv_len)) {
    const AttentionShape& shape = request.shape;
    for (std::int64_t q = 0; q < shape.q_len; ++q) {
      for (std::int64_t k = 0; k < shape.kv_len; ++k) {
        visible_[static_cast<std::size_t>(q * shape.kv_len + k)] =
            mask::evaluate_mask(*request.program, *request.bindings, {b, h, q, k, shape.q_len, shape.kv_len, 0});
      }
    }
  }
  [[nodiscard]] bool visible(std::int64_t q, std::int64_t k) const {
    return q < request_.shape.q_len && k < request_.shape.kv_len &&
           visible_[static_cast<std::size_t>(q * request_.shape.kv_len + k)];
  }

  struct Counts {
    std::int64_t visible = 0, inside = 0;
  };
  [[nodiscard]] Counts counts(std::int64_t query_tile, std::int64_t key_tile) const {
    const auto& [block_m, block_n] = std::pair{request_.tile.block_m, request_.tile.block_n};
    Counts counts;
    const std::int64_t end_q = std::min(request_.shape.q_len, (query_tile + 1) * block_m);
    const std::int64_t end_k = std::min(request_.shape.kv_len, (key_tile + 1) * block_n);
    for (std::int64_t q = query_tile * block_m; q < end_q; ++q) {
      for (std::int64_t k = key_tile * block_n; k < end_k; ++k) {
        ++counts.inside;
        counts.visible += visible(q, k) ? 1 : 0;
      }
    }
    return counts;
  }

  /// A bit for every 64 query rows of the tile that see nothing of it.
  [[nodiscard]] unsigned unseeing(std::int64_t query_tile, std::int64_t key_tile) const {
    constexpr int group = 64;
    const auto sees = [&](std::int64_t q) {
      for (std::int64_t k = key_tile * request_.tile.block_n; k < (key_tile + 1) * request_.tile.block_n; ++k) {
        if (visible(q, k)) return true;
      }
      return false;
    };
    unsigned unseeing = 0;
    for (int first = 0; first < request_.tile.block_m; first += group) {
      bool seen = false;
      for (int row = first; row < std::min(first + group, request_.tile.block_m); ++row) {
        seen = seen || sees(query_tile * request_.tile.block_m + row);
      }
      if (!seen) unseeing |= 1U << first / group;
    }
    return unseeing;
  }

  /// Bit tile of one tile, in the order that TilePlanArguments describes.
  [[nodiscard]] std::vector<unsigned> bits(std::int64_t query_tile, std::int64_t key_tile, bool by_key) const {
    const auto& [block_m, block_n] = std::pair{request_.tile.block_m, request_.tile.block_n};
    std::vector<unsigned> words;
    for (int row = 0; row < (by_key ? block_n : block_m); ++row) {
      for (int quad = 0; quad < 4; ++quad) {
        unsigned word = 0;
        for (int e = 0; e < (by_key ? block_m : block_n) / 4; ++e) {
          const int column = 8 * (e >> 1) + 2 * quad + (e & 1);
          const std::int64_t q = query_tile * block_m + (by_key ? column : row);
          if (visible(q, key_tile * block_n + (by_key ? row : column))) word |= 1U << e;
        }
        words.push_back(word);
      }
    }
    return words;
  }

 private:
  const PlanRequest& request_;
  std::vector<bool> visible_;
};

/// How the partial tiles of a plan are tested.
struct Tally {
  int full = 0;
  int evaluated = 0;
  int unseen_in_part = 0;
  std::set<int> slots;
};

/// One row of one list against its pairs. `transposed`: a row of key tiles.
void expect_row(const EmulatedPlan& plan, const EmulatedLists& lists, const PlanRequest& request, const Pairs& pairs,
                long long at, bool transposed, Tally& tally) {
  std::vector<TileEntry> entries(
      lists.entries.begin() + at * lists.across,
      lists.entries.begin() + at * lists.across + lists.counts[static_cast<std::size_t>(at)]);
  auto next = entries.begin();
  const long long row = at % lists.rows;
  for (long long tile = 0; tile < lists.across; ++tile) {
    const auto query_tile = transposed ? tile : row;
    const auto key_tile = transposed ? row : tile;
    const Pairs::Counts counts = pairs.counts(query_tile, key_tile);
    if (counts.visible == 0) continue;
    ASSERT_NE(next, entries.end()) << "row " << row << " ends before tile " << tile;
    const TileEntry entry = *next++;
    ASSERT_EQ(entry.tile, tile) << "row " << row;
    if (counts.visible == counts.inside) {
      ASSERT_EQ(entry.mask, full_tile) << "tile " << row << ", " << tile;
      ASSERT_EQ(entry.unseeing, 0U) << "tile " << row << ", " << tile;
      ++tally.full;
      continue;
    }
    ASSERT_EQ(entry.unseeing, pairs.unseeing(query_tile, key_tile)) << "tile " << row << ", " << tile;
    tally.unseen_in_part += entry.unseeing != 0 ? 1 : 0;
    if (entry.mask == evaluated_tile) {
      ++tally.evaluated;
    } else {
      ASSERT_GE(entry.mask, 0) << "tile " << row << ", " << tile;
      ASSERT_LT(entry.mask, plan.bit_slots);
      tally.slots.insert(entry.mask);
      const auto expect_bits = [&](const std::vector<unsigned>& all, int rows, bool by_key) {
        const long long words = rows * 4;
        const std::vector<unsigned> got(all.begin() + entry.mask * words, all.begin() + (entry.mask + 1) * words);
        ASSERT_EQ(got, pairs.bits(query_tile, key_tile, by_key)) << "tile " << query_tile << ", " << key_tile;
      };
      const bool backward = request.direction == Direction::backward;
      if (!backward || request.two_passes) expect_bits(plan.query_bits, request.tile.block_m, false);
      if (backward) expect_bits(plan.key_bits, request.tile.block_n, true);
    }
  }
  ASSERT_EQ(next, entries.end()) << "row " << row << " lists an empty tile";
}

/// The rows of every list, most expensive first. Rows of queries: among equals the last first. Rows of keys: costs of
/// the same four tiles are equals, and the first comes first.
void expect_order(const EmulatedLists& lists, bool by_key) {
  const int alike = by_key ? 4 * full_cost : 1;
  for (long long list = 0; list < lists.lists; ++list) {
    std::vector<std::pair<int, int>> expected;
    for (int row = 0; row < lists.rows; ++row) {
      const auto at = static_cast<std::size_t>(list * lists.rows + row);
      int cost = 0;
      for (int i = 0; i < lists.counts[at]; ++i) {
        const TileEntry& entry =
            lists.entries[at * static_cast<std::size_t>(lists.across) + static_cast<std::size_t>(i)];
        cost += entry.mask == full_tile ? full_cost : partial_cost;
      }
      expected.emplace_back(-(cost / alike), by_key ? row : -row);
    }
    std::sort(expected.begin(), expected.end());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const int row = std::abs(expected[i].second);
      ASSERT_EQ(lists.order[static_cast<std::size_t>(list * lists.rows) + i], row) << "list " << list;
    }
  }
}

/// Plans, and holds everything against the pairs.
Tally expect_exact(const PlanRequest& request) {
  const auto plan = plan_emulated(request);
  Tally by_query;
  Tally by_key;
  if (!plan) {
    ADD_FAILURE() << plan.error().message();
    return by_query;
  }
  EXPECT_EQ(plan->next_item, 0u);
  const EmulatedLists& lists = plan->by_query;
  const bool backward = request.direction == Direction::backward;
  const mask::VariableSet inputs = request.program->dependencies();
  const std::int64_t heads = (inputs & set_of(mask::Variable::h)) != 0 ? request.shape.query_heads : 1;
  for (long long list = 0; list < lists.lists; ++list) {
    const Pairs pairs(request, list / heads, list % heads);
    for (long long row = 0; row < lists.rows; ++row) {
      expect_row(*plan, lists, request, pairs, list * lists.rows + row, false, by_query);
    }
    for (long long row = 0; row < plan->by_key.rows; ++row) {
      expect_row(*plan, plan->by_key, request, pairs, list * plan->by_key.rows + row, true, by_key);
    }
  }
  expect_order(lists, false);
  expect_order(plan->by_key, true);
  if (backward) {
    EXPECT_EQ(by_key.full, by_query.full);
    EXPECT_EQ(by_key.evaluated, by_query.evaluated);
    EXPECT_EQ(by_key.slots, by_query.slots);
  }
  return by_query;
}

PlanRequest request_of(const Program& program, const mask::Bindings& bindings, TileConfig tile, std::int64_t q_len,
                       std::int64_t kv_len, Direction direction = Direction::backward) {
  PlanRequest request;
  // A key's word has no room for more queries; no backward has such tiles.
  request.direction = tile.block_m > 128 ? Direction::forward : direction;
  request.tile = tile;
  request.shape = {1, 2, 1, q_len, kv_len, 64, 64};
  request.program = &program;
  request.bindings = &bindings;
  return request;
}

constexpr TileConfig square{.block_m = 128, .block_n = 128};
constexpr TileConfig tall{.block_m = 192, .block_n = 80};
constexpr TileConfig small{.block_m = 64, .block_n = 64};

TEST(EmulatedPlanner, CausalTilesOnTheDiagonalAreBitTiles) {
  const Program causal = parsed("k <= q + kv_len - q_len");
  const mask::Bindings none;
  for (const TileConfig& tile : {square, tall, small}) {
    for (const auto& [q_len, kv_len] : {std::pair<int, int>{700, 700}, {333, 901}, {901, 333}, {1, 1000}, {1, 1}}) {
      SCOPED_TRACE(std::to_string(tile.block_m) + ", " + std::to_string(q_len) + " x " + std::to_string(kv_len));
      const Tally tally = expect_exact(request_of(causal, none, tile, q_len, kv_len));
      EXPECT_EQ(tally.evaluated, 0);
    }
  }
}

TEST(EmulatedPlanner, TilesSayWhichRowsSeeNothingOfThem) {
  // Documents shorter than a tile: most tiles are seen by the rows of one or two groups only.
  const Program documents = parsed("q // 50 == k // 50");
  const mask::Bindings none;
  for (const TileConfig& tile : {square, tall, small}) {
    SCOPED_TRACE(tile.block_m);
    const Tally tally = expect_exact(request_of(documents, none, tile, 700, 690));
    EXPECT_EQ(tally.unseen_in_part > 0, tile.block_m > 64);
  }
}

TEST(EmulatedPlanner, ABackwardInTwoPassesHasItsBitsBothWays) {
  const Program documents = parsed("q // 50 == k // 50");
  const mask::Bindings none;
  PlanRequest request = request_of(documents, none, square, 700, 690, Direction::backward);
  request.two_passes = true;
  EXPECT_GT(expect_exact(request).slots.size(), 0U);
}

TEST(EmulatedPlanner, NoTilesGiveEmptyRows) {
  const Program causal = parsed("k <= q");
  const mask::Bindings none;
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    expect_exact(request_of(causal, none, small, 300, 0, direction));
  }
  expect_exact(request_of(causal, none, small, 0, 300));
}

/// A bucket per query and per key: no tile can be decided by intervals.
struct Buckets {
  explicit Buckets(std::size_t length) {
    std::mt19937 random(5);
    for (std::size_t i = 0; i < length; ++i) {
      query.push_back(static_cast<std::int32_t>(random() % 200));
      key.push_back(static_cast<std::int32_t>(random() % 200));
    }
    const auto rank_1 = [length](std::vector<std::int32_t>& values) {
      return TensorView::contiguous(values.data(), DType::i32, {static_cast<std::int64_t>(length)});
    };
    bindings.tensors = {rank_1(key), rank_1(query)};
  }
  std::vector<std::int32_t> query, key;
  mask::Bindings bindings;
  Program program =
      parsed("query[q] == key[k] and q % 150 != 3", {}, {{"key", DType::i32, 1}, {"query", DType::i32, 1}});
};

TEST(EmulatedPlanner, TilesThatAnalysisLeavesOpenAreEvaluated) {
  const Buckets buckets(900);
  const Tally tally = expect_exact(request_of(buckets.program, buckets.bindings, square, 900, 870));
  EXPECT_EQ(tally.slots.size(), 8U * 7U) << "every tile is partial";
}

TEST(EmulatedPlanner, TilesBeyondTheBitCapacityAreLeftToTheProgram) {
  const Buckets buckets(500);
  const std::size_t partial = expect_exact(request_of(buckets.program, buckets.bindings, small, 500, 450)).slots.size();
  EXPECT_GT(partial, 50U);
  for (const int slots : {0, 1, 7}) {
    PlanRequest request = request_of(buckets.program, buckets.bindings, small, 500, 450);
    request.bit_slots = slots;
    const Tally tally = expect_exact(request);
    EXPECT_EQ(static_cast<int>(tally.slots.size()), slots);
    EXPECT_EQ(tally.evaluated, static_cast<int>(partial) - slots);
  }
}

TEST(EmulatedPlanner, MoreOpenTilesThanBlocksAreSharedOut) {
  // 80 x 80 tiles, most of them left open and nearly all of those empty.
  const Program program = parsed("(q * 7 + k * 5) % 1009 == 0 and q < 100 or k == q");
  const mask::Bindings none;
  expect_exact(request_of(program, none, {.block_m = 16, .block_n = 16}, 1270, 1275));
}

TEST(EmulatedPlanner, TheOrderInWhichBlocksRunChangesNothing) {
  // Tiles are settled before those of their rows are counted, or after, by the same block or by another.
  const Buckets buckets(900);
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    PlanRequest request = request_of(buckets.program, buckets.bindings, square, 900, 870);
    request.direction = direction;
    request.order = BlockOrder::last_first;
    EXPECT_EQ(expect_exact(request).slots.size(), 8U * 7U);
  }
  const Program program = parsed("(q * 7 + k * 5) % 1009 == 0 and q < 100 or k == q");
  const mask::Bindings none;
  PlanRequest request = request_of(program, none, {.block_m = 16, .block_n = 16}, 1270, 1275);
  request.order = BlockOrder::last_first;
  expect_exact(request);
}

TEST(EmulatedPlanner, AWorkspaceMayHoldAnythingAndBePlannedInAgain) {
  const Buckets buckets(500);
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    for (const auto& [held, times] : {std::pair{std::byte{0}, 1}, {std::byte{0x80}, 1}, {std::byte{0xff}, 3}}) {
      PlanRequest request = request_of(buckets.program, buckets.bindings, small, 500, 450, direction);
      request.held = held;
      request.times = times;
      EXPECT_GT(expect_exact(request).slots.size(), 50U);
    }
  }
}

TEST(EmulatedPlanner, MoreTilesThanABlockCountsAtOnceAreSharedOut) {
  const Program program = parsed("k == q and q % 3 == 0 or k > 2090 and q < k");
  const mask::Bindings none;
  expect_exact(request_of(program, none, {.block_m = 8, .block_n = 8}, 2100, 2100, Direction::forward));
}

TEST(EmulatedPlanner, LongListsAreSortedByCost) {
  // One pair a row of tiles, or none, or many.
  const Program program = parsed("k < q * 37 % 61 * q % 53");
  const mask::Bindings none;
  expect_exact(request_of(program, none, {.block_m = 8, .block_n = 8}, 2500, 60));
}

TEST(EmulatedPlanner, ListsTooLongToSortRunFromTheLastQueriesToTheFirstAndFromTheFirstKeysToTheLast) {
  const Program program = parsed("k < q");
  const mask::Bindings none;
  const auto plan = plan_emulated(request_of(program, none, {.block_m = 8, .block_n = 8}, 8 * 2049, 8));
  ASSERT_TRUE(plan) << plan.error().message();
  for (int i = 0; i < 2049; ++i) ASSERT_EQ(plan->by_query.order[static_cast<std::size_t>(i)], 2048 - i);
  const auto transposed =
      plan_emulated(request_of(program, none, {.block_m = 8, .block_n = 8}, 8, 8 * 2049, Direction::backward));
  ASSERT_TRUE(transposed) << transposed.error().message();
  for (int i = 0; i < 2049; ++i) ASSERT_EQ(transposed->by_key.order[static_cast<std::size_t>(i)], i);
}

TEST(EmulatedPlanner, RandomProgramsAreClassifiedExactly) {
  // What is drawn differs between compilers, which evaluate arguments in orders of their own: drawn until both kinds of
  // tile have been seen often.
  constexpr int fewest_programs = 12;
  constexpr int most_programs = 40;
  constexpr int often = 50;
  std::mt19937_64 random(20251130);
  int partial = 0;
  int full = 0;
  for (int i = 0; i < most_programs && (i < fewest_programs || full <= often || partial <= often); ++i) {
    mask::test::Environment environment = mask::test::random_environment(random);
    const auto expression = mask::test::random_expression(random, mask::ValueType::boolean, {});
    SCOPED_TRACE(expression.text);
    const Program program = parsed(expression.text, mask::test::scalar_declarations(environment),
                                   mask::test::tensor_declarations(environment));
    const mask::Bindings bindings = mask::test::bindings_for(program, environment);
    PlanRequest request = request_of(program, bindings, i % 2 == 0 ? small : tall, 150, 190);
    request.shape.batch = 2;
    const Tally tally = expect_exact(request);
    full += tally.full;
    partial += static_cast<int>(tally.slots.size());
  }
  EXPECT_GT(full, often);
  EXPECT_GT(partial, often);
}

}  // namespace
}  // namespace flashspan::test
