// Every supported head dim has a tile that fits every architecture, and what does not fit is a named error.
#include "codegen/kernel/tile_config.hpp"

#include <gtest/gtest.h>

namespace flashspan::kernel {
namespace {

constexpr std::int64_t kibibyte = 1024;
constexpr int rows_per_warp = 16;

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
  for (const int arch : {80, 86, 89, 90, 100, 120}) {
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      for (int qk = smallest_head_dim; qk <= largest_head_dim; qk += head_dim_step) {
        for (int v = smallest_head_dim; v <= largest_head_dim; v += head_dim_step) {
          const auto tile = default_tile(direction, {DeviceKind::cuda, {arch, 0}}, DType::bf16, qk, v);
          ASSERT_TRUE(tile) << arch << " " << qk << "/" << v << ": " << tile.error().message();
          EXPECT_LE(shared_memory_bytes(direction, DType::bf16, qk, v, *tile), shared_memory_limit({arch, 0}));
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

TEST(TileConfig, OtherHeadDimsAreRefusedByName) {
  for (const int head_dim : {0, 8, 12, 17, 100, 252, 264, 512}) {
    const auto qk = default_tile(Direction::forward, {DeviceKind::cuda, {90, 0}}, DType::bf16, head_dim, 64);
    ASSERT_FALSE(qk) << head_dim;
    EXPECT_EQ(qk.error().code, ErrorCode::unsupported);
    EXPECT_EQ(qk.error().argument, "head_dim_qk");
    EXPECT_EQ(qk.error().got, std::to_string(head_dim));
    const auto v = default_tile(Direction::backward, {DeviceKind::cuda, {90, 0}}, DType::bf16, 64, head_dim);
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
