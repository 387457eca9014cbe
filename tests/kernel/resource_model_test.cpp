// What a tile takes of a multiprocessor, which tiles are offered, and in which order.
#include "codegen/kernel/resource_model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "codegen/kernel/arch_limits.hpp"
#include "codegen/kernel/tile_config.hpp"

namespace flashspan::kernel {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::array archs{Arch{80, 0}, Arch{86, 0}, Arch{89, 0}, Arch{90, 'a'}, Arch{100, 0}, Arch{120, 0}};

KernelSpec spec_of(Direction direction, Arch arch, int head_dim, FamilyNeeds needs = {}) {
  KernelSpec spec;
  spec.direction = direction;
  spec.target = {DeviceKind::cuda, arch};
  spec.dtype = DType::bf16;
  spec.head_dim_qk = spec.head_dim_v = head_dim;
  spec.family = choose_family(spec, needs).family;
  spec.two_passes = takes_two_passes(spec, needs);
  return spec;
}

KernelSpec with(KernelSpec spec, const TileConfig& tile) {
  spec.tile = tile;
  return spec;
}

std::vector<TileConfig> offered(const KernelSpec& spec, bool light_mask = true) {
  std::vector<TileConfig> tiles;
  for (const ModelledTile& modelled : modelled_tiles(spec, light_mask)) tiles.push_back(modelled.tile);
  return tiles;
}

TEST(ArchLimits, AreThoseOfTheProgrammingGuide) {
  const auto expect = [](Arch arch, int shared_kib, int blocks, int warps) {
    const ArchLimits limits = arch_limits(arch);
    EXPECT_EQ(limits.shared_bytes, shared_kib * 1024) << to_string(arch);
    EXPECT_EQ(limits.shared_bytes_per_block, limits.shared_bytes - reserved_shared_bytes) << to_string(arch);
    EXPECT_EQ(limits.blocks, blocks) << to_string(arch);
    EXPECT_EQ(limits.warps, warps) << to_string(arch);
  };
  expect({80, 0}, 164, 32, 64);
  expect({86, 0}, 100, 16, 48);
  expect({89, 0}, 100, 24, 48);
  expect({90, 'a'}, 228, 32, 64);
  expect({100, 'a'}, 228, 32, 64);
  expect({120, 0}, 100, 24, 48);
  expect({999, 0}, 100, 16, 48);
}

TEST(ResidentBlocks, AreLimitedByWhateverRunsOutFirst) {
  const ArchLimits hopper = arch_limits({90, 'a'});
  EXPECT_EQ(resident_blocks(hopper, 128, 32, 0), 16) << "64 warps";
  EXPECT_EQ(resident_blocks(hopper, 32, 16, 0), 32) << "blocks";
  EXPECT_EQ(resident_blocks(hopper, 128, 255, 0), 2) << "registers, 256 a thread";
  EXPECT_EQ(resident_blocks(hopper, 128, 32, 113 * 1024), 2) << "shared memory, 1 KiB more a block";
  EXPECT_EQ(resident_blocks(hopper, 128, 32, 114 * 1024), 1);
  EXPECT_EQ(resident_blocks(hopper, 128, 32, 227 * 1024 + 1), 0);
  EXPECT_EQ(resident_blocks(hopper, 1056, 16, 0), 0);
}

TEST(RegisterLimit, IsWhatABlockLeavesEachOfItsThreads) {
  EXPECT_EQ(register_limit(128), 255);
  EXPECT_EQ(register_limit(256), 255);
  EXPECT_EQ(register_limit(384), 168) << "170, in steps of 8";
  EXPECT_EQ(register_limit(512), 128);
  EXPECT_EQ(register_limit(1024), 64);
}

TEST(ResourceModel, CountsAForwardOfTheMmaFamily) {
  const KernelSpec spec = with(spec_of(Direction::forward, {80, 0}, 64), {128, 64, 8, 2});
  const Resources resources = resources_of(spec, true);
  EXPECT_EQ(resources.threads, 256);
  EXPECT_EQ(resources.shared_bytes, (128 * 72 + 2 * 64 * 144) * 2);
  EXPECT_EQ(resources.shared_limit, 163 * 1024);
  EXPECT_EQ(resources.accumulators, 32 + 32);
  EXPECT_EQ(resources.register_limit, 255);
  EXPECT_EQ(resources.registers, 64 + 88);
  EXPECT_EQ(resources.blocks, 1) << "two would need registers for 512 threads";
  EXPECT_DOUBLE_EQ(resources.occupancy, 8.0 / 64);
}

TEST(ResourceModel, CountsAForwardOfTheHopperFamily) {
  const KernelSpec spec = with(spec_of(Direction::forward, {90, 'a'}, 128), {128, 128, 8, 2});
  const Resources resources = resources_of(spec, true);
  EXPECT_EQ(resources.threads, 384) << "a warpgroup that copies";
  EXPECT_EQ(resources.accumulators, 64 + 32 + 64);
  EXPECT_EQ(resources.register_limit, 232);
  EXPECT_EQ(resources.blocks, 1);
  EXPECT_EQ(resources_of(with(spec, {192, 64, 12, 2}), true).register_limit, 160);
}

TEST(ResourceModel, KnowsThatColumnGroupsShareTheResultsOfABackward) {
  const KernelSpec spec = spec_of(Direction::backward, {80, 0}, 128);
  EXPECT_EQ(resources_of(with(spec, {64, 64, 4, 1}), true).accumulators, 128 + 16);
  EXPECT_EQ(resources_of(with(spec, {64, 64, 8, 1}), true).accumulators, 64 + 16);
}

TEST(ResourceModel, OffersNothingThatCannotBeLaunched) {
  for (const Arch arch : archs) {
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      for (const bool deterministic : {false, true}) {
        for (int head_dim = smallest_head_dim; head_dim <= largest_head_dim; head_dim += head_dim_step) {
          const KernelSpec spec = spec_of(direction, arch, head_dim, {.deterministic = deterministic});
          for (const ModelledTile& modelled : modelled_tiles(spec, true)) {
            const KernelSpec tiled = with(spec, modelled.tile);
            EXPECT_GE(modelled.resources.blocks, 1) << tiled.summary();
            EXPECT_LE(shared_memory_bytes(tiled), shared_memory_limit(arch)) << tiled.summary();
            EXPECT_LE(modelled.resources.fewest_registers, modelled.resources.register_limit) << tiled.summary();
            EXPECT_TRUE(check_tile(tiled)) << tiled.summary();
          }
        }
      }
    }
  }
}

TEST(ResourceModel, OffersTheDefaultTileAmongOthersOfTheUsualHeadDims) {
  for (const Arch arch : archs) {
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      for (const int head_dim : {64, 96, 128}) {
        const KernelSpec spec = spec_of(direction, arch, head_dim);
        const std::vector<TileConfig> tiles = offered(spec);
        EXPECT_THAT(tiles, Contains(default_tile(spec, true).value())) << spec.summary();
        EXPECT_GE(tiles.size(), 2U) << spec.summary();
      }
    }
  }
}

TEST(LegalTiles, HoldEveryDefaultTile) {
  for (const Arch arch : archs) {
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      for (const bool deterministic : {false, true}) {
        for (const bool light_mask : {false, true}) {
          for (int head_dim = smallest_head_dim; head_dim <= largest_head_dim; head_dim += head_dim_step) {
            const KernelSpec spec = spec_of(direction, arch, head_dim, {.deterministic = deterministic});
            const auto checked = check_tile(with(spec, default_tile(spec, light_mask).value()));
            EXPECT_TRUE(checked) << spec.summary() << ": " << checked.error().message();
          }
        }
      }
    }
  }
}

TEST(ResourceModel, HasATileForEveryHeadDimOfAnArchitectureThatNobodyKnows) {
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    for (int head_dim = smallest_head_dim; head_dim <= largest_head_dim; head_dim += head_dim_step) {
      EXPECT_FALSE(offered(spec_of(direction, {150, 0}, head_dim)).empty()) << to_string(direction) << head_dim;
    }
  }
}

TEST(ResourceModel, OffersFewerTilesToMasksThatTakeRegisters) {
  const KernelSpec spec = spec_of(Direction::forward, {90, 'a'}, 64);
  EXPECT_THAT(offered(spec, true), Contains(TileConfig{192, 128, 12, 2}));
  EXPECT_THAT(offered(spec, false), Not(Contains(TileConfig{192, 128, 12, 2})));
}

TEST(ResourceModel, OrdersTilesByCostWhateverTheOrderTheyAreMadeIn) {
  const std::vector<ModelledTile> tiles = modelled_tiles(spec_of(Direction::forward, {80, 0}, 64), true);
  EXPECT_TRUE(std::ranges::is_sorted(tiles, {}, &ModelledTile::cost));
  EXPECT_GT(tiles.front().tile.num_stages, 1);
}

TEST(ResourceModel, PrefersSmallTilesWhereLargeOnesWouldBeMostlyPadding) {
  const KernelSpec spec = spec_of(Direction::forward, {80, 0}, 64);
  CallSize few_queries;
  few_queries.shape.q_len = 48;
  EXPECT_EQ(modelled_tiles(spec, true, few_queries).front().tile.block_m, 64);
}

/// The table of sm_90a was measured.
TEST(ResourceModel, ExpectsTheDefaultsOfSm90aAmongItsFirstFive) {
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    for (const bool deterministic : {false, true}) {
      for (const int head_dim : {64, 96, 128, 192, 256}) {
        const KernelSpec spec = spec_of(direction, {90, 'a'}, head_dim, {.deterministic = deterministic});
        std::vector<TileConfig> first = offered(spec);
        first.resize(std::min<std::size_t>(first.size(), 5));
        EXPECT_THAT(first, Contains(default_tile(spec, true).value())) << spec.summary();
      }
    }
  }
}

TEST(ResourceModel, CountsProductsThatColumnGroupsRepeat) {
  const KernelSpec narrow = spec_of(Direction::backward, {80, 0}, 64);
  const auto cost = [&narrow](int warps) {
    const KernelSpec tiled = with(narrow, {128, 128, warps, 1});
    return predicted_cost(tiled, resources_of(tiled, true), {});
  };
  EXPECT_LT(cost(8), cost(16));
}

TEST(LegalTiles, OfKernelsThatSplitRowsHave128Queries) {
  KernelSpec spec = spec_of(Direction::forward, {90, 'a'}, 64);
  spec.split_rows = true;
  for (const TileConfig& tile : legal_tiles(spec)) EXPECT_EQ(tile.block_m, split_block_m);
}

TEST(CheckTile, NamesTheTilesThatAKernelTakes) {
  const auto refused = check_tile(with(spec_of(Direction::forward, {90, 'a'}, 64), {64, 64, 4, 2}));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::bad_argument);
  EXPECT_EQ(refused.error().argument, "tile");
  EXPECT_EQ(refused.error().got, "64x64, 4 warps, 2 stages");
  EXPECT_THAT(refused.error().takes, HasSubstr("128x128, 8 warps, 2 stages"));
}

TEST(CheckTile, RefusesWhatTheArchitectureHasNoSharedMemoryFor) {
  const TileConfig large{128, 128, 8, 3};
  EXPECT_TRUE(check_tile(with(spec_of(Direction::forward, {80, 0}, 64), large)));
  const auto refused = check_tile(with(spec_of(Direction::forward, {86, 0}, 64), large));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().takes, HasSubstr("101376 bytes of shared memory on sm_86"));
}

}  // namespace
}  // namespace flashspan::kernel
