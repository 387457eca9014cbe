// Every supported head dim has a tile that fits every architecture, and what does not fit is a named error.
#include "codegen/kernel/tile_config.hpp"

#include <gtest/gtest.h>

#include <tuple>
#include <utility>

#include "codegen/kernel/resource_model.hpp"

namespace flashspan::kernel {
namespace {

constexpr std::int64_t kibibyte = 1024;
constexpr int rows_per_warp = 16;

KernelSpec spec_of(Direction direction, Arch arch, int head_dim_qk, int head_dim_v) {
  KernelSpec spec;
  spec.direction = direction;
  spec.target = {DeviceKind::cuda, arch};
  spec.dtype = DType::bf16;
  spec.head_dim_qk = head_dim_qk;
  spec.head_dim_v = head_dim_v;
  spec.family = choose_family(spec).family;
  spec.two_passes = takes_two_passes(spec, {});
  return spec;
}

TEST(KernelFamily, IsHopperForAlignedCallsOnSm90aOnly) {
  const auto family = [](Direction direction, Arch arch, bool aligned) {
    KernelSpec spec = spec_of(direction, arch, 64, 64);
    spec.aligned = aligned;
    const FamilyChoice choice = choose_family(spec);
    EXPECT_STRNE(choice.reason, "");
    return choice.family;
  };
  EXPECT_EQ(family(Direction::forward, {90, 'a'}, true), KernelFamily::hopper);
  EXPECT_EQ(family(Direction::forward, {90, 'a'}, false), KernelFamily::mma);
  EXPECT_EQ(family(Direction::backward, {90, 'a'}, true), KernelFamily::hopper);
  EXPECT_EQ(family(Direction::backward, {90, 'a'}, false), KernelFamily::mma);
  for (const Arch arch : {Arch{80, 0}, Arch{89, 0}, Arch{90, 0}, Arch{100, 0}, Arch{100, 'a'}, Arch{120, 0}}) {
    EXPECT_EQ(family(Direction::forward, arch, true), KernelFamily::mma) << to_string(arch);
  }
}

TEST(KernelFamily, OfABackwardIsMmaForStridesOfZeroOnly) {
  for (const auto& [qk, v] : {std::pair{128, 136}, std::pair{136, 128}, std::pair{256, 256}}) {
    EXPECT_EQ(choose_family(spec_of(Direction::backward, {90, 'a'}, qk, v)).family, KernelFamily::hopper) << qk;
  }
  const KernelSpec spec = spec_of(Direction::backward, {90, 'a'}, 128, 128);
  EXPECT_EQ(choose_family(spec, {}).family, KernelFamily::hopper);
  EXPECT_EQ(choose_family(spec, {.deterministic = true}).family, KernelFamily::hopper);
  EXPECT_EQ(choose_family(spec, {.expanded = true}).family, KernelFamily::mma);
  EXPECT_EQ(choose_family(spec_of(Direction::forward, {90, 'a'}, 128, 128), {.deterministic = true}).family,
            KernelFamily::hopper);
}

TEST(TwoPasses, AreForHopperBackwardsWhoseSumsNeedAnOrder) {
  KernelSpec spec = spec_of(Direction::backward, {90, 'a'}, 128, 128);
  spec.family = KernelFamily::hopper;
  EXPECT_TRUE(takes_two_passes(spec, {.deterministic = true}));
  EXPECT_FALSE(takes_two_passes(spec, {}));
  spec.head_dim_v = 136;
  EXPECT_TRUE(takes_two_passes(spec, {.deterministic = true}));
  EXPECT_FALSE(takes_two_passes(spec, {}));
  spec.direction = Direction::forward;
  EXPECT_FALSE(takes_two_passes(spec, {.deterministic = true}));
  spec.direction = Direction::backward;
  spec.family = KernelFamily::mma;
  EXPECT_FALSE(takes_two_passes(spec, {.deterministic = true})) << "it always takes two";
}

TEST(TwoPasses, GoThroughTilesInStepsThatLeaveRegisters) {
  for (const int head_dim : {16, 64, 128, 192, 256}) {
    KernelSpec spec = spec_of(Direction::backward, {90, 'a'}, head_dim, head_dim);
    spec.family = KernelFamily::hopper;
    spec.tile = *default_tile(spec, true);
    EXPECT_EQ(step_sizes(spec).queries, spec.tile.block_m) << "one pass: a whole tile";
    EXPECT_EQ(step_sizes(spec).keys, spec.tile.block_n);
    EXPECT_LE(shared_memory_bytes(spec), shared_memory_limit(spec.target.arch));
    spec.two_passes = true;
    spec.tile = *default_tile(spec, true);
    EXPECT_EQ(step_sizes(spec).queries, 64);
    EXPECT_EQ(step_sizes(spec).keys, 64);
    EXPECT_LE(shared_memory_bytes(spec), shared_memory_limit(spec.target.arch));
  }
}

TEST(KernelFamily, MmaBackwardsEvaluateWhereHopperOnesLookUp) {
  KernelSpec spec = spec_of(Direction::backward, {90, 'a'}, 128, 128);
  for (const auto kind : {mask::LoweringKind::none, mask::LoweringKind::column_bounds, mask::LoweringKind::bit_tiles}) {
    EXPECT_EQ(served_lowering(spec, kind), kind);
  }
  spec.family = KernelFamily::mma;
  EXPECT_EQ(served_lowering(spec, mask::LoweringKind::none), mask::LoweringKind::none);
  EXPECT_EQ(served_lowering(spec, mask::LoweringKind::bit_tiles), mask::LoweringKind::expression);
  spec.direction = Direction::forward;
  EXPECT_EQ(served_lowering(spec, mask::LoweringKind::bit_tiles), mask::LoweringKind::bit_tiles);
}

TEST(TileConfig, OfAHopperBackwardLeavesRegistersForScoresBesideTheGradientsOfAKey) {
  const auto tile = [](int qk, int v, bool light, const char* score) {
    KernelSpec spec = spec_of(Direction::backward, {90, 'a'}, qk, v);
    spec.score = score;
    return default_tile(spec, light).value();
  };
  const TileConfig narrow{.block_m = 128, .block_n = 128, .num_warps = 8, .num_stages = 2};
  const TileConfig wide{.block_m = 64, .block_n = 128, .num_warps = 8, .num_stages = 3};
  EXPECT_EQ(tile(64, 64, true, ""), narrow);
  EXPECT_EQ(tile(64, 64, false, ""), wide);
  EXPECT_EQ(tile(64, 64, true, "score"), wide);
  EXPECT_EQ(tile(72, 64, true, ""), wide);
  EXPECT_EQ(tile(64, 72, true, ""), wide);
  EXPECT_EQ(tile(128, 128, true, ""), wide);
}

TEST(TileConfig, OfAHopperBackwardThatSplitsRolesHasAsManyStagesAsFit) {
  const auto tile = [](int qk, int v) { return default_tile(spec_of(Direction::backward, {90, 'a'}, qk, v), true); };
  const TileConfig three_stages{.block_m = 64, .block_n = 64, .num_warps = 8, .num_stages = 3};
  const TileConfig two_stages{.block_m = 64, .block_n = 64, .num_warps = 8, .num_stages = 2};
  EXPECT_EQ(tile(136, 128).value(), three_stages);
  EXPECT_EQ(tile(192, 128).value(), three_stages);
  EXPECT_EQ(tile(192, 192).value(), three_stages);
  EXPECT_EQ(tile(200, 200).value(), two_stages);
  EXPECT_EQ(tile(256, 256).value(), two_stages);
}

TEST(Fallbacks, AreARoomierTileThenTwoPassesOfABackwardThenTheOtherFamily) {
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    KernelSpec spec = spec_of(direction, {90, 'a'}, 64, 64);
    spec.family = KernelFamily::hopper;
    spec.tile = default_tile(spec, /*light_mask=*/true).value();
    const auto roomier = fallback_of(spec);
    ASSERT_TRUE(roomier.has_value());
    EXPECT_EQ(roomier->family, KernelFamily::hopper);
    EXPECT_EQ(roomier->tile, default_tile(spec, /*light_mask=*/false).value());
    EXPECT_NE(roomier->tile, spec.tile);
    auto last = fallback_of(*roomier);
    ASSERT_TRUE(last.has_value());
    if (direction == Direction::backward) {
      EXPECT_EQ(last->family, KernelFamily::hopper);
      EXPECT_TRUE(last->two_passes);
      EXPECT_EQ(last->tile, default_tile(*last, /*light_mask=*/false).value());
      last = fallback_of(*last);
      ASSERT_TRUE(last.has_value());
      EXPECT_FALSE(last->two_passes);
    }
    EXPECT_EQ(last->family, KernelFamily::mma);
    EXPECT_FALSE(fallback_of(*last).has_value());
  }
}

TEST(Fallbacks, OfAScoreEndWithASmallTileThatFitsEveryArchitecture) {
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    for (const Arch arch : {Arch{80, 0}, Arch{86, 0}, Arch{90, 'a'}, Arch{120, 0}}) {
      KernelSpec spec = spec_of(direction, arch, 256, 256);
      spec.score = "score * 2";
      spec.tile = default_tile(spec, /*light_mask=*/false).value();
      while (const auto next = fallback_of(spec)) spec = *next;
      EXPECT_EQ(spec.family, KernelFamily::mma);
      EXPECT_EQ(spec.tile.block_n, 32) << to_string(arch);
      EXPECT_TRUE(check_tile(spec).has_value()) << to_string(arch);
    }
  }
}

TEST(QueryGradientShares, ArePanelsOfColumnsWhereRolesAreSplit) {
  for (const auto& [qk, v, panels] : {std::tuple{16, 256, 1}, std::tuple{64, 136, 1}, std::tuple{72, 136, 2},
                                      std::tuple{136, 128, 3}, std::tuple{192, 192, 3}, std::tuple{200, 16, 4}}) {
    KernelSpec spec = spec_of(Direction::backward, {90, 'a'}, qk, v);
    spec.tile = default_tile(spec, true).value();
    const QueryGradientShare share = query_gradient_share(spec);
    EXPECT_EQ(share.columns, 64) << qk;
    EXPECT_EQ(share.keys, 64) << qk;
    EXPECT_EQ(share.sums, panels) << qk;
  }
}

TEST(QueryGradientShares, AreHalvesOfQueriesOfColumnsOrOfKeys) {
  const auto share = [](int qk, int block_m) {
    KernelSpec spec = spec_of(Direction::backward, {90, 'a'}, qk, qk);
    spec.tile = {.block_m = block_m, .block_n = 128, .num_warps = 8, .num_stages = 2};
    return query_gradient_share(spec);
  };
  const auto expect = [](const QueryGradientShare& got, int columns, int keys, int sums) {
    EXPECT_EQ(got.columns, columns);
    EXPECT_EQ(got.keys, keys);
    EXPECT_EQ(got.sums, sums);
  };
  expect(share(40, 128), 48, 128, 2);
  expect(share(64, 64), 64, 64, 1);
  expect(share(72, 64), 64, 128, 2);
  expect(share(128, 64), 64, 128, 2);
}

TEST(TileConfig, LimitsAreThoseOfTheProgrammingGuide) {
  EXPECT_EQ(shared_memory_limit({80, 0}), 163 * kibibyte);
  EXPECT_EQ(shared_memory_limit({86, 0}), 99 * kibibyte);
  EXPECT_EQ(shared_memory_limit({89, 0}), 99 * kibibyte);
  EXPECT_EQ(shared_memory_limit({90, 'a'}), 227 * kibibyte);
  EXPECT_EQ(shared_memory_limit({100, 0}), 227 * kibibyte);
  EXPECT_EQ(shared_memory_limit({120, 0}), 99 * kibibyte);
  EXPECT_EQ(shared_memory_limit({120, 0}), 101376);
}

// F070
TEST(TileConfig, EveryHeadDimFitsEveryArchitecture) {
  for (const Arch arch :
       {Arch{80, 0}, Arch{86, 0}, Arch{89, 0}, Arch{90, 0}, Arch{90, 'a'}, Arch{100, 0}, Arch{120, 0}}) {
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      for (int qk = smallest_head_dim; qk <= largest_head_dim; qk += head_dim_step) {
        for (int v = smallest_head_dim; v <= largest_head_dim; v += head_dim_step) {
          KernelSpec spec = spec_of(direction, arch, qk, v);
          const auto tile = default_tile(spec, true);
          ASSERT_TRUE(tile) << to_string(arch) << " " << qk << "/" << v << ": " << tile.error().message();
          spec.tile = *tile;
          EXPECT_LE(shared_memory_bytes(spec), shared_memory_limit(arch));
          // What the kernels take: whole warps of 16 rows, in one or two column groups.
          EXPECT_EQ(tile->num_warps * rows_per_warp % tile->block_m, 0);
          if (direction == Direction::forward) {
            EXPECT_EQ(tile->num_warps * rows_per_warp, tile->block_m);
          }
        }
      }
    }
  }
}

TEST(TileConfig, SmallHeadDimsOnHopperHaveAThirdWarpgroupUnlessMaskOrScoreTakeRegisters) {
  KernelSpec spec = spec_of(Direction::forward, {90, 'a'}, 64, 64);
  EXPECT_EQ(default_tile(spec, true)->num_warps, 12);
  EXPECT_EQ(default_tile(spec, false)->num_warps, 8);
  spec.score = "score * 2.0";
  EXPECT_EQ(default_tile(spec, true)->num_warps, 8);
  EXPECT_EQ(default_tile(spec_of(Direction::forward, {90, 'a'}, 64, 128), true)->num_warps, 8);
}

TEST(TileConfig, KernelsThatSplitRowsHaveTilesOf128Queries) {
  for (const int head_dim : {16, 64, 96, 128}) {
    KernelSpec spec = spec_of(Direction::forward, {90, 'a'}, head_dim, head_dim);
    ASSERT_TRUE(can_split_rows(spec));
    spec.split_rows = true;
    EXPECT_EQ(default_tile(spec, true)->block_m, split_block_m);
  }
  EXPECT_FALSE(can_split_rows(spec_of(Direction::forward, {90, 'a'}, 192, 192)));
  EXPECT_FALSE(can_split_rows(spec_of(Direction::forward, {80, 0}, 128, 128)));
}

TEST(TileConfig, ASecondQueryTileStandsWhereSharedMemoryHasRoom) {
  const auto shared = [](int qk, int v) {
    KernelSpec spec = spec_of(Direction::forward, {90, 'a'}, qk, v);
    spec.tile = *default_tile(spec, false);
    return std::pair(query_stages(spec), shared_memory_bytes(spec) / 1024);
  };
  EXPECT_EQ(shared(64, 64), (std::pair<int, std::int64_t>(2, 96)));
  EXPECT_EQ(shared(128, 128), (std::pair<int, std::int64_t>(2, 192)));
  EXPECT_EQ(shared(192, 128), (std::pair<int, std::int64_t>(1, 208)));
  EXPECT_EQ(query_stages(spec_of(Direction::forward, {80, 0}, 128, 128)), 1);
}

TEST(TileConfig, RowsAreWorthSplittingIfTheyAreFewAndLong) {
  EXPECT_TRUE(worth_splitting({1, 1, 1, 1, 1024, 64, 64}));
  EXPECT_FALSE(worth_splitting({1, 1, 1, 1, 1023, 64, 64}));
  EXPECT_TRUE(worth_splitting({1, 263, 1, 128, 8192, 64, 64}));
  EXPECT_FALSE(worth_splitting({1, 264, 1, 128, 8192, 64, 64}));
  EXPECT_FALSE(worth_splitting({1, 132, 1, 129, 8192, 64, 64}));
  EXPECT_FALSE(worth_splitting({1, 32, 8, 0, 8192, 64, 64}));
  EXPECT_FALSE(worth_splitting({0, 32, 8, 1, 8192, 64, 64}));
  EXPECT_FALSE(worth_splitting({1 << 30, 1 << 30, 1 << 30, 1 << 30, 1 << 30, 64, 64}));
}

TEST(TileConfig, ManyColumnsOfResultsOnHopperLeaveRegistersForFewerKeysAtATime) {
  for (int qk = smallest_head_dim; qk <= largest_head_dim; qk += head_dim_step) {
    for (int v = smallest_head_dim; v <= largest_head_dim; v += head_dim_step) {
      const auto tile = default_tile(spec_of(Direction::forward, {90, 'a'}, qk, v), true);
      ASSERT_TRUE(tile) << tile.error().message();
      // Of 232: binary32 results and scores, and 16-bit weights, of 64 rows over 128 threads.
      EXPECT_LE(padded_head_dim(v) / 2 + tile->block_n / 2 + tile->block_n / 4, 190) << qk << "/" << v;
    }
  }
  EXPECT_EQ(default_tile(spec_of(Direction::forward, {90, 'a'}, 16, 192), true)->block_n, 112);
  EXPECT_EQ(default_tile(spec_of(Direction::forward, {90, 'a'}, 16, 256), true)->block_n, 80);
  KernelSpec scored = spec_of(Direction::forward, {90, 'a'}, 16, 192);
  scored.score = "score * 2.0";
  EXPECT_EQ(default_tile(scored, true)->block_n, 112);
  scored.head_dim_v = 256;
  EXPECT_EQ(default_tile(scored, true)->block_n, 64);
}

TEST(TileConfig, OtherHeadDimsAreRefusedByName) {
  for (const int head_dim : {0, 8, 12, 17, 100, 252, 264, 512}) {
    const auto qk = default_tile(spec_of(Direction::forward, {90, 'a'}, head_dim, 64), true);
    ASSERT_FALSE(qk) << head_dim;
    EXPECT_EQ(qk.error().code, ErrorCode::unsupported);
    EXPECT_EQ(qk.error().argument, "head_dim_qk");
    EXPECT_EQ(qk.error().got, std::to_string(head_dim));
    const auto v = default_tile(spec_of(Direction::backward, {90, 0}, 64, head_dim), true);
    ASSERT_FALSE(v) << head_dim;
    EXPECT_EQ(v.error().argument, "head_dim_v");
  }
}

TEST(TileConfig, PaddingRoundsUpToTheGranule) {
  EXPECT_EQ(padded_head_dim(16), 16);
  EXPECT_EQ(padded_head_dim(24), 32);
  EXPECT_EQ(padded_head_dim(72), 80);
  EXPECT_EQ(padded_head_dim(256), 256);
}

}  // namespace
}  // namespace flashspan::kernel
