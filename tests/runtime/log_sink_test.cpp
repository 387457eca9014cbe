// FLASHSPAN_LOG: a level, and where lines go.
#include "runtime/api/log_sink.hpp"

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "tests/runtime/private_folder.hpp"

namespace flashspan::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStderr;
using ::testing::internal::GetCapturedStdout;

TEST(StandardLog, WritesLinesOfItsLevelAndAboveIntoItsFile) {
  PrivateFolder folder;
  const std::string file = folder.path() / "of:two.log";
  std::ofstream(file) << "there before\n";
  const LogSink log = api::standard_log("info:" + file);
  log(LogLevel::debug, "a detail");
  log(LogLevel::info, "a compile");
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  EXPECT_THAT(text.str(), ::testing::StartsWith("there before\n"));
  EXPECT_THAT(text.str(), ::testing::EndsWith("[flashspan] [info] a compile\n"));
  EXPECT_THAT(text.str(), ::testing::Not(HasSubstr("a detail")));
}

TEST(StandardLog, AFileThatCannotBeOpenedGivesWayToStandardErrorAndSaysSo) {
  CaptureStderr();
  api::standard_log("error:/proc/no/such/file")(LogLevel::error, "a fault");
  const std::string text = GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("a fault"));
  CaptureStderr();
  (void)api::standard_log("warning:/proc/no/such/file");
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("/proc/no/such/file"));
}

TEST(StandardLog, TakesStandardOutputAndTellsOfUnknownLevels) {
  CaptureStdout();
  CaptureStderr();
  api::standard_log("warning:stdout")(LogLevel::warning, "a warning");
  (void)api::standard_log("loud");
  EXPECT_THAT(GetCapturedStdout(), HasSubstr("a warning"));
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("FLASHSPAN_LOG: got loud"));
}

}  // namespace
}  // namespace flashspan::testing
