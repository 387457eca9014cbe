// Results of tuning: as lines, merged, and found by kernel, mask and sizes.
#include "runtime/attention/tuning_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen/kernel/tile_config.hpp"

namespace flashspan::testing {
namespace {

using attention::TunedTiles;
using ::testing::HasSubstr;

constexpr AttentionShape usual_shape{2, 8, 2, 1000, 4000, 64, 64};
constexpr TileConfig small_tile{64, 64, 4, 2};
constexpr TileConfig large_tile{128, 64, 8, 3};

kernel::KernelSpec spec_of(const TileConfig& tile) {
  kernel::KernelSpec spec;
  spec.target = {DeviceKind::cuda, {80, 0}};
  spec.dtype = DType::bf16;
  spec.head_dim_qk = spec.head_dim_v = 64;
  spec.mask = "a mask";
  spec.tile = tile;
  return spec;
}

TuningRecord record_of(const TileConfig& tile, const std::string& date = "2026-11-30T08:00:00Z",
                       const AttentionShape& shape = usual_shape) {
  TuningRecord record;
  record.spec = spec_of(tile).to_text();
  record.shape = shape;
  record.device = "A GPU";
  record.processors = 108;
  record.compiler = "nvrtc 13.0.88";
  record.driver = "13.0";
  record.tile = tile;
  record.milliseconds = 1.25;
  record.default_tile = {128, 64, 8, 2};
  record.default_milliseconds = 1.5;
  record.candidates = 7;
  record.date = date;
  return record;
}

/// What a call with this spec takes.
TileConfig chosen(const TunedTiles& tiles, kernel::KernelSpec spec, const AttentionShape& shape = usual_shape) {
  tiles.choose(spec, shape);
  return spec.tile;
}

TEST(ShapeClasses, AreTheNearestPowersOfTwo) {
  const auto sizes = attention::shape_class(usual_shape);
  EXPECT_EQ(sizes.heads, 4);
  EXPECT_EQ(sizes.queries, 10);
  EXPECT_EQ(sizes.keys, 12);
  EXPECT_EQ(sizes, attention::shape_class({1, 16, 16, 1024, 4096, 64, 64}));
  EXPECT_EQ(attention::distance(sizes, attention::shape_class({1, 32, 8, 1024, 16384, 64, 64})), 3);
  EXPECT_EQ(attention::shape_class({}).queries, 0) << "nothing is as one";
}

TEST(TuningRecords, SurviveAsLines) {
  const TuningRecord record = record_of(small_tile);
  const std::string line = attention::to_line(record);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_THAT(line, HasSubstr(R"("block_m":"64")"));
  const auto read = attention::record_from_line(line);
  ASSERT_TRUE(read);
  EXPECT_EQ(attention::to_line(*read), line);
  EXPECT_EQ(read->spec, record.spec);
  EXPECT_EQ(read->shape, record.shape);
  EXPECT_EQ(read->tile, small_tile);
  EXPECT_EQ(read->default_tile, record.default_tile);
  EXPECT_EQ(read->milliseconds, 1.25);
}

TEST(TuningRecords, OfAnotherFormAreNone) {
  const std::string line = attention::to_line(record_of(small_tile));
  for (const std::string& damaged : {std::string(), std::string("{}"), std::string("[1]"), line.substr(1),
                                     line.substr(0, line.size() / 2), std::string(R"({"spec": {"direction": 3}})")}) {
    EXPECT_FALSE(attention::record_from_line(damaged)) << damaged;
  }
}

TEST(TuningFiles, KeepTheNewestOfEveryKernelClassOfShapesAndMachine) {
  const std::string old = attention::merged_text("", {record_of(small_tile, "2026-01-01T00:00:00Z")});
  const auto records = [](const std::string& text) { return attention::records_from_text(text); };
  EXPECT_EQ(records(attention::merged_text(old, {record_of(large_tile)})).size(), 1U);
  EXPECT_EQ(records(attention::merged_text(old, {record_of(large_tile)}))[0].tile, large_tile);
  EXPECT_EQ(records(attention::merged_text(old, {record_of(large_tile, "2025-01-01T00:00:00Z")}))[0].tile, small_tile);

  AttentionShape longer = usual_shape;
  longer.kv_len *= 2;
  EXPECT_EQ(records(attention::merged_text(old, {record_of(large_tile, "2026-11-30T08:00:00Z", longer)})).size(), 2U);
  TuningRecord other_driver = record_of(large_tile);
  other_driver.driver = "12.9";
  EXPECT_EQ(records(attention::merged_text(old, {other_driver})).size(), 2U);
}

TEST(TuningFiles, KeepLinesThatTheyDoNotUnderstand) {
  const std::string text = attention::merged_text("{\"of\": \"a later version\"}\n", {record_of(small_tile)});
  EXPECT_THAT(text, HasSubstr("a later version\"}\n"));
  EXPECT_EQ(attention::records_from_text(text).size(), 1U);
}

TEST(TuningFiles, MergeInAnyOrderToTheSameText) {
  TuningRecord other = record_of(large_tile);
  other.device = "Another GPU";
  const std::vector<TuningRecord> records{record_of(small_tile), other, record_of(large_tile, "2026-12-01T00:00:00Z")};
  const std::string forwards = attention::merged_text("", records);
  EXPECT_EQ(forwards, attention::merged_text("", {records.rbegin(), records.rend()}));
  EXPECT_EQ(forwards, attention::merged_text(forwards, records));
}

TEST(TuningRecords, CountForTheirOwnDeviceAndCompiler) {
  backend::DeviceFacts facts;
  facts.name = "A GPU";
  facts.processors = 108;
  const auto count = [&](const std::optional<std::string>& compiler) {
    return attention::records_of_device({record_of(small_tile)}, facts, compiler).size();
  };
  EXPECT_EQ(count("nvrtc 13.0.88"), 1U);
  EXPECT_EQ(count("nvrtc 12.9.0"), 0U);
  EXPECT_EQ(count(std::nullopt), 1U);
  facts.processors = 54;
  EXPECT_EQ(count("nvrtc 13.0.88"), 0U);
  facts.processors = 108;
  facts.name = "Another GPU";
  EXPECT_EQ(count("nvrtc 13.0.88"), 0U);
}

TEST(TunedTiles, AreThoseOfTheClassOfShapesElseOfTheNearest) {
  AttentionShape longer = usual_shape;
  longer.q_len = longer.kv_len = 100000;
  const TunedTiles tiles({record_of(small_tile), record_of(large_tile, "2026-11-30T08:00:00Z", longer)});
  const kernel::KernelSpec spec = spec_of({});
  const auto same = tiles.find(spec, {4, 4, 4, 1100, 3900, 64, 64});
  ASSERT_TRUE(same);
  EXPECT_TRUE(same->same_class);
  EXPECT_EQ(same->tile, small_tile);
  AttentionShape nearer_to_longer = longer;
  nearer_to_longer.q_len = 30000;
  const auto nearest = tiles.find(spec, nearer_to_longer);
  ASSERT_TRUE(nearest);
  EXPECT_FALSE(nearest->same_class);
  EXPECT_EQ(nearest->tile, large_tile);
  EXPECT_EQ(chosen(tiles, spec, nearer_to_longer), large_tile);
}

TEST(TunedTiles, AreFoundWhateverTheTileOfTheSpecAndForNoOtherKernel) {
  const TunedTiles tiles({record_of(small_tile)});
  EXPECT_EQ(chosen(tiles, spec_of(large_tile)), small_tile);
  kernel::KernelSpec other_mask = spec_of({});
  other_mask.mask = "another mask";
  EXPECT_EQ(chosen(tiles, other_mask), TileConfig{}) << "its own";
  kernel::KernelSpec unaligned = spec_of({});
  unaligned.aligned = false;
  EXPECT_EQ(chosen(tiles, unaligned), TileConfig{});
  EXPECT_FALSE(tiles.find(unaligned, usual_shape));
}

TEST(TunedTiles, OfTheSameSizesAreTheNewest) {
  const TunedTiles tiles({record_of(small_tile, "2026-01-01T00:00:00Z"), record_of(large_tile)});
  EXPECT_EQ(chosen(tiles, spec_of({})), large_tile);
}

TEST(TunedTiles, LeaveOutWhatTheKernelsDoNotTake) { EXPECT_TRUE(TunedTiles({record_of({40, 24, 3, 9})}).empty()); }

}  // namespace
}  // namespace flashspan::testing
