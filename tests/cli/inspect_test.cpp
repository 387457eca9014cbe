// inspect_test.cpp -- explain, compile, cache and doctor: fields, counts, exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "attend_case.hpp"
#include "process.hpp"

namespace {

using namespace cli_test;
using testing::HasSubstr;

TEST(Explain, CountsOfACausalMaskAreExact) {
  const Outcome outcome = flashspan_command({"explain", "--mask", "q >= k", "--q-len", "1000", "--head-dim", "64",
                                             "--batch", "2", "--heads", "4", "--kv-heads", "2", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto report = outcome.json();
  ASSERT_TRUE(report.is_object()) << outcome.out;
  EXPECT_FALSE(report["program"].get<std::string>().empty());
  EXPECT_EQ(report["depends_on"], "q, k");
  EXPECT_EQ(report["shape"]["query_heads"], 4);
  EXPECT_EQ(report["shape"]["kv_heads"], 2);
  EXPECT_EQ(report["shape"]["kv_len"], 1000);
  EXPECT_NEAR(report["density"].get<double>(), 1000.0 * 1001 / 2 / 1e6, 1e-12);
  EXPECT_EQ(report["tiles"]["visible_pairs"], 1000 * 1001 / 2);
  ASSERT_EQ(report["directions"].size(), 2U);
  const double pairs = 2.0 * 4 * 1000 * 1001 / 2;
  for (const auto& plan : report["directions"]) {
    const bool forward = plan["direction"] == "forward";
    EXPECT_NEAR(plan["flops"].get<double>(), pairs * (forward ? 2 * (64 + 64) : 2 * (3 * 64 + 2 * 64)), 1);
    EXPECT_EQ(plan["family"], "hopper");
    for (const char* field : {"lowering", "reason", "family_reason", "spec"})
      EXPECT_FALSE(plan[field].get<std::string>().empty());
    EXPECT_GT(plan["block_m"].get<int>(), 0);
    EXPECT_GT(plan["block_n"].get<int>(), 0);
  }
}

TEST(Explain, TextNamesEveryPart) {
  const Outcome outcome = flashspan_command(
      {"explain", "--mask", "(q >= k) & (q - k < 100)", "--score", "score - 0.5 * abs(q - k)", "--q-len", "512"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* part : {"program", "depends on", "score", "derivative", "density", "tiles", "lowering", "FLOPs",
                           "forward on sm_90a", "backward on sm_90a", "family    hopper: sm_90a, and every row"}) {
    EXPECT_THAT(outcome.out, HasSubstr(part));
  }
}

TEST(Explain, TheCpuIsAnArchitectureToo) {
  const Outcome outcome =
      flashspan_command({"explain", "--mask", "causal", "--q-len", "256", "--arch", "cpu", "--dtype", "f32", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["arch"], "cpu");
  EXPECT_EQ(outcome.json()["directions"][0]["family"], "");
}

TEST(Explain, ALoweringCanBeAskedFor) {
  const auto lowering = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"explain", "--mask", "(q >= k) & (q - k < 100)", "--q-len", "256", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return flashspan_command(arguments).json()["directions"][0]["lowering"].get<std::string>();
  };
  EXPECT_EQ(lowering({}), "row_ranges");
  EXPECT_EQ(lowering({"--lowering", "bit_tiles"}), "bit_tiles");
  const Outcome unknown = flashspan_command({"explain", "--mask", "causal", "--lowering", "fast"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.error_lines().front(), testing::AllOf(HasSubstr("--lowering"), HasSubstr("row_ranges")));
  const Outcome refused = flashspan_command({"explain", "--mask", "causal", "--lowering", "none"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.error_lines().front(), HasSubstr("forward lowering: got none"));
}

TEST(Explain, UnknownArchitecturesAreRefused) {
  const Outcome outcome = flashspan_command({"explain", "--mask", "causal", "--arch", "gfx942"});
  EXPECT_EQ(outcome.exit_code, 2);
  ASSERT_EQ(outcome.error_lines().size(), 1U);
  EXPECT_THAT(outcome.error_lines().front(),
              testing::AllOf(HasSubstr("--arch"), HasSubstr("gfx942"), HasSubstr("sm_90a")));
}

TEST(Architectures, ThatNoKernelRunsOnAreRefusedInOneLine) {
  const std::vector<std::vector<std::string>> commands{
      {"explain", "--mask", "causal", "--arch", "sm_75"},
      {"compile", "--mask", "causal", "--arch", "sm_80,sm_75"},
      {"compile", "--mask", "causal", "--arch", "sm_75", "--head-dim", "64", "--emit-ptx", "/nonexistent"},
      {"tune", "--dry-run", "--device", "sm_75"}};
  for (const std::vector<std::string>& command : commands) {
    const Outcome outcome = flashspan_command(command);
    EXPECT_EQ(outcome.exit_code, 2) << command[0];
    EXPECT_THAT(outcome.error_lines(), testing::ElementsAre("flashspan: arch: got sm_75; takes sm_80 or later"));
  }
}

/// True if the machine's doctor finds NVRTC.
bool has_nvrtc() {
  const auto report = flashspan_command({"doctor", "--json"}).json();
  for (const auto& finding : report["findings"]) {
    if (finding["subject"] == "nvrtc") return finding["ok"].get<bool>();
  }
  return false;
}

TEST(Compile, TwoArchitecturesGiveFourKernelsAndThenCacheHits) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC on this machine";
  const Folder folder;
  const std::vector<std::string> arguments{"compile",
                                           "--mask",
                                           "(q >= k) & (q - k < 300)",
                                           "--arch",
                                           "sm_80,sm_90a",
                                           "--head-dim",
                                           "64",
                                           "--dtype",
                                           "bf16",
                                           "--threads",
                                           "2",
                                           "--cache-dir",
                                           folder.path(),
                                           "--source-dir",
                                           folder / "sources",
                                           "--json"};
  const Outcome first = flashspan_command(arguments);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const auto kernels = first.json()["kernels"];
  ASSERT_EQ(kernels.size(), 4U);
  for (const auto& kernel : kernels) {
    EXPECT_EQ(kernel["outcome"], "built");
    EXPECT_EQ(kernel["key"].get<std::string>().size(), 32U);
    EXPECT_GT(kernel["registers"].get<int>(), 0);
    EXPECT_LE(kernel["registers"].get<int>(), 255);
    EXPECT_GT(kernel["compile_ms"].get<double>(), 0);
    EXPECT_EQ(kernel["spill_bytes"], 0);
  }
  for (const char* name : {"forward_sm_80.cu", "backward_sm_90a.cu"}) {
    EXPECT_TRUE(std::filesystem::exists(folder / (std::string("sources/") + name))) << name;
  }
  const Outcome second = flashspan_command(arguments);
  ASSERT_EQ(second.exit_code, 0) << second.err;
  for (std::size_t row = 0; row < 4; ++row) {
    EXPECT_EQ(second.json()["kernels"][row]["outcome"], "disk");
    EXPECT_EQ(second.json()["kernels"][row]["key"], kernels[row]["key"]);
  }
}

TEST(Compile, WithoutNvrtcTheExitCodeIsThreeAndARemedyIsNamed) {
  if (has_nvrtc()) GTEST_SKIP() << "this machine has NVRTC";
  const Outcome outcome = flashspan_command({"compile", "--arch", "sm_80"});
  EXPECT_EQ(outcome.exit_code, 3);
  ASSERT_EQ(outcome.error_lines().size(), 1U);
  EXPECT_THAT(outcome.err, HasSubstr("install"));
}

TEST(Compile, ATableRowAKernel) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC on this machine";
  const Outcome outcome = flashspan_command(
      {"compile", "--mask", "causal", "--arch", "sm_80", "--direction", "forward", "--head-dim", "64"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("registers"));
  EXPECT_THAT(outcome.out, HasSubstr("sm_80 forward"));
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 2);
}

TEST(Compile, BadRequestsAreRefused) {
  EXPECT_EQ(flashspan_command({"compile", "--arch", "sm_80,,sm_90"}).exit_code, 2);
  EXPECT_EQ(flashspan_command({"compile", "--arch", ""}).exit_code, 2);
  EXPECT_EQ(flashspan_command({"compile", "--arch", "sm_80", "--direction", "sideways"}).exit_code, 2);
  EXPECT_EQ(flashspan_command({"compile"}).exit_code, 2);
}

/// Runs attention once with the cache in `folder`, so that it holds entries.
void fill_cache(const Folder& folder) {
  const Folder inputs;
  auto arguments = attend_arguments(inputs, random_problem({1, 1, 1, 8, 8, 16, 16}, oracle::Format::f32, 3));
  arguments.insert(arguments.end(), {"--mask", "(q >= k) & (k % 5 != 3)", "--cache-dir", folder.path()});
  const Outcome outcome = flashspan_command(arguments);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
}

TEST(Cache, EntriesAreListedShownVerifiedAndPruned) {
  const Folder folder;
  fill_cache(folder);
  const auto listed = flashspan_command({"cache", "ls", "--cache-dir", folder.path(), "--json"}).json();
  ASSERT_GE(listed["entries"].size(), 1U) << listed;
  for (const auto& entry : listed["entries"]) {
    EXPECT_EQ(entry["key"].get<std::string>().size(), 32U);
    EXPECT_TRUE(entry["valid"].get<bool>());
    EXPECT_GT(entry["bytes"].get<std::int64_t>(), 0);
    EXPECT_FALSE(entry["spec"].get<std::string>().empty());
  }
  const std::string key = listed["entries"][0]["key"];
  const Outcome shown = flashspan_command({"cache", "show", key, "--cache-dir", folder.path(), "--json"});
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_EQ(shown.json()["key"], key);
  EXPECT_TRUE(shown.json()["metadata"].is_object());
  EXPECT_EQ(flashspan_command({"cache", "verify", "--cache-dir", folder.path()}).exit_code, 0);

  EXPECT_EQ(flashspan_command({"cache", "prune", "--cache-dir", folder.path()}).exit_code, 2);
  const Outcome kept = flashspan_command({"cache", "prune", "--older", "1d", "--cache-dir", folder.path(), "--json"});
  ASSERT_EQ(kept.exit_code, 0) << kept.err;
  EXPECT_EQ(kept.json()["entries"].size(), 0U);
  const Outcome pruned =
      flashspan_command({"cache", "prune", "--max-bytes", "0", "--cache-dir", folder.path(), "--json"});
  ASSERT_EQ(pruned.exit_code, 0) << pruned.err;
  EXPECT_EQ(pruned.json()["entries"].size(), listed["entries"].size());
  EXPECT_EQ(flashspan_command({"cache", "ls", "--cache-dir", folder.path(), "--json"}).json()["entries"].size(), 0U);
}

TEST(Cache, VerifyReportsADamagedEntry) {
  const Folder folder;
  fill_cache(folder);
  std::filesystem::path largest;
  std::uintmax_t size = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
    if (!entry.is_regular_file() || entry.file_size() <= size) continue;
    largest = entry.path();
    size = entry.file_size();
  }
  ASSERT_GT(size, 100U);
  std::string text = read_text(largest.string());
  text[text.size() - 40] ^= 1;
  write_text(largest.string(), text);
  const Outcome outcome = flashspan_command({"cache", "verify", "--cache-dir", folder.path(), "--json"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.json()["damaged"], 1);
  EXPECT_EQ(outcome.error_lines().size(), 1U) << outcome.err;
}

TEST(Cache, AnUnknownKeyIsRefused) {
  const Folder folder;
  const Outcome outcome = flashspan_command({"cache", "show", "feed", "--cache-dir", folder.path()});
  EXPECT_EQ(outcome.exit_code, 2);
  ASSERT_EQ(outcome.error_lines().size(), 1U);
  EXPECT_THAT(outcome.error_lines().front(), HasSubstr("feed"));
}

TEST(Doctor, EverySubjectIsReportedAndWhatIsMissingHasARemedy) {
  const Outcome outcome = flashspan_command({"doctor", "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;  // the CPU at least
  const auto report = outcome.json();
  std::string subjects;
  for (const auto& finding : report["findings"]) {
    subjects += finding["subject"].get<std::string>() + "\n";
    if (!finding["ok"].get<bool>()) {
      EXPECT_FALSE(finding["remedy"].get<std::string>().empty()) << finding;
    }
    // Several sentences stand apart, in one line.
    EXPECT_THAT(finding["detail"].get<std::string>(), testing::Not(testing::ContainsRegex(";[^ ]|\n")));
  }
  for (const char* subject : {"driver", "nvrtc", "cpu", "llvm", "cache"}) EXPECT_THAT(subjects, HasSubstr(subject));
  EXPECT_THAT(report["devices"].dump(), HasSubstr("cpu"));
}

TEST(Doctor, ACacheThatCannotBeWrittenToIsAFinding) {
  const Folder folder;
  write_text(folder / "file", "");
  const auto report = flashspan_command({"doctor", "--cache-dir", folder / "file/cache", "--json"}).json();
  const auto cache = std::ranges::find_if(report["findings"], [](const auto& it) { return it["subject"] == "cache"; });
  ASSERT_NE(cache, report["findings"].end());
  EXPECT_FALSE((*cache)["ok"].get<bool>());
  EXPECT_THAT((*cache)["detail"].get<std::string>(), HasSubstr("file/cache cannot be written to"));
}

TEST(Doctor, TextHasALineASubject) {
  const Outcome outcome = flashspan_command({"doctor"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("usable devices: "));
  EXPECT_THAT(outcome.out, HasSubstr("nvrtc"));
}

}  // namespace
