// compile_without_driver.cpp -- that a compile never calls the driver: NVRTC's own cache would (cuInit), and a process
// that forks later, or a build machine, must not have a driver opened in it. Its own program, because the driver that
// it counts on must be the first in the process.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "tests/cuda/nvrtc_fixture.hpp"

namespace flashspan::cuda {
namespace {

using CompileWithoutDriver = WithNvrtc;

TEST_F(CompileWithoutDriver, CallsNoDriverFunction) {
  // Under its soname, a later dlopen("libcuda.so.1") gives this one.
  void* library = dlopen(FLASHSPAN_RECORDING_LIBCUDA, RTLD_NOW | RTLD_GLOBAL);
  ASSERT_NE(library, nullptr) << dlerror();
  ASSERT_EQ(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), library);
  const auto uses = reinterpret_cast<int (*)()>(dlsym(library, "flashspan_libcuda_uses"));
  ASSERT_NE(uses, nullptr);

  const auto binary = compile("extern \"C\" __global__ void fill(int* p) { *p = 1; }", {"fill"});
  ASSERT_TRUE(binary) << binary.error().message();
  EXPECT_EQ(uses(), 0);
}

}  // namespace
}  // namespace flashspan::cuda
