// Candidates are compared and timed over a back end that says what each takes, and then on the CPU, end to end.
#include "runtime/api/tuner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "flashspan/attention.hpp"
#include "flashspan/device.hpp"
#include "flashspan/inspect.hpp"
#include "flashspan/mask.hpp"
#include "runtime/api/states.hpp"
#include "tests/runtime/fake_backend.hpp"
#include "tests/runtime/private_folder.hpp"

namespace flashspan::testing {
namespace {

using attention::AttentionCall;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr TileConfig default_tile{64, 64, 1, 1};
constexpr TileConfig fast_tile{32, 64, 1, 1};
constexpr TileConfig slow_tile{128, 32, 1, 1};

class TunerOverAFakeBackend : public ::testing::Test {
 protected:
  TunerOverAFakeBackend() {
    backend_->milliseconds_of = [this](const kernel::KernelSpec& spec) {
      if (spec.tile == fast_tile) return fast_milliseconds;
      return spec.tile == slow_tile ? 9.0 : 3.0;
    };
    backend_->on_run = [this](const kernel::KernelSpec& spec, const backend::LaunchArgs& args) -> Result<void> {
      ++runs_[to_string(spec.tile)];
      if (spec.tile == broken) return Error{ErrorCode::device_error, "launch", "no", "yes", ""};
      const float value = spec.tile == wrong ? 2.0F : 1.0F;
      auto* const out = static_cast<float*>(args.out.data);
      if (spec.tile != idle) std::fill_n(out, args.out.element_count(), value);
      return {};
    };
    call_.query = call_.key = call_.value = TensorView::contiguous(inputs_.data(), DType::f32, {1, 1, 8, 16});
    call_.out = TensorView::contiguous(out_.data(), DType::f32, {1, 1, 8, 16});
    call_.mask = &mask_.state();
  }

  TuneReport tune(const TuneOptions& options = {}) {
    const auto report = api::tune(op_, call_, options);
    EXPECT_TRUE(report) << report.error().message();
    return report ? *report : TuneReport{};
  }
  static const TunedCandidate& of(const TuneReport& report, const TileConfig& tile) {
    const auto found = std::ranges::find(report.candidates, tile, [](const auto& c) { return c.resources.tile; });
    EXPECT_NE(found, report.candidates.end()) << to_string(tile);
    return *found;
  }

  double fast_milliseconds = 2.0;
  std::optional<TileConfig> wrong, broken, idle;
  std::map<std::string, int> runs_;
  Mask mask_ = Mask::causal();
  std::vector<float> inputs_ = std::vector<float>(128);
  std::vector<float> out_ = std::vector<float>(128);
  AttentionCall call_;
  std::shared_ptr<FakeBackend> backend_ = std::make_shared<FakeBackend>();
  LogSink log_ = [](LogLevel, std::string_view) {};
  attention::AttentionOp op_{backend_, std::make_shared<attention::KernelProvider>(
                                           backend_, std::make_shared<cache::KernelCache>(std::nullopt, 1 << 20, log_),
                                           attention::ProviderOptions{{}, log_})};
};

TEST_F(TunerOverAFakeBackend, FindsTheFastestAndSaysWhatTheDefaultTakes) {
  const TuneReport report = tune();
  EXPECT_EQ(report.best.tile, fast_tile);
  EXPECT_EQ(report.best.milliseconds, 2.0);
  EXPECT_EQ(report.best.default_tile, default_tile);
  EXPECT_EQ(report.best.default_milliseconds, 3.0);
  EXPECT_EQ(report.best.device, "fake");
  EXPECT_EQ(report.best.compiler, "fake 1.0");
  EXPECT_THAT(report.best.spec, HasSubstr("block_m = 32\nblock_n = 64\n"));
  EXPECT_EQ(report.best.date.size(), 20U);
  EXPECT_EQ(report.candidates.size(), 9U) << "those of the CPU";
  EXPECT_EQ(report.candidates.front().resources.tile, default_tile);
  EXPECT_EQ(backend_->loads, 9);
  EXPECT_GE(of(report, fast_tile).runs, 5);
}

TEST_F(TunerOverAFakeBackend, LeavesTheResultsOfTheBestTile) {
  EXPECT_THAT(out_, Each(0.0F));
  tune();
  EXPECT_THAT(out_, Each(1.0F));
}

TEST_F(TunerOverAFakeBackend, StopsCandidatesThatAreFarBehindAfterTheirFirstRuns) {
  const TuneReport report = tune();
  EXPECT_EQ(of(report, slow_tile).outcome, TuneOutcome::hopeless);
  EXPECT_EQ(of(report, slow_tile).milliseconds, 9.0);
  EXPECT_EQ(of(report, slow_tile).runs, 2);
  EXPECT_EQ(of(report, fast_tile).outcome, TuneOutcome::measured);
}

TEST_F(TunerOverAFakeBackend, KeepsTheDefaultIfACandidateIsNotAheadWhenBothAreTimedInTurns) {
  int fast_runs = 0;
  backend_->milliseconds_of = [&](const kernel::KernelSpec& spec) {
    if (spec.tile != fast_tile) return 3.0;
    return ++fast_runs <= 21 ? 2.0 : 3.5;  // one run to size the batches, and twenty batches
  };
  const TuneReport report = tune({.tiles = {fast_tile}, .candidate_milliseconds = 40});
  EXPECT_EQ(report.best.tile, default_tile);
  EXPECT_EQ(of(report, fast_tile).milliseconds, 3.5);
  EXPECT_EQ(report.best.milliseconds, 3.0);
}

TEST_F(TunerOverAFakeBackend, DiscardsAFastOneThatIsWrong) {
  wrong = fast_tile;
  const TuneReport report = tune();
  EXPECT_EQ(report.best.tile, default_tile);
  EXPECT_EQ(of(report, fast_tile).outcome, TuneOutcome::wrong);
  EXPECT_EQ(of(report, fast_tile).note, "out: element 0 is 2, by the default tile 1");
  EXPECT_EQ(runs_[to_string(fast_tile)], 1);
}

TEST_F(TunerOverAFakeBackend, DiscardsAFastOneThatWritesNothing) {
  idle = fast_tile;
  EXPECT_EQ(of(tune(), fast_tile).outcome, TuneOutcome::wrong);
  EXPECT_EQ(of(tune(), fast_tile).outcome, TuneOutcome::wrong) << "even where the right results stand there already";
}

TEST_F(TunerOverAFakeBackend, SkipsWhatDoesNotLaunchWithOneLine) {
  broken = fast_tile;
  const TuneReport report = tune();
  EXPECT_EQ(of(report, fast_tile).outcome, TuneOutcome::failed);
  EXPECT_EQ(of(report, fast_tile).note, "launch: got no; takes yes");
  EXPECT_EQ(report.best.tile, default_tile);
}

TEST_F(TunerOverAFakeBackend, ReturnsTheFailureOfTheDefault) {
  broken = default_tile;
  const auto report = api::tune(op_, call_, {});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().argument, "launch");
}

TEST_F(TunerOverAFakeBackend, ReturnsTheCompileErrorOfTheDefault) {
  backend_->compile_failures = 9;
  const auto report = api::tune(op_, call_, {});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::compile_failed);
}

TEST_F(TunerOverAFakeBackend, TriesTheTilesThatItIsGiven) {
  const TileConfig illegal{100, 7, 1, 1};
  const TuneReport report = tune({.tiles = {fast_tile, illegal, fast_tile, default_tile}});
  ASSERT_EQ(report.candidates.size(), 3U);
  EXPECT_EQ(report.best.tile, fast_tile);
  EXPECT_EQ(of(report, illegal).outcome, TuneOutcome::failed);
  EXPECT_THAT(of(report, illegal).note, HasSubstr("tile: got 100x7, 1 warp, 1 stage; takes one of those"));
}

TEST_F(TunerOverAFakeBackend, TriesNoMoreOfTheModelsThanItIsTold) {
  EXPECT_EQ(tune({.most_candidates = 2}).candidates.size(), 3U) << "and the default";
}

TEST_F(TunerOverAFakeBackend, MeasuresTheDefaultWhateverTheTimeLimit) {
  const TuneReport report = tune({.time_limit_seconds = 1e-9});
  EXPECT_EQ(report.best.tile, default_tile);
  EXPECT_GE(report.candidates.front().runs, 5);
}

TEST_F(TunerOverAFakeBackend, TellsOfEveryCandidateOnce) {
  std::vector<int> done;
  tune({.progress = [&](int number, int all, const TunedCandidate&) {
    EXPECT_EQ(all, 9);
    done.push_back(number);
  }});
  EXPECT_EQ(done, (std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST_F(TunerOverAFakeBackend, PlansOnceWhereTheCallDoes) {
  TilePlan plan;
  call_.plan = &plan;
  int planned = 0;
  const auto on_run = backend_->on_run;
  backend_->on_run = [&](const kernel::KernelSpec& spec, const backend::LaunchArgs& args) {
    if (!args.planned) ++planned;
    return on_run(spec, args);
  };
  const TuneReport report = tune({.tiles = {fast_tile}});
  EXPECT_EQ(planned, 2) << "one a tile";
  EXPECT_FALSE(plan.made) << "the caller's own is left alone";
}

TEST_F(TunerOverAFakeBackend, LaterCallsTakeATileFromATable) {
  const TuneReport report = tune();
  EXPECT_EQ(op_.spec_of(call_)->tile, default_tile) << "until they are told to";
  op_.use_tuned(std::make_unique<const attention::TunedTiles>(std::vector{report.best}));
  EXPECT_EQ(op_.spec_of(call_)->tile, fast_tile);
  EXPECT_EQ(op_.untuned_spec_of(call_)->tile, default_tile);
  call_.tile = slow_tile;
  EXPECT_EQ(op_.spec_of(call_)->tile, slow_tile) << "their own comes first";
  EXPECT_EQ(tune({.tiles = {fast_tile}}).best.default_tile, default_tile);
}

TEST_F(TunerOverAFakeBackend, ACallWithATileThatItsKernelCannotHaveIsRefused) {
  call_.tile = TileConfig{16, 16, 1, 1};
  const auto spec = op_.spec_of(call_);
  ASSERT_FALSE(spec);
  EXPECT_EQ(spec.error().code, ErrorCode::bad_argument);
  EXPECT_EQ(spec.error().argument, "tile");
  EXPECT_EQ(backend_->compiles, 0);
}

class TuningOnTheCpu : public ::testing::Test {
 protected:
  TuningOnTheCpu() {
    for (std::size_t i = 0; i < inputs_.size(); ++i) inputs_[i] = static_cast<float>(i % 13) / 13.0F - 0.4F;
    call_.query = call_.key = call_.value = TensorView::contiguous(inputs_.data(), DType::f32, {1, 2, 200, 32});
    call_.out = TensorView::contiguous(out_.data(), DType::f32, {1, 2, 200, 32});
    call_.lse = TensorView::contiguous(lse_.data(), DType::f32, {1, 2, 200});
    call_.mask = &mask_;
  }

  [[nodiscard]] AttentionOptions options() const {
    AttentionOptions options;
    options.log = [](LogLevel, std::string_view) {};
    options.cache_dir = folder_.path().string();
    return options;
  }
  [[nodiscard]] std::string file() const { return (folder_.path() / "tuning.jsonl").string(); }

  PrivateFolder folder_;
  Mask mask_ = *Mask::parse("(q >= k) & (q - k < 70)");
  std::vector<float> inputs_ = std::vector<float>(2 * 200 * 32), out_ = inputs_, lse_ = std::vector<float>(400);
  ForwardCall call_;
};

TEST_F(TuningOnTheCpu, MeasuresEveryTileForwardAndBackwardAndAllAgree) {
  auto attention = Attention::open({DeviceKind::cpu, 0}, options());
  if (!attention) GTEST_SKIP() << attention.error().message();
  const TuneOptions briefly{.candidate_milliseconds = 0.1};
  const auto forward = attention->tune(call_, briefly);
  ASSERT_TRUE(forward) << forward.error().message();
  std::vector<float> ones(inputs_.size(), 1), gradients(3 * inputs_.size());
  BackwardCall backward;
  backward.query = backward.key = backward.value = call_.query;
  backward.out = call_.out;
  backward.lse = call_.lse;
  const auto like_query = [](float* data) { return TensorView::contiguous(data, DType::f32, {1, 2, 200, 32}); };
  backward.out_gradient = like_query(ones.data());
  backward.query_gradient = like_query(gradients.data());
  backward.key_gradient = like_query(gradients.data() + inputs_.size());
  backward.value_gradient = like_query(gradients.data() + 2 * inputs_.size());
  backward.mask = &mask_;
  const auto report = attention->tune(backward, briefly);
  ASSERT_TRUE(report) << report.error().message();
  for (const TuneReport& tuned : {*forward, *report}) {
    EXPECT_TRUE(tuned.remembered);
    EXPECT_EQ(tuned.candidates.size(), 9U);
    for (const TunedCandidate& candidate : tuned.candidates) {
      EXPECT_TRUE(candidate.outcome == TuneOutcome::measured || candidate.outcome == TuneOutcome::hopeless)
          << to_string(candidate.resources.tile) << ": " << candidate.note;
      EXPECT_GT(candidate.milliseconds, 0);
    }
    EXPECT_LE(tuned.best.milliseconds, tuned.best.default_milliseconds);
  }
  EXPECT_EQ(read_tuning_file(file())->size(), 2U);
}

TEST_F(TuningOnTheCpu, LosesNoResultForWantOfAFile) {
  AttentionOptions nowhere = options();
  nowhere.tuning_file = (folder_.path() / "file" / "below").string();
  std::ofstream(folder_.path() / "file") << "text";
  auto attention = Attention::open({DeviceKind::cpu, 0}, nowhere);
  if (!attention) GTEST_SKIP() << attention.error().message();
  const auto tuned = attention->tune(call_, {.tiles = {fast_tile}, .candidate_milliseconds = 0.1});
  ASSERT_TRUE(tuned) << tuned.error().message();
  EXPECT_FALSE(tuned->remembered);
  EXPECT_THAT(tuned->not_remembered, HasSubstr("tuning file: got "));
  EXPECT_THAT(attention->prepare(call_)->spec, HasSubstr(" " + std::to_string(tuned->best.tile.block_m) + "x"));
}

TEST_F(TuningOnTheCpu, IsWhatTheNextProcessGoesBy) {
  TuningRecord record;
  {
    auto attention = Attention::open({DeviceKind::cpu, 0}, options());
    if (!attention) GTEST_SKIP() << attention.error().message();
    const auto tuned = attention->tune(call_, {.tiles = {fast_tile}, .candidate_milliseconds = 0.1});
    ASSERT_TRUE(tuned) << tuned.error().message();
    record = tuned->best;
  }
  // Whichever won: the next process is to take the other one.
  auto spec = *kernel::KernelSpec::from_text(record.spec);
  spec.tile = fast_tile;
  record.spec = spec.to_text();
  record.date = "2100-01-01T00:00:00Z";
  ASSERT_TRUE(merge_tuning_records(file(), {record}));
  const auto kernel_of = [this](const AttentionOptions& opening) {
    auto attention = *Attention::open({DeviceKind::cpu, 0}, opening);
    return attention.prepare(call_)->spec;
  };
  EXPECT_THAT(kernel_of(options()), HasSubstr(" 32x64 "));
  AttentionOptions without = options();
  without.tuning_file = "";
  EXPECT_THAT(kernel_of(without), HasSubstr(" 64x64 "));
  AttentionOptions elsewhere = options();
  elsewhere.cache_dir = (folder_.path() / "elsewhere").string();
  EXPECT_THAT(kernel_of(elsewhere), HasSubstr(" 64x64 "));
  elsewhere.cache_path = folder_.path().string();
  EXPECT_THAT(kernel_of(elsewhere), HasSubstr(" 32x64 ")) << "a layer's";
  elsewhere.tuning_file = file();
  EXPECT_THAT(kernel_of(elsewhere), HasSubstr(" 32x64 ")) << "one by name";
}

TEST(TileCandidates, AreWhatTheModelKnowsOfEveryTile) {
  const AttentionShape shape{1, 8, 8, 2048, 2048, 128, 128};
  const auto tiles = tile_candidates(Mask::causal(), nullptr, shape, DType::bf16, Direction::forward, Arch{90, 'a'});
  ASSERT_TRUE(tiles) << tiles.error().message();
  ASSERT_GE(tiles->size(), 5U);
  for (const TileResources& resources : *tiles) {
    EXPECT_GE(resources.blocks_per_multiprocessor, 1);
    EXPECT_LE(resources.shared_bytes, resources.shared_limit);
    EXPECT_LE(resources.registers, resources.register_limit);
  }
  const auto refused = tile_candidates(Mask::causal(), nullptr, shape, DType::f32, Direction::forward, Arch{90, 'a'});
  ASSERT_FALSE(refused);
}

TEST(TuningFiles, ThatCannotBeReadOrWrittenAreNamed) {
  const PrivateFolder folder;
  const auto missing = read_tuning_file((folder.path() / "none").string());
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::io_error);
  EXPECT_THAT(missing.error().got, HasSubstr("none: "));
  std::ofstream(folder.path() / "file") << "text";
  const auto refused = merge_tuning_records((folder.path() / "file" / "below").string(), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().argument, "tuning file");
}

}  // namespace
}  // namespace flashspan::testing
