// pages_test.cpp -- commands that stand in the pages, run as they stand there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "flashspan/metrics.hpp"
#include "process.hpp"

namespace {

using namespace cli_test;
using testing::HasSubstr;

std::string page(const std::string& name) { return read_text(std::string(FLASHSPAN_SOURCE_DIR) + "/docs/" + name); }

/// The lines of a page that begin with `start`, each with those that continue it.
std::vector<std::string> commands_in(const std::string& text, const std::string& start) {
  std::vector<std::string> commands;
  std::istringstream lines(text);
  bool continues = false;
  for (std::string line; std::getline(lines, line);) {
    if (continues) {
      commands.back() += line;
    } else if (line.starts_with(start)) {
      commands.push_back(line);
    } else {
      continue;
    }
    continues = line.ends_with('\\');
    if (continues) commands.back().pop_back();
  }
  return commands;
}

/// As typed in `folder`, with the built command in the PATH.
Outcome typed(const Folder& folder, const std::string& command) {
  const char* path = std::getenv("PATH");
  const std::string built = std::filesystem::path(FLASHSPAN_COMMAND).parent_path().string();
  return run_program(
      {"/bin/sh", "-c", "cd '" + folder.path() + "' && " + command},
      {{"PATH", built + ":" + (path != nullptr ? path : "")}, {"FLASHSPAN_CACHE_DIR", folder / "cache"}});
}

TEST(Pages, TheCommandsOfTuningThatNeedNoGpuDoWhatTheySay) {
  const Folder folder;
  const auto candidates = commands_in(page("tuning.md"), "flashspan tune --dry-run");
  const auto explained = commands_in(page("tuning.md"), "flashspan explain");
  ASSERT_EQ(candidates.size(), 1U);
  ASSERT_EQ(explained.size(), 1U);
  EXPECT_THAT(typed(folder, candidates[0]).out, HasSubstr("occupancy"));
  EXPECT_THAT(typed(folder, explained[0]).out, HasSubstr("no result of tuning for this class of shapes"));
}

TEST(Pages, TheCommandsOfTritonWriteTheFilesThatThePageNames) {
  const Folder folder;
  const auto compiles = commands_in(page("triton.md"), "flashspan compile");
  ASSERT_EQ(compiles.size(), 2U);
  for (const std::string& command : compiles) {
    const Outcome outcome = typed(folder, command);
    if (outcome.exit_code == 3) GTEST_SKIP() << outcome.err;
    EXPECT_EQ(outcome.exit_code, 0) << command << "\n" << outcome.err;
  }
  const std::string header = read_text(folder / "generated/swa_forward.h");
  EXPECT_THAT(header, HasSubstr("CUresult swa_forward_load(void);"));
  const std::string ptx = read_text(folder / "attention_forward_sm_80.ptx");
  EXPECT_THAT(page("triton.md"), HasSubstr("\n# " + ptx.substr(0, ptx.find('\n')) + "\n"));
}

/// What stands behind each `start` in `text`, up to `end`.
std::set<std::string> names_behind(const std::string& text, const std::string& start, char end) {
  std::set<std::string> names;
  for (std::size_t at = text.find(start); at != std::string::npos; at = text.find(start, at + 1)) {
    const std::size_t begin = at + start.size();
    names.insert(text.substr(begin, text.find(end, begin) - begin));
  }
  return names;
}

TEST(Pages, TheOneOnServingListsEveryMetric) {
  const auto metrics = names_behind(flashspan::metrics_text(), "# TYPE ", ' ');
  EXPECT_GT(metrics.size(), 10U);
  const std::string serving = page("serving.md");
  for (const std::string& name : metrics) EXPECT_NE(serving.find("`" + name), std::string::npos) << name;
}

TEST(Pages, TheReadmeListsEveryVariableThatIsOurs) {
  const std::string sources = FLASHSPAN_SOURCE_DIR;
  const auto variables = names_behind(read_text(sources + "/runtime/api/settings.cpp"), "given(\"FLASHSPAN_", '"');
  EXPECT_GT(variables.size(), 10U);
  const std::string readme = read_text(sources + "/README.md");
  for (const std::string& name : variables) {
    EXPECT_NE(readme.find("`FLASHSPAN_" + name + "`"), std::string::npos) << name;
  }
}

}  // namespace
