// The workspace's parts: how large, where, and for which masks lists are shared.
#include "runtime/cuda/workspace_layout.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <utility>

#include "tests/cuda/call_fixture.hpp"
#include "tests/cuda/made_up_address.hpp"

namespace flashspan::cuda {
namespace {

WorkspaceLayout layout_of(const SmallCall& call) {
  return workspace_layout(call.spec, call.args.shape, plan_size(call.spec, call.args));
}

std::int64_t part_end(const WorkspacePart& part) { return part.offset + part.bytes; }

TEST(Workspace, SumsOfScoreGradientsStandBehindAllElseAndOnlyWhereDeterministic) {
  SmallCall call(Direction::backward);
  call.args.score_gradients = {TensorView::contiguous(nullptr, DType::f32, {6, 300}),
                               TensorView::contiguous(nullptr, DType::f32, {7})};
  EXPECT_EQ(score_sums(call.args), 0);
  call.args.deterministic = true;
  EXPECT_EQ(score_sums(call.args), 6 * 300 + 7);
  const PlanSize size = plan_size(call.spec, call.args);
  const WorkspaceLayout without = workspace_layout(call.spec, call.args.shape, size);
  const WorkspaceLayout with = workspace_layout(call.spec, call.args.shape, size, score_sums(call.args));
  EXPECT_EQ(with.score_sums.bytes, (6 * 300 + 7) * 8);
  EXPECT_GE(with.score_sums.offset, part_end(with.delta));
  EXPECT_GE(with.bytes, part_end(with.score_sums));
  EXPECT_EQ(with.delta.offset, without.delta.offset);
  EXPECT_EQ(without.score_sums.bytes, 0);
}

TEST(PlanSizes, ShareOneListWhenTheMaskDependsOnNeitherBatchNorHead) {
  const SmallCall call(Direction::forward);
  const PlanSize size = plan_size(call.spec, call.args);
  EXPECT_EQ(size.batch, 1);
  EXPECT_EQ(size.heads, 1);
  EXPECT_EQ(size.query_tiles, 2);  // 100 / 64
  EXPECT_EQ(size.key_tiles, 2);    // 200 / 128
}

TEST(PlanSizes, HaveAListPerBatchOrPerQueryHeadWhenTheMaskDependsOnIt) {
  const SmallCall by_batch(Direction::forward, document_program(mask::Variable::b));
  EXPECT_EQ(plan_size(by_batch.spec, by_batch.args).batch, 2);
  EXPECT_EQ(plan_size(by_batch.spec, by_batch.args).heads, 1);
  const SmallCall by_head(Direction::forward, document_program(mask::Variable::h));
  EXPECT_EQ(plan_size(by_head.spec, by_head.args).batch, 1);
  EXPECT_EQ(plan_size(by_head.spec, by_head.args).heads, 6);
}

TEST(Workspace, OfAForwardHoldsTheListsOfTheQueries) {
  const SmallCall call(Direction::forward, document_program(mask::Variable::h));
  const WorkspaceLayout layout = layout_of(call);
  EXPECT_EQ(layout.by_query.counts.bytes, 6 * 2 * 4);
  EXPECT_EQ(layout.by_query.entries.bytes, 6 * 2 * 2 * 8);
  EXPECT_EQ(layout.by_query.order.bytes, 6 * 2 * 4);
  EXPECT_EQ(layout.by_key.counts.bytes + layout.by_key.entries.bytes + layout.by_key.order.bytes, 0);
  EXPECT_EQ(layout.bit_slots, 6 * 2 * 2);
  EXPECT_EQ(layout.query_bits.bytes, 6 * 2 * 2 * 64 * 4 * 4);
  EXPECT_EQ(layout.key_bits.bytes, 0);
  EXPECT_EQ(layout.undecided.bytes, 6 * 2 * 4);
  EXPECT_EQ(layout.shares.bytes, 8);
  EXPECT_EQ(layout.counters.bytes, (2 + 6 * (2 + 1)) * 4) << "a group of rows by query";
  EXPECT_EQ(layout.delta.bytes, 0);
}

TEST(Workspace, OfAHopperBackwardPadsRowsToTilesAndHoldsTheSumsOfTheQueryGradient) {
  SmallCall call(Direction::backward);
  call.spec.family = kernel::KernelFamily::hopper;
  call.spec.tile = {.block_m = 64, .block_n = 128, .num_warps = 8, .num_stages = 2};
  call.spec.head_dim_qk = 96;
  call.set_shape({2, 6, 3, 100, 200, 96, 32});
  const WorkspaceLayout layout = layout_of(call);
  EXPECT_EQ(layout.delta.bytes, 2 * 6 * 128 * 4);
  EXPECT_EQ(layout.shifted_lse.bytes, 2 * 6 * 128 * 4);
  EXPECT_EQ(layout.query_gradient_sums.bytes, 2 * 6 * 128 * 128 * 4) << "96 columns stand in two panels of 64";
  for (const auto lowering : {mask::LoweringKind::expression, mask::LoweringKind::bit_tiles}) {
    call.spec.lowering = lowering;
    EXPECT_EQ(layout_of(call).bit_slots, 2 * 2);
  }
  EXPECT_EQ(layout_of(call).key_bits.bytes, 2 * 2 * 128 * 4 * 4) << "a row of words for each key";
  EXPECT_EQ(layout_of(call).query_bits.bytes, 0);
}

TEST(Workspace, OfABackwardHasRoomForBitsWhereTheKernelReadsThem) {
  SmallCall call(Direction::backward);
  call.spec.lowering = mask::LoweringKind::expression;
  call.spec.family = kernel::KernelFamily::mma;
  EXPECT_EQ(layout_of(call).bit_slots, 0) << "it evaluates every pair itself";
  call.spec.family = kernel::KernelFamily::hopper;
  EXPECT_GT(layout_of(call).bit_slots, 0);
  call.spec.lowering = mask::LoweringKind::column_bounds;
  EXPECT_EQ(layout_of(call).bit_slots, 0) << "bounds are words already";
}

TEST(Workspace, OfAHopperBackwardThatSplitsRolesHoldsSumsOfWholePanels) {
  SmallCall call(Direction::backward);
  call.spec.family = kernel::KernelFamily::hopper;
  call.spec.tile = {.block_m = 64, .block_n = 64, .num_warps = 8, .num_stages = 3};
  call.spec.head_dim_qk = 136;
  call.spec.head_dim_v = 32;
  call.set_shape({2, 6, 3, 100, 200, 136, 32});
  EXPECT_EQ(layout_of(call).delta.bytes, 2 * 6 * 128 * 4);
  EXPECT_EQ(layout_of(call).query_gradient_sums.bytes, 2 * 6 * 128 * 192 * 4) << "136 columns stand in three panels";
}

TEST(Workspace, OfABackwardInTwoPassesHoldsBitsBothWaysAndNoSums) {
  SmallCall call(Direction::backward);
  call.spec.family = kernel::KernelFamily::hopper;
  call.spec.two_passes = true;
  call.spec.lowering = mask::LoweringKind::column_bounds;
  call.spec.tile = {.block_m = 128, .block_n = 128, .num_warps = 8, .num_stages = 2};
  call.set_shape({2, 6, 3, 100, 200, 96, 32});
  const WorkspaceLayout layout = layout_of(call);
  EXPECT_EQ(layout.bit_slots, 1 * 2);
  EXPECT_EQ(layout.query_bits.bytes, 1 * 2 * 128 * 4 * 4);
  EXPECT_EQ(layout.key_bits.bytes, 1 * 2 * 128 * 4 * 4);
  EXPECT_EQ(layout.delta.bytes, 2 * 6 * 128 * 4);
  EXPECT_EQ(layout.shifted_lse.bytes, 2 * 6 * 128 * 4);
  EXPECT_EQ(layout.query_gradient_sums.bytes, 0);
}

TEST(Workspace, OfABackwardHoldsBothListsAndDelta) {
  SmallCall call(Direction::backward, document_program(mask::Variable::b));
  call.set_shape({2, 6, 3, 1000, 600, 64, 32});
  const WorkspaceLayout layout = layout_of(call);
  EXPECT_EQ(layout.by_query.counts.bytes, 2 * 16 * 4);
  EXPECT_EQ(layout.by_query.entries.bytes, 2 * 16 * 5 * 8);
  EXPECT_EQ(layout.by_key.counts.bytes, 2 * 5 * 4);
  EXPECT_EQ(layout.by_key.entries.bytes, 2 * 5 * 16 * 8);
  EXPECT_EQ(layout.by_key.order.bytes, 2 * 5 * 4);
  EXPECT_EQ(layout.undecided.bytes, 2 * 2 * 2 * 4);
  EXPECT_EQ(layout.delta.bytes, 2 * 6 * 1000 * 4);
}

TEST(Workspace, OfASplitForwardHoldsPartialResultsAndTickets) {
  SmallCall call(Direction::forward);
  call.spec.family = kernel::KernelFamily::hopper;
  call.spec.split_rows = true;
  call.spec.tile = {128, 128, 8, 2};
  call.set_shape({2, 6, 3, 20, 8192, 64, 32});
  WorkspaceLayout layout = layout_of(call);
  EXPECT_EQ(layout.split.rows, 12);
  EXPECT_EQ(layout.split.portions, 12 * 16) << "64 tiles of keys, at least four a portion";
  EXPECT_EQ(layout.split.warps, 2) << "of 16 rows";
  EXPECT_EQ(layout.partials.bytes, 12 * 16 * 2 * (16 * 32 + 32 * 4) * 4);
  EXPECT_EQ(layout.tickets.bytes, 12 * 2 * 4);
  call.set_shape({2, 6, 3, 1000, 32768, 64, 32});
  layout = layout_of(call);
  EXPECT_EQ(layout.split.portions, 264 + 96) << "two a processor, and what rows leave over";
  EXPECT_EQ(layout.split.warps, 8);
  call.spec.split_rows = false;
  layout = layout_of(call);
  EXPECT_EQ(layout.split.portions + layout.partials.bytes + layout.tickets.bytes, 0);
}

TEST(Workspace, OfBitTilesIsAtMostHalfOfTheQueryAndOfFewHeadsSixteenMebibytes) {
  SmallCall call(Direction::forward);
  constexpr std::int64_t mebibyte = std::int64_t{1} << 20;
  for (const auto& [heads, bytes] : {std::pair{6, 16 * mebibyte}, {24, 48 * mebibyte}}) {
    call.set_shape({1, heads, 3, 32768, 32768, 64, 32});
    EXPECT_EQ(most_bit_bytes(call.args.shape, call.spec.dtype), bytes);
    const WorkspaceLayout layout = layout_of(call);
    EXPECT_EQ(layout.query_bits.bytes, bytes);
    EXPECT_EQ(layout.bit_slots, bytes / 1024);
    EXPECT_LT(layout.bytes, bytes + 2 * mebibyte);
  }
}

TEST(Workspace, OfASequenceOf32768With4096HiddenHasBitsForEveryTile) {
  SmallCall call(Direction::forward);
  call.spec.family = kernel::KernelFamily::hopper;
  call.spec.lowering = mask::LoweringKind::column_bounds;
  call.spec.tile = {128, 128, 8, 2};
  call.set_shape({1, 32, 32, 32768, 32768, 128, 128});
  EXPECT_EQ(layout_of(call).bit_slots, 256 * 256);
}

TEST(Workspace, BitTilesOfAnyPlanHaveNumbersThatAnEntryHolds) {
  SmallCall call(Direction::forward);
  call.set_shape({1, 32, 32, std::int64_t{1} << 24, std::int64_t{1} << 24, 128, 128});
  EXPECT_EQ(layout_of(call).bit_slots, (1 << 23) - 1);
}

TEST(Workspace, OfAForwardThatTakesRangesOfRowsHasNoBits) {
  SmallCall call(Direction::forward);
  call.spec.lowering = mask::LoweringKind::row_ranges;
  call.set_shape({1, 6, 3, 1000, 1000, 64, 32});
  EXPECT_GT(layout_of(call).bit_slots, 0) << "the mma family reads bits instead";
  call.spec.family = kernel::KernelFamily::hopper;
  call.spec.tile = {128, 128, 8, 2};
  EXPECT_EQ(layout_of(call).bit_slots, 0);
  EXPECT_EQ(layout_of(call).query_bits.bytes, 0);
}

TEST(Workspace, PartsAreAlignedDisjointAndWithinTheSize) {
  SmallCall call(Direction::backward, document_program(mask::Variable::h));
  for (const std::int64_t length : {1, 17, 127, 128, 129, 1000, 4096}) {
    call.set_shape({3, 6, 3, length, 2 * length + 5, 64, 32});
    const WorkspaceLayout layout = layout_of(call);
    std::int64_t end = 0;
    for (const WorkspacePart& part :
         {layout.by_query.counts, layout.by_query.entries, layout.by_query.order, layout.by_key.counts,
          layout.by_key.entries, layout.by_key.order, layout.key_bits, layout.undecided, layout.shares, layout.counters,
          layout.partials, layout.tickets, layout.delta}) {
      EXPECT_EQ(part.offset % 256, 0);
      EXPECT_GE(part.offset, end);
      end = part_end(part);
    }
    // Whatever the alignment of the caller's pointer, the last part ends within the bytes that were asked for.
    for (const std::uintptr_t start : {std::uintptr_t{0x10000}, std::uintptr_t{0x10001}, std::uintptr_t{0x100ff}}) {
      const auto address = reinterpret_cast<std::uintptr_t>(part_address(made_up_address(start), layout.delta));
      EXPECT_EQ(address % 256, 0u);
      EXPECT_GE(address, start);
      EXPECT_LE(static_cast<std::int64_t>(address - start) + layout.delta.bytes, layout.bytes);
    }
  }
}

TEST(Workspace, OfAForwardWithoutAPlanIsNothing) {
  SmallCall call(Direction::forward);
  call.spec.lowering = mask::LoweringKind::none;
  EXPECT_EQ(layout_of(call).bytes, 0);
}

TEST(Workspace, OfABackwardWithoutAPlanIsDelta) {
  SmallCall call(Direction::backward);
  call.spec.lowering = mask::LoweringKind::none;
  const WorkspaceLayout layout = layout_of(call);
  EXPECT_EQ(layout.delta.offset, 0);
  EXPECT_EQ(layout.delta.bytes, 2 * 6 * 100 * 4);
  EXPECT_EQ(layout.by_query.entries.bytes, 0);
  EXPECT_EQ(layout.by_key.entries.bytes, 0);
}

TEST(Workspace, OfAnEmptyProblemIsNothing) {
  SmallCall call(Direction::backward, document_program(mask::Variable::b));
  call.set_shape({0, 6, 3, 100, 200, 64, 32});
  EXPECT_EQ(layout_of(call).bytes, 0);
}

}  // namespace
}  // namespace flashspan::cuda
