// How many blocks every kernel gets, up to the limits of a launch.
#include "runtime/cuda/launch_grids.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda/call_fixture.hpp"

namespace flashspan::cuda {
namespace {

Result<LaunchGrids> grids_of(const SmallCall& call) {
  return launch_grids(call.spec, call.args.shape, plan_size(call.spec, call.args));
}

TEST(LaunchGridsOf, AForwardCountQueryTilesHeadsAndBatches) {
  const SmallCall call(Direction::forward);
  const auto grids = grids_of(call);
  ASSERT_TRUE(grids);
  EXPECT_EQ(grids->plan_tiles, 2 * 2) << "a block a tile";
  EXPECT_EQ(grids->forward, 2 * 6 * 2);
  EXPECT_EQ(grids->backward_delta, 0);
  EXPECT_EQ(grids->backward_sink, 0);
  EXPECT_EQ(grids->backward_dq, 0);
  EXPECT_EQ(grids->backward_dkdv, 0);
}

TEST(LaunchGridsOf, ABackwardCountRowsQueryTilesAndKeyTilesOfKeyHeads) {
  SmallCall call(Direction::backward, document_program(mask::Variable::h));
  call.set_shape({2, 6, 3, 101, 600, 64, 32});
  const auto grids = grids_of(call);
  ASSERT_TRUE(grids);
  EXPECT_EQ(grids->plan_tiles, 6 * 2 * 5);
  EXPECT_EQ(grids->forward, 0);
  EXPECT_EQ(grids->backward_delta, 152);  // ceil(2 * 6 * 101 / 8)
  EXPECT_EQ(grids->backward_sink, 6);
  EXPECT_EQ(grids->backward_dq, 2 * 6 * 2);
  EXPECT_EQ(grids->backward_dkdv, 2 * 3 * 5);
}

TEST(LaunchGridsOf, ACallWithoutAPlanLaunchNoPlanner) {
  SmallCall call(Direction::backward);
  call.spec.lowering = mask::LoweringKind::none;
  const auto grids = grids_of(call);
  ASSERT_TRUE(grids);
  EXPECT_EQ(grids->plan_tiles, 0);
  EXPECT_EQ(grids->backward_dkdv, 2 * 3 * 2);
}

TEST(LaunchGridsOf, APlanCountTilesUpToWhatRunsAtOnce) {
  SmallCall call(Direction::backward, document_program(mask::Variable::b));
  call.set_shape({2, 6, 3, 64 * 17, 128 * 9, 64, 32});  // 17 x 9 tiles
  const auto grids = grids_of(call);
  ASSERT_TRUE(grids);
  EXPECT_EQ(grids->plan_tiles, 2 * 17 * 9);
  call.set_shape({2, 6, 3, 64 * 17, 128 * 90, 64, 32});
  EXPECT_EQ(grids_of(call)->plan_tiles, most_plan_blocks) << "of 2 * 17 * 90 tiles";
}

TEST(LaunchGridsOf, NoQueriesStillWriteTheGradientsOfTheKeys) {
  SmallCall call(Direction::backward);
  call.set_shape({2, 6, 3, 0, 200, 64, 32});
  const auto grids = grids_of(call);
  ASSERT_TRUE(grids);
  EXPECT_EQ(grids->plan_tiles, 1) << "two rows of key tiles without a tile, one group";
  EXPECT_EQ(grids->backward_delta, 0);
  EXPECT_EQ(grids->backward_dq, 0);
  EXPECT_EQ(grids->backward_dkdv, 2 * 3 * 2);
}

TEST(LaunchGridsOf, NoKeysStillWriteOutputAndQueryGradient) {
  SmallCall forward(Direction::forward);
  forward.set_shape({2, 6, 3, 100, 0, 64, 32});
  EXPECT_EQ(grids_of(forward)->forward, 2 * 6 * 2);
  EXPECT_EQ(grids_of(forward)->plan_tiles, 1);
  SmallCall backward(Direction::backward);
  backward.set_shape({2, 6, 3, 100, 0, 64, 32});
  EXPECT_EQ(grids_of(backward)->backward_dq, 2 * 6 * 2);
  EXPECT_EQ(grids_of(backward)->plan_tiles, 1);
  EXPECT_EQ(grids_of(backward)->backward_dkdv, 0);
}

TEST(LaunchGridsOf, NoBatchesLaunchNothingAtAll) {
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    SmallCall call(direction);
    call.set_shape({0, 6, 3, 100, 200, 64, 32});
    const auto grids = grids_of(call);
    ASSERT_TRUE(grids);
    EXPECT_EQ(grids->plan_tiles + grids->forward + grids->backward_delta + grids->backward_dq + grids->backward_dkdv,
              0);
  }
}

TEST(LaunchGridsOf, TheLargestGridAreStillServed) {
  SmallCall call(Direction::forward);
  call.args.shape = {2147483647, 1, 1, 64, 1, 64, 32};
  const auto grids = grids_of(call);
  ASSERT_TRUE(grids) << grids.error().message();
  EXPECT_EQ(grids->forward, 2147483647);
}

TEST(LaunchGridsOf, MoreThanALaunchTakesAreRefusedByName) {
  SmallCall call(Direction::forward);
  call.args.shape = {2147483647, 1, 1, 65, 1, 64, 32};
  const auto forward = grids_of(call);
  ASSERT_FALSE(forward);
  EXPECT_EQ(forward.error().code, ErrorCode::unsupported);
  EXPECT_EQ(forward.error().argument, "grid of attention_forward");

  SmallCall backward(Direction::backward);
  backward.args.shape = {1 << 20, 1 << 10, 1, 1 << 30, 1, 64, 32};
  EXPECT_FALSE(grids_of(backward));
  backward.args.shape = {1 << 20, 1 << 15, 1, 1, 1, 64, 32};
  const auto keys = grids_of(backward);
  ASSERT_FALSE(keys);
  EXPECT_EQ(keys.error().argument, "grid of attention_backward_delta");
}

TEST(LaunchGridsOf, MoreTilesThanAPlanCountsAreRefusedByName) {
  SmallCall call(Direction::forward);
  call.args.shape = {1, 1, 1, 64 << 18, std::int64_t{128} << 17, 64, 32};  // 2^15 * 2^14 patches
  EXPECT_TRUE(grids_of(call));
  call.args.shape.kv_len += 1;
  const auto grids = grids_of(call);
  ASSERT_FALSE(grids);
  EXPECT_EQ(grids.error().code, ErrorCode::unsupported);
  EXPECT_EQ(grids.error().argument, "tile plan");
  call.spec.lowering = mask::LoweringKind::none;
  EXPECT_TRUE(grids_of(call)) << "no plan";
}

TEST(LaunchGridsOf, SizesPast32BitsAreRefusedByName) {
  SmallCall call(Direction::forward);
  call.args.shape.batch = std::int64_t{1} << 31;
  const auto grids = grids_of(call);
  ASSERT_FALSE(grids);
  EXPECT_EQ(grids.error().code, ErrorCode::unsupported);
  EXPECT_EQ(grids.error().argument, "batch");
}

}  // namespace
}  // namespace flashspan::cuda
