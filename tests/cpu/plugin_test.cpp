// The CPU plug-in as a process sees it: one exported symbol, an ABI number, and no LLVM before it is opened.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "flashspan/mask.hpp"
#include "runtime/backend/backend.hpp"
#include "runtime/backend/cpu_plugin.h"

namespace flashspan {
namespace {

std::string output_of(const std::string& command) {
  std::string text;
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), &pclose);
  std::array<char, 4096> buffer{};
  while (pipe != nullptr && std::fgets(buffer.data(), buffer.size(), pipe.get()) != nullptr) text += buffer.data();
  return text;
}

std::string mapped_files() {
  std::ifstream maps("/proc/self/maps");
  std::stringstream text;
  text << maps.rdbuf();
  return text.str();
}

class Plugin : public testing::Test {
 protected:
  // Never closed: threads of TBB may still be in its code.
  static void* handle() {
    static void* const opened = dlopen(FLASHSPAN_CPU_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    return opened;
  }
  static flashspan_cpu_backend_entry entry() {
    return reinterpret_cast<flashspan_cpu_backend_entry>(dlsym(handle(), FLASHSPAN_CPU_PLUGIN_ENTRY));
  }
};

// First in the file, so that nothing has opened the plug-in yet (CTest runs it in a process of its own as well).
TEST_F(Plugin, AProgramThatLinksFlashspanHasNoLlvmInIt) {
  const Result<Mask> mask = Mask::parse("q >= k");
  ASSERT_TRUE(mask.has_value());
  EXPECT_THAT(mapped_files(), testing::Not(testing::HasSubstr("LLVM")));
  EXPECT_THAT(mapped_files(), testing::Not(testing::HasSubstr("flashspan_cpu.so")));
}

TEST_F(Plugin, ExportsExactlyOneSymbol) {
  const std::string listing = output_of(std::string(FLASHSPAN_NM) + " -D --defined-only " + FLASHSPAN_CPU_PLUGIN);
  std::istringstream lines(listing);
  std::vector<std::string> names;
  for (std::string address, kind, name; lines >> address >> kind >> name;) names.push_back(name);
  EXPECT_THAT(names, testing::ElementsAre(FLASHSPAN_CPU_PLUGIN_ENTRY)) << listing;
}

TEST_F(Plugin, NeedsNoSharedLlvm) {
  ASSERT_NE(handle(), nullptr) << dlerror();
  EXPECT_THAT(mapped_files(), testing::Not(testing::HasSubstr("libLLVM")));
}

TEST_F(Plugin, RefusesAnotherAbi) {
  ASSERT_NE(handle(), nullptr) << dlerror();
  EXPECT_EQ(entry()(FLASHSPAN_CPU_PLUGIN_ABI + 1), nullptr);
}

TEST_F(Plugin, GivesABackendForTheCpu) {
  ASSERT_NE(handle(), nullptr) << dlerror();
  const std::unique_ptr<backend::Backend> backend(static_cast<backend::Backend*>(entry()(FLASHSPAN_CPU_PLUGIN_ABI)));
  ASSERT_NE(backend, nullptr);
  EXPECT_EQ(backend->facts().device, Device{});
  EXPECT_EQ(backend->facts().target.kind, DeviceKind::cpu);
  EXPECT_FALSE(backend->facts().name.empty());
  EXPECT_GE(backend->facts().processors, 1);
  EXPECT_EQ(backend->language(), kernel::Language::llvm_ir);
  const Result<std::string> identity = backend->compiler_identity();
  ASSERT_TRUE(identity.has_value());
  EXPECT_THAT(*identity, testing::StartsWith("llvm "));
}

}  // namespace
}  // namespace flashspan
