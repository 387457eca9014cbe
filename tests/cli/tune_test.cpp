// tune_test.cpp -- `flashspan tune` on the CPU, tables of results put together and shipped, and programs written by
// `compile`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "command.hpp"

namespace {

using namespace cli_test;
using testing::HasSubstr;

/// A small kernel on the CPU and two tiles beside the default.
class Tune : public testing::Test {
 protected:
  [[nodiscard]] std::vector<std::string> small(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{"tune",   "--device", "cpu",       "--dtype",  "f32",   "--mask",
                                       "causal", "--q-len",  "96",        "--kv-len", "96",    "--head-dim",
                                       "32",     "--tile",   "32x64,1,1", "--tile",   "64x32", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  [[nodiscard]] Outcome tune(const std::vector<std::string>& more) const {
    Outcome outcome = run_command(small(more), {{"FLASHSPAN_CACHE_DIR", folder_ / "cache"}});
    return outcome;
  }
  [[nodiscard]] nlohmann::json records_in(const std::string& file) const {
    return run_command({"tune", "ls", folder_ / file, "--json"}).json()["records"];
  }

  Folder folder_;
};

TEST_F(Tune, MeasuresBothDirectionsAndExplainGoesByIt) {
  const Outcome tuned = tune({});
  if (tuned.exit_code == 3) GTEST_SKIP() << tuned.err;
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  const auto kernels = tuned.json()["kernels"];
  ASSERT_EQ(kernels.size(), 2U);
  EXPECT_EQ(kernels[0]["kernel"], "forward d32 96 x 96");
  EXPECT_EQ(kernels[1]["kernel"], "backward d32 96 x 96");
  for (const auto& kernel : kernels) {
    EXPECT_TRUE(kernel["remembered"].get<bool>());
    EXPECT_EQ(kernel["candidates"].size(), 3U);
    EXPECT_LE(kernel["best"]["milliseconds"].get<double>(), kernel["best"]["default_milliseconds"].get<double>());
  }
  const Environment cache{{"FLASHSPAN_CACHE_DIR", folder_ / "cache"}};
  const std::vector<std::string> explain{"explain", "--mask", "causal",   "--arch", "cpu",        "--dtype", "f32",
                                         "--q-len", "100",    "--kv-len", "100",    "--head-dim", "32",      "--json"};
  const auto reason = [&](const Environment& environment) {
    return run_command(explain, environment).json()["directions"][0]["tile_reason"].get<std::string>();
  };
  EXPECT_THAT(reason(cache), HasSubstr("tuned for this class of shapes on "));
  EXPECT_EQ(reason({{"FLASHSPAN_CACHE_DIR", folder_ / "none"}}),
            "no result of tuning for this class of shapes, nor for another: the built-in table");
  EXPECT_THAT(
      reason({{"FLASHSPAN_CACHE_DIR", folder_ / "none"}, {"FLASHSPAN_TUNING_FILE", folder_ / "cache/tuning.jsonl"}}),
      HasSubstr("tuned"));
}

TEST_F(Tune, ShardsTogetherTuneEverythingOnce) {
  std::set<std::string> kernels;
  for (int shard = 0; shard < 2; ++shard) {
    const Outcome tuned = tune({"--head-dims", "16,32", "--lengths", "64,200", "--shard", std::to_string(shard) + "/2",
                                "--out", folder_ / ("part" + std::to_string(shard) + ".jsonl")});
    if (tuned.exit_code == 3) GTEST_SKIP() << tuned.err;
    ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
    EXPECT_EQ(tuned.json()["kernels"].size(), 4U);
    const auto json = tuned.json();
    for (const auto& kernel : json["kernels"]) kernels.insert(kernel["kernel"].get<std::string>());
  }
  EXPECT_EQ(kernels.size(), 8U);
  const Outcome merged = run_command(
      {"tune", "merge", folder_ / "part0.jsonl", folder_ / "part1.jsonl", "-o", folder_ / "all.jsonl", "--json"});
  ASSERT_EQ(merged.exit_code, 0) << merged.err;
  EXPECT_EQ(records_in("all.jsonl").size(), 8U);
}

TEST_F(Tune, AShareWithoutKernelsLeavesAFileToMerge) {
  const std::string part = folder_ / "part.jsonl";
  const Outcome tuned = tune({"--direction", "forward", "--shard", "1/2", "--out", part});
  if (tuned.exit_code == 3) GTEST_SKIP() << tuned.err;
  EXPECT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_EQ(tuned.json()["kernels"].size(), 0U);
  EXPECT_EQ(run_command({"tune", "merge", part, "-o", folder_ / "all.jsonl"}).exit_code, 0);
  EXPECT_EQ(run_command({"tune", "merge", part, folder_ / "lost.jsonl", "-o", folder_ / "all.jsonl"}).exit_code, 2);
}

TEST_F(Tune, AFileThatCannotBeWrittenIsAnErrorBeforeAnythingIsMeasured) {
  write_text(folder_ / "file", "");
  const Outcome refused = tune({"--direction", "forward", "--out", folder_ / "file/part.jsonl"});
  if (refused.exit_code == 3) GTEST_SKIP() << refused.err;
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("file/part.jsonl"));
  EXPECT_FALSE(refused.json().contains("kernels"));
}

TEST_F(Tune, ResultsTravelInBundles) {
  const Outcome tuned = tune({"--direction", "forward"});
  if (tuned.exit_code == 3) GTEST_SKIP() << tuned.err;
  const std::string bundle = folder_ / "kernels.fsb";
  ASSERT_EQ(run_command({"cache", "export", bundle, "--cache-dir", folder_ / "cache"}).exit_code, 0);
  EXPECT_THAT(run_command({"bundle", "ls", bundle}).out, HasSubstr("tuned tiles"));
  ASSERT_EQ(run_command({"cache", "import", bundle, "--cache-dir", folder_ / "other"}).exit_code, 0);
  EXPECT_EQ(records_in("other/tuning.jsonl"), records_in("cache/tuning.jsonl"));
  const Outcome explained = run_command({"explain", "--mask", "causal", "--arch", "cpu", "--dtype", "f32", "--q-len",
                                         "96", "--kv-len", "96", "--head-dim", "32"},
                                        {{"FLASHSPAN_CACHE_DIR", folder_ / "none"}, {"FLASHSPAN_CACHE_PATH", bundle}});
  EXPECT_THAT(explained.out, HasSubstr("tuned for this class of shapes")) << "of a layer";
}

TEST_F(Tune, DryRunsTellWhatEveryTileTakesOfAnyArchitecture) {
  const Outcome listed = run_command({"tune", "--dry-run", "--device", "sm_86", "--head-dim", "128", "--json"});
  ASSERT_EQ(listed.exit_code, 0) << listed.err;
  const auto kernels = listed.json()["kernels"];
  ASSERT_EQ(kernels.size(), 2U);
  for (const auto& kernel : kernels) {
    ASSERT_GE(kernel["tiles"].size(), 2U);
    for (const auto& tile : kernel["tiles"]) {
      EXPECT_LE(tile["shared_bytes"].get<int>(), 101376);
      EXPECT_GE(tile["blocks_per_multiprocessor"].get<int>(), 1);
    }
  }
}

TEST_F(Tune, BadInputIsOneLineThatNamesTheOption) {
  const auto expect = [](const Outcome& outcome, const std::string& line) {
    EXPECT_EQ(outcome.exit_code, 2);
    ASSERT_EQ(outcome.error_lines().size(), 1U) << outcome.err;
    EXPECT_THAT(outcome.error_lines()[0], HasSubstr(line));
  };
  expect(run_command({"tune", "--device", "cpu", "--tile", "64"}), "--tile: got 64; takes BLOCK_MxBLOCK_N");
  expect(run_command({"tune", "--device", "cpu", "--shard", "2/2"}), "--shard: got 2/2; takes I/N");
  expect(run_command({"tune", "--dry-run", "--device", "cuda"}), "--device: got cuda; takes cpu or an architecture");
  expect(run_command({"tune", "ls", folder_ / "none.jsonl"}), "tuning file: got " + (folder_ / "none.jsonl"));
}

TEST_F(Tune, CompileTakesATileAndWritesPrograms) {
  const Outcome compiled = run_command({"compile",
                                        "--mask",
                                        "causal",
                                        "--arch",
                                        "sm_80",
                                        "--direction",
                                        "forward",
                                        "--head-dim",
                                        "64",
                                        "--q-len",
                                        "256",
                                        "--kv-len",
                                        "256",
                                        "--tile",
                                        "64x96,4,3",
                                        "--emit-c",
                                        folder_ / "out",
                                        "--emit-ptx",
                                        folder_ / "out",
                                        "--name",
                                        "mine",
                                        "--cache-dir",
                                        folder_ / "cache",
                                        "--json"});
  if (compiled.exit_code == 3) GTEST_SKIP() << compiled.err;
  ASSERT_EQ(compiled.exit_code, 0) << compiled.err;
  EXPECT_THAT(compiled.json()["kernels"][0]["spec"].get<std::string>(), HasSubstr(" 64x96 "));
  EXPECT_THAT(read_text(folder_ / "out/mine_forward.h"), HasSubstr("CUresult mine_forward(CUstream stream"));
  EXPECT_THAT(read_text(folder_ / "out/mine_forward.c"), HasSubstr("#include \"mine_forward.h\""));
  EXPECT_THAT(read_text(folder_ / "out/mine_forward_sm_80.ptx"), HasSubstr(".entry attention_forward"));
  const Outcome refused = run_command({"compile", "--mask", "causal", "--arch", "sm_80", "--tile", "10x10",
                                       "--direction", "forward", "--cache-dir", folder_ / "cache"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("tile: got 10x10, 1 warp, 1 stage; takes one of those of this kernel"));
}

}  // namespace
