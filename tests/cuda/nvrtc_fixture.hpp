// nvrtc_fixture.hpp -- the NVRTC of this machine, for tests that compile; without one they are skipped.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "runtime/cuda/nvrtc_compiler.hpp"

namespace flashspan::cuda {

inline NvrtcSearch machine_search() {
  NvrtcSearch search;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && search.cuda_home.empty()) search.cuda_home = value;
  }
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const char* value = std::getenv(name); value != nullptr) search.extra_folders.emplace_back(value);
  }
  if (const char* home = std::getenv("HOME"); home != nullptr) {
    search.extra_folders.push_back(std::string(home) + "/.local");
  }
  return search;
}

class WithNvrtc : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = NvrtcCompiler::open(machine_search());
    if (!opened) GTEST_SKIP() << "no NVRTC on this machine: " << opened.error().got;
    compiler_ = *opened;
  }

  [[nodiscard]] const NvrtcCompiler& compiler() const { return *compiler_; }
  [[nodiscard]] Result<backend::Binary> compile(std::string main, std::vector<std::string> entry_points = {},
                                                Arch arch = {80, 0}) const {
    kernel::SourceText source;
    source.programs.push_back({"", std::move(main), std::move(entry_points)});
    return compiler_->compile(source, arch);
  }

 private:
  std::shared_ptr<const NvrtcCompiler> compiler_;
};

}  // namespace flashspan::cuda
