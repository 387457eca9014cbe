// A file that processes add to at the same time: no change is lost, and readers see whole texts.
#include "cache/shared_file.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cache/temporary_directory.hpp"

namespace flashspan::cache {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(SharedFile, IsMadeWithItsFoldersAndChangedAfterwards) {
  const TemporaryDirectory directory;
  const auto path = directory.path() / "a" / "b" / "file";
  EXPECT_EQ(change_file(path, [](const std::string& old) { return old + "first\n"; }), 0);
  EXPECT_EQ(change_file(path, [](const std::string& old) { return old + "second\n"; }), 0);
  EXPECT_EQ(text_of(path), "first\nsecond\n");
}

TEST(SharedFile, KeepsTheLinesOfAllProcesses) {
  constexpr int processes = 8, lines = 20;
  const TemporaryDirectory directory;
  const auto path = directory.path() / "file";
  std::vector<pid_t> children;
  for (int process = 0; process < processes; ++process) {
    const pid_t child = fork();
    if (child == 0) {
      int failed = 0;
      for (int line = 0; line < lines; ++line) {
        failed |= change_file(path, [&](const std::string& old) {
          return old + std::to_string(process) + " " + std::to_string(line) + "\n";
        });
      }
      _exit(failed == 0 ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  std::set<std::string> seen;
  std::istringstream text(text_of(path));
  for (std::string line; std::getline(text, line);) seen.insert(line);
  EXPECT_EQ(seen.size(), std::size_t{processes} * lines);
}

TEST(SharedFile, ThatCannotBeWrittenIsTheErrorOfTheSystem) {
  const TemporaryDirectory directory;
  std::ofstream(directory.path() / "file") << "text";
  EXPECT_EQ(change_file(directory.path() / "file" / "below", [](const std::string& old) { return old; }), ENOTDIR);
  EXPECT_EQ(text_of(directory.path() / "file"), "text");
}

}  // namespace
}  // namespace flashspan::cache
