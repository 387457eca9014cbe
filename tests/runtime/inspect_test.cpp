// What the library says about masks, kernels and the machine, without launching anything.
#include "flashspan/inspect.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "codegen/kernel/kernel_spec.hpp"
#include "tests/runtime/private_folder.hpp"

namespace flashspan::testing {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(TileMaps, CountPairsAndKindsOfTiles) {
  const auto map = tile_map(Mask::causal(), {1, 1, 1, 10, 10, 16, 16}, 0, 0, 4, 4);
  ASSERT_TRUE(map.has_value()) << map.error().message();
  EXPECT_EQ(map->rows, 3);
  EXPECT_EQ(map->columns, 3);
  EXPECT_EQ(map->visible_pairs, 55);
  EXPECT_EQ(map->empty, 3);
  EXPECT_EQ(map->full, 3);
  EXPECT_EQ(map->partial, 3);
  EXPECT_EQ(map->kinds[0], TileKind::partial);
  EXPECT_EQ(map->kinds[1], TileKind::empty);
  EXPECT_EQ(map->kinds[3], TileKind::full);
}

TEST(TileMaps, ACallWithoutQueriesOrKeysHasNoTiles) {
  EXPECT_TRUE(tile_map(Mask::causal(), {1, 1, 1, 0, 10, 16, 16}, 0, 0, 4, 4)->kinds.empty());
  EXPECT_TRUE(tile_map(Mask::causal(), {1, 1, 1, 10, 0, 16, 16}, 0, 0, 4, 4)->kinds.empty());
}

TEST(Explain, CountsDensityAndFlopsOverHeadsThatTheMaskTellsApart) {
  const AttentionShape shape{2, 4, 2, 40, 40, 64, 32};
  std::vector<std::int32_t> visible_keys{10, 20, 30, 40};
  const auto mask = Mask::parse("k < n[h]", {{"n", TensorView::contiguous(visible_keys.data(), DType::i32, {4})}});
  ASSERT_TRUE(mask.has_value());
  const auto explanation = explain(*mask, nullptr, shape, DType::bf16, Arch{80, 0});
  ASSERT_TRUE(explanation.has_value()) << explanation.error().message();
  EXPECT_DOUBLE_EQ(explanation->density, 100.0 / 160.0);
  EXPECT_EQ(explanation->depends_on, "h, k");
  ASSERT_EQ(explanation->directions.size(), 2U);
  const double pairs = 2 * 40 * 100;
  EXPECT_DOUBLE_EQ(explanation->directions[0].flops, 2 * (64 + 32) * pairs);
  EXPECT_DOUBLE_EQ(explanation->directions[1].flops, 2 * (3 * 64 + 2 * 32) * pairs);
  EXPECT_THAT(explanation->directions[0].spec, HasSubstr("sm_80"));
  EXPECT_EQ(explanation->directions[0].kernel_family, "mma");
  EXPECT_EQ(explanation->directions[0].kernel_family_reason,
            "mma.sync runs on every architecture; wgmma is sm_90a's alone");
  EXPECT_EQ(explanation->directions[0].tile, "128x64, 8 warps, 2 stages");
  EXPECT_EQ(explanation->directions[0].tile_reason,
            "no result of tuning for this class of shapes, nor for another: the built-in table");
  EXPECT_EQ(explanation->tiles.block_m, explanation->directions[0].block_m);
  EXPECT_EQ(explanation->tiles.visible_pairs, 400);
}

TEST(Explain, TheKernelFamilyIsThatOfTheDirectionAndHasAReason) {
  const AttentionShape shape{1, 1, 1, 64, 64, 64, 64};
  const auto hopper = explain(Mask::causal(), nullptr, shape, DType::bf16, Arch{90, 'a'});
  ASSERT_TRUE(hopper.has_value()) << hopper.error().message();
  EXPECT_EQ(hopper->directions[0].kernel_family, "hopper");
  EXPECT_THAT(hopper->directions[0].kernel_family_reason, HasSubstr("sm_90a"));
  EXPECT_THAT(hopper->directions[0].kernel_family_reason, HasSubstr("mma if"));
  EXPECT_THAT(hopper->directions[0].spec, HasSubstr("family = hopper"));
  EXPECT_EQ(hopper->directions[1].kernel_family, "hopper");
  const auto wide = explain(Mask::causal(), nullptr, {1, 1, 1, 64, 64, 256, 256}, DType::bf16, Arch{90, 'a'});
  ASSERT_TRUE(wide.has_value()) << wide.error().message();
  EXPECT_EQ(wide->directions[0].kernel_family, "hopper");
  EXPECT_EQ(wide->directions[1].kernel_family, "hopper");
  EXPECT_THAT(wide->directions[1].kernel_family_reason, HasSubstr("mma if"));
  EXPECT_EQ(wide->directions[1].lowering, "column_bounds");
  EXPECT_THAT(wide->directions[1].spec, HasSubstr("two_passes = false"));
  const auto cpu = explain(Mask::causal(), nullptr, shape, DType::f32, std::nullopt);
  ASSERT_TRUE(cpu.has_value()) << cpu.error().message();
  EXPECT_EQ(cpu->directions[0].kernel_family, "");
}

TEST(Explain, AFullMaskNeedsNoPlanAndAScoreShowsItsDerivative) {
  const auto score = Score::parse("score * score");
  ASSERT_TRUE(score.has_value());
  const auto explanation = explain(Mask::full(), &*score, {1, 2, 2, 16, 16, 16, 16}, DType::f32, std::nullopt);
  ASSERT_TRUE(explanation.has_value()) << explanation.error().message();
  EXPECT_EQ(explanation->directions[0].lowering, "none");
  EXPECT_EQ(explanation->density, 1);
  EXPECT_EQ(explanation->score, "score * score");
  EXPECT_THAT(explanation->score_derivative, HasSubstr("score"));
}

TEST(Explain, RefusesWhatNoKernelServes) {
  const AttentionShape shape{1, 1, 1, 16, 16, 20, 16};
  const auto refused = explain(Mask::causal(), nullptr, shape, DType::bf16, Arch{90, 'a'});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_THAT(refused.error().message(), HasSubstr("head dim 20"));
  EXPECT_FALSE(explain(Mask::causal(), nullptr, {1, 1, 1, 16, 16, 16, 16}, DType::f32, Arch{90, 'a'}).has_value());
}

TEST(CompileAhead, FillsTheCacheForArchitecturesThatAreNotThere) {
  PrivateFolder folder;
  const Mask mask = Mask::causal();
  CompileRequest request;
  request.mask = &mask;
  request.archs = {Arch{80, 0}, Arch{90, 'a'}};
  request.directions = {Direction::forward};
  request.head_dim_qk = request.head_dim_v = 64;
  request.cache_dir = folder.path().string();
  int calls = 0;
  const auto this_thread = std::this_thread::get_id();
  const auto progress = [&](const CompiledKernel&) {
    EXPECT_EQ(std::this_thread::get_id(), this_thread);
    ++calls;
  };
  const auto compiled = compile_ahead(request, 2, progress);
  if (!compiled && compiled.error().code == ErrorCode::missing_component) GTEST_SKIP() << compiled.error().message();
  ASSERT_TRUE(compiled.has_value()) << compiled.error().message();
  ASSERT_EQ(compiled->size(), 2U);
  EXPECT_EQ(calls, 2);
  for (const CompiledKernel& kernel : *compiled) {
    ASSERT_FALSE(kernel.error.has_value()) << kernel.error->message();
    EXPECT_EQ(kernel.record.outcome, "built");
    EXPECT_EQ(kernel.record.spill_bytes, 0);
    EXPECT_GT(kernel.record.registers, 0);
    EXPECT_THAT(kernel.source, HasSubstr("attention_forward"));
  }
  EXPECT_NE(compiled->front().record.key, compiled->back().record.key);
  const auto again = compile_ahead(request, 1, nullptr);
  ASSERT_TRUE(again.has_value());
  for (const CompiledKernel& kernel : *again) EXPECT_EQ(kernel.record.outcome, "disk");
  EXPECT_EQ(list_cache(request.cache_dir)->size(), 2U);
}

/// A forward for each mask.
std::vector<CompileRequest> requests_of(const std::vector<Mask>& masks, const PrivateFolder& cache) {
  std::vector<CompileRequest> requests;
  for (const Mask& mask : masks) {
    CompileRequest& request = requests.emplace_back();
    request.mask = &mask;
    request.archs = {Arch{80, 0}};
    request.directions = {Direction::forward};
    request.head_dim_qk = request.head_dim_v = 16;
    request.cache_dir = cache.path().string();
  }
  return requests;
}

/// That the tile was the fastest for the kernel that requests_of() has for the mask.
TuningRecord tuned_to(const TileConfig& tile, const Mask& mask) {
  TuningRecord record;
  record.shape = {1, 1, 1, 128, 128, 16, 16};
  const auto explanation = explain(mask, nullptr, record.shape, DType::bf16, Arch{80, 0});
  auto spec = kernel::KernelSpec::from_text(explanation.value().directions.front().spec).value();
  spec.tile = record.tile = tile;
  record.spec = spec.to_text();
  return record;
}

TEST(CompileAhead, OfManyRequestsSharesTheThreadsAndKeepsTheirOrder) {
  PrivateFolder folder;
  const std::vector masks{*Mask::parse("q >= k"), *Mask::parse("q <= k")};
  auto requests = requests_of(masks, folder);
  std::multiset<std::size_t> told;
  const auto compiled = compile_ahead(requests, 2, [&](std::size_t request, const CompiledKernel& kernel) {
    EXPECT_FALSE(kernel.error.has_value()) << kernel.error->message();
    told.insert(request);
  });
  if (!compiled && compiled.error().code == ErrorCode::missing_component) GTEST_SKIP() << compiled.error().message();
  ASSERT_TRUE(compiled.has_value()) << compiled.error().message();
  EXPECT_EQ(told, (std::multiset<std::size_t>{0, 1}));
  ASSERT_EQ(compiled->size(), 2U);
  for (std::size_t place = 0; place < requests.size(); ++place) {
    const auto alone = compile_ahead(requests[place], 1, nullptr);
    EXPECT_EQ(compiled->at(place).front().record.key, alone->front().record.key) << place;
  }
  requests.back().head_dim_v = 20;
  const auto refused = compile_ahead(requests, 2, [&](std::size_t, const CompiledKernel&) { ADD_FAILURE(); });
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("20"));
}

TEST(CompileAhead, OfManyRequestsMakesTheKernelsOfTheirTuningsAmongThem) {
  PrivateFolder folder;
  const std::vector masks{*Mask::parse("q >= k"), *Mask::parse("q <= k"), *Mask::parse("q == k")};
  auto requests = requests_of(masks, folder);
  const std::vector tunings{tuned_to({64, 32, 4, 1}, masks[0]), tuned_to({64, 64, 4, 2}, masks[1]),
                            tuned_to({64, 32, 4, 1}, masks[1])};
  for (CompileRequest& request : requests) request.tunings = tunings;  // whichever they are about
  const std::vector<int> counts{count_kernels(requests[0]).value(), count_kernels(requests[1]).value(),
                                count_kernels(requests[2]).value()};
  EXPECT_THAT(counts, ElementsAre(2, 3, 1));
  EXPECT_EQ(tunings_for(requests[0], tunings)->size(), 1U);
  EXPECT_EQ(tunings_for(requests[1], tunings)->size(), 2U);
  EXPECT_THAT(*tunings_for(requests[2], tunings), IsEmpty());

  std::vector<int> told(requests.size());
  const auto compiled = compile_ahead(requests, 2, [&](std::size_t request, const CompiledKernel& kernel) {
    EXPECT_FALSE(kernel.error.has_value()) << kernel.error->message();
    ++told[request];
  });
  if (!compiled && compiled.error().code == ErrorCode::missing_component) GTEST_SKIP() << compiled.error().message();
  ASSERT_TRUE(compiled.has_value()) << compiled.error().message();
  EXPECT_EQ(told, counts);
  std::vector<std::vector<std::string>> specs;
  for (const auto& kernels : *compiled) {
    auto& of_request = specs.emplace_back();
    for (const CompiledKernel& kernel : kernels) of_request.push_back(kernel.record.spec);
  }
  EXPECT_THAT(specs, ElementsAre(ElementsAre(_, HasSubstr(" 64x32 ")),
                                 ElementsAre(_, HasSubstr(" 64x64 "), HasSubstr(" 64x32 ")), ElementsAre(_)));
  EXPECT_EQ(list_cache(folder.path().string())->size(), 6U);
}

TEST(Doctor, NamesEveryPartAndARemedyForWhatIsMissing) {
  PrivateFolder folder;
  std::map<std::string, Finding> findings;
  for (const Finding& finding : examine_machine(folder.path().string())) {
    findings[finding.subject] = finding;
    EXPECT_NE(finding.detail, "") << finding.subject;
    EXPECT_EQ(finding.detail.find('\n'), std::string::npos) << finding.detail;
    EXPECT_EQ(finding.remedy.empty(), finding.ok) << finding.subject;
  }
  for (const char* subject : {"driver", "nvrtc", "cpu", "network", "cache"})
    EXPECT_TRUE(findings.contains(subject)) << subject;
  EXPECT_TRUE(findings["cache"].ok);
  EXPECT_THAT(findings["cache"].detail, HasSubstr(folder.path().string()));
}

}  // namespace
}  // namespace flashspan::testing
