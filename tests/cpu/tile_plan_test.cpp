// The plan visits exactly the tiles that hold a visible pair, in both directions.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "attention_run.hpp"
#include "oracle/random_numbers.hpp"

namespace flashspan::cpu_test {
namespace {

using oracle::Index;

struct PlanCase {
  const char* text;
  oracle::Visible visible;
  Index batches, heads;  // that the mask tells apart
};

VisitedTiles count_by_pairs(const AttentionShape& shape, const PlanCase& mask, Index block) {
  VisitedTiles tiles;
  for (Index plan = 0; plan < mask.batches * mask.heads; ++plan) {
    for (Index q0 = 0; q0 < shape.q_len; q0 += block) {
      for (Index k0 = 0; k0 < shape.kv_len; k0 += block) {
        Index seen = 0;
        const Index q1 = std::min(q0 + block, shape.q_len);
        const Index k1 = std::min(k0 + block, shape.kv_len);
        for (Index q = q0; q < q1; ++q) {
          for (Index k = k0; k < k1; ++k) seen += mask.visible(plan / mask.heads, plan % mask.heads, q, k) ? 1 : 0;
        }
        tiles.visited += seen > 0 ? 1 : 0;
        tiles.partial += seen > 0 && seen < (q1 - q0) * (k1 - k0) ? 1 : 0;
      }
    }
  }
  return tiles;
}

TEST(TilePlan, VisitsExactlyTheTilesWithAVisiblePair) {
  const AttentionShape shape{2, 3, 3, 310, 405, 16, 16};
  const auto document_of = [](Index i) { return i * i / 9000; };
  const auto place_of = [](Index i) { return i * 211 % 405; };
  std::vector<std::int32_t> document(405);
  std::vector<std::int32_t> shuffled(405);
  for (std::size_t i = 0; i < document.size(); ++i) {
    document[i] = static_cast<std::int32_t>(document_of(static_cast<Index>(i)));
    shuffled[i] = static_cast<std::int32_t>(place_of(static_cast<Index>(i)));
  }
  const std::vector<NamedData> tensors{{"doc", TensorView::contiguous(document.data(), DType::i32, {405})},
                                       {"at", TensorView::contiguous(shuffled.data(), DType::i32, {405})}};
  const std::vector<PlanCase> cases{
      {"q >= k", [](Index, Index, Index q, Index k) { return q >= k; }, 1, 1},
      {"(q - 40 <= k) & (k <= q)", [](Index, Index, Index q, Index k) { return q - 40 <= k && k <= q; }, 1, 1},
      {"(doc[q] == doc[k]) & (q >= k)",
       [&](Index, Index, Index q, Index k) { return document_of(q) == document_of(k) && q >= k; }, 1, 1},
      {"at[q] == k", [&](Index, Index, Index q, Index k) { return place_of(q) == k; }, 1, 1},
      {"k <= q - 40 * h", [](Index, Index h, Index q, Index k) { return k <= q - 40 * h; }, 1, 3},
      {"k % (b + 2) == 0", [](Index b, Index, Index, Index k) { return k % (b + 2) == 0; }, 2, 1},
      {"(k - q) * (b + h) > 500", [](Index b, Index h, Index q, Index k) { return (k - q) * (b + h) > 500; }, 2, 3},
      {"k < 0", [](Index, Index, Index, Index) { return false; }, 1, 1}};
  RunOptions options;
  options.block_m = 16;
  options.block_n = 16;
  for (const PlanCase& one : cases) {
    SCOPED_TRACE(one.text);
    const BoundProgram mask = bound_program(one.text, true, tensors);
    const VisitedTiles expected = count_by_pairs(shape, one, 16);
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      const VisitedTiles tiles = count_visited_tiles(shape, mask, direction, options);
      EXPECT_EQ(tiles.visited, expected.visited);
      EXPECT_EQ(tiles.partial, expected.partial);
    }
  }
}

// Field case F091: shares of blocks dropped, and SCFA's lists of kept and of hashed keys.
TEST(TilePlan, SparseBlocksAndScfaListsVisitExactlyTheTilesWithAVisiblePair) {
  constexpr Index length = 416;
  constexpr Index blocks = length / 16;
  const AttentionShape shape{1, 1, 1, length, length, 16, 16};
  oracle::RandomNumbers numbers(91);
  std::vector<std::int32_t> kept(static_cast<std::size_t>(blocks * blocks));
  std::vector<std::int32_t> q_at, k_at, q_hash, k_hash;
  for (Index i = 0; i < 2 * length; ++i) {  // every second token is dropped, of queries and keys independently
    const auto at = static_cast<std::int32_t>(i);
    if (numbers.chance(0.5) && std::ssize(q_at) < length) q_at.push_back(at);
    if (numbers.chance(0.5) && std::ssize(k_at) < length) k_at.push_back(at);
  }
  q_at.resize(length, -1);
  k_at.resize(length, 4 * length);
  for (Index i = 0; i < length; ++i) {  // lists sorted by bucket, as SCFA makes them, hold runs of one bucket
    q_hash.push_back(static_cast<std::int32_t>(i * 16 / length));
    k_hash.push_back(static_cast<std::int32_t>((i + 9) * 16 / length));
  }
  const auto view = [](std::vector<std::int32_t>& values) {
    return TensorView::contiguous(values.data(), DType::i32, {std::ssize(values)});
  };
  const auto at = [](const std::vector<std::int32_t>& values, Index i) { return values[static_cast<std::size_t>(i)]; };
  const std::vector<NamedData> tensors{{"kept", TensorView::contiguous(kept.data(), DType::i32, {blocks, blocks})},
                                       {"q_at", view(q_at)},
                                       {"k_at", view(k_at)},
                                       {"q_hash", view(q_hash)},
                                       {"k_hash", view(k_hash)}};
  const PlanCase dropped{"kept[q // 16, k // 16] > 0",
                         [&](Index, Index, Index q, Index k) { return at(kept, q / 16 * blocks + k / 16) > 0; }, 1, 1};
  const PlanCase scfa{"q_at[q] >= k_at[k]", [&](Index, Index, Index q, Index k) { return at(q_at, q) >= at(k_at, k); },
                      1, 1};
  const PlanCase hashed{
      "(q_at[q] >= k_at[k]) & (q_hash[q] == k_hash[k])",
      [&](Index, Index, Index q, Index k) { return at(q_at, q) >= at(k_at, k) && at(q_hash, q) == at(k_hash, k); }, 1,
      1};
  RunOptions options;
  options.block_m = 16;
  options.block_n = 16;
  const auto expect_exact = [&](const PlanCase& one) {
    const VisitedTiles expected = count_by_pairs(shape, one, 16);
    EXPECT_LT(expected.visited, blocks * blocks);
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      const VisitedTiles tiles = count_visited_tiles(shape, bound_program(one.text, true, tensors), direction, options);
      EXPECT_EQ(tiles.visited, expected.visited) << one.text;
      EXPECT_EQ(tiles.partial, expected.partial) << one.text;
    }
  };
  for (const double share : {0.2, 0.5, 0.8}) {
    for (std::int32_t& block : kept) block = numbers.chance(share) ? 0 : 1;
    expect_exact(dropped);
  }
  expect_exact(scfa);
  expect_exact(hashed);
}

TEST(Workspace, TooSmallIsRefusedBeforeAnythingIsWritten) {
  const BoundProgram mask = bound_program("q >= k", true);
  const kernel::KernelSpec spec = spec_of(Direction::forward, DType::f32, 16, 16, &mask, nullptr);
  backend::LaunchArgs args;
  args.shape = {1, 1, 1, 64, 64, 16, 16};
  args.mask_program = &mask.program;
  args.mask_bindings = &mask.bindings;
  const std::int64_t needed = cpu_backend().workspace_bytes(spec, args);
  std::vector<unsigned char> workspace(static_cast<std::size_t>(needed), 0xAB);
  args.workspace = workspace.data();
  args.workspace_bytes = needed - 1;
  const auto done = cpu_backend().run(*kernel_of(spec), spec, args);
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().code, ErrorCode::workspace_too_small);
  EXPECT_TRUE(std::all_of(workspace.begin(), workspace.end(), [](unsigned char byte) { return byte == 0xAB; }));
}

TEST(CpuBackend, ReportsACompileErrorAndRefusesForeignObjects) {
  const kernel::KernelSpec spec = spec_of(Direction::forward, DType::f32, 16, 16, nullptr, nullptr);
  kernel::SourceText source;
  source.language = kernel::Language::llvm_ir;
  source.programs.push_back({"", "define void @gemm( {", {}});
  const auto broken = cpu_backend().compile(source, spec);
  ASSERT_FALSE(broken.has_value());
  EXPECT_EQ(broken.error().code, ErrorCode::compile_failed);
  EXPECT_NE(broken.error().detail.find("error"), std::string::npos);
  const auto foreign = cpu_backend().load(std::vector<std::byte>(100, std::byte{7}), spec);
  ASSERT_FALSE(foreign.has_value());
  EXPECT_EQ(foreign.error().code, ErrorCode::unsupported);
}

TEST(CpuBackend, LoadsTheSameObjectTwice) {
  const kernel::KernelSpec spec = spec_of(Direction::backward, DType::f32, 16, 16, nullptr, nullptr);
  const auto source = kernel::emit_llvm(spec);
  ASSERT_TRUE(source.has_value());
  const auto binary = cpu_backend().compile(*source, spec);
  ASSERT_TRUE(binary.has_value());
  const auto first = cpu_backend().load(binary->bytes(), spec);
  const auto second = cpu_backend().load(binary->bytes(), spec);
  ASSERT_TRUE(first.has_value());
  EXPECT_TRUE(second.has_value());
}

TEST(EmitLlvm, RefusesTilesThatAreNoWholeVectors) {
  kernel::KernelSpec spec = spec_of(Direction::forward, DType::f32, 16, 16, nullptr, nullptr);
  spec.tile.block_n = 40;
  const auto source = kernel::emit_llvm(spec);
  ASSERT_FALSE(source.has_value());
  EXPECT_EQ(source.error().argument, "tile");
}

}  // namespace
}  // namespace flashspan::cpu_test
