// The network's shared object as a process sees it.
#include "network/plugin.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <string>

namespace flashspan::network {
namespace {

TEST(NetworkPlugin, ShowsItsEntryAndNothingElse) {
  const std::string command = std::string(FLASHSPAN_NM) + " -D --defined-only " + FLASHSPAN_NETWORK_PLUGIN;
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string symbols;
  std::array<char, 256> line{};
  while (std::fgets(line.data(), line.size(), pipe) != nullptr) symbols += line.data();
  EXPECT_EQ(::pclose(pipe), 0);
  EXPECT_TRUE(symbols.ends_with(" T flashspan_network\n")) << symbols;
  EXPECT_EQ(symbols.find('\n'), symbols.size() - 1) << symbols;
}

TEST(NetworkPlugin, RefusesALibraryOfAnotherVersion) {
  void* const handle = ::dlopen(FLASHSPAN_NETWORK_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(handle, nullptr) << ::dlerror();
  const auto entry = reinterpret_cast<flashspan_network_entry>(::dlsym(handle, FLASHSPAN_NETWORK_PLUGIN_ENTRY));
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry(FLASHSPAN_NETWORK_PLUGIN_ABI + 1), nullptr);
}

}  // namespace
}  // namespace flashspan::network
