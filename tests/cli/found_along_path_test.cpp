// found_along_path_test.cpp -- a command that the shell finds along PATH is called by its name alone, which may also be
// that of a file in the working folder: what the command opens at run time is looked for beside itself, never there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "process.hpp"

namespace {

using namespace cli_test;
using testing::HasSubstr;
using testing::Not;

TEST(CommandFoundAlongPath, OpensNothingOfTheWorkingFolder) {
  const Folder folder;
  for (const char* const name : {"flashspan", "libflashspan_cpu.so", "libflashspan_network.so"}) {
    write_text(folder / name, "of somebody else");
  }
  const std::string its_folder = std::filesystem::path(FLASHSPAN_COMMAND).parent_path().string();
  const Outcome outcome =
      run_program({"/bin/sh", "-c", "cd '" + folder.path() + "' && exec flashspan doctor"},
                  {{"PATH", its_folder + ":/usr/bin:/bin"}, {"LD_DEBUG", "files"}});  // the loader tells what it opens
  EXPECT_THAT(outcome.err, HasSubstr(its_folder + "/libflashspan_cpu.so"));
  EXPECT_THAT(outcome.err, Not(HasSubstr(folder.path())));
}

}  // namespace
