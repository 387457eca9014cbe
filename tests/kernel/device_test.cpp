// Device code of templates/ in small pieces: each file of tests/kernel/device is compiled by our own JIT and, where
// there is a GPU, run.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "codegen/kernel/emit_cuda.hpp"
#include "codegen/kernel/template_library.hpp"
#include "codegen/kernel/tile_config.hpp"
#include "runtime/cuda/cuda_device.hpp"
#include "runtime/cuda/cuda_kernel.hpp"
#include "runtime/cuda/cuda_memory.hpp"
#include "tests/cuda/nvrtc_fixture.hpp"

namespace flashspan::cuda {
namespace {

constexpr int threads = 128;

/// What check.cuh counts.
struct Checks {
  int count;
  int failures;
  int first_line;
};

std::string read(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

kernel::SourceText device_test(const std::string& name) {
  const std::filesystem::path folder = std::filesystem::path(FLASHSPAN_SOURCE_DIR) / "tests/kernel/device";
  kernel::SourceText source;
  source.programs.push_back({"", read(folder / (name + ".cu")), {kernel::entry_forward}});
  source.files.push_back({"check.cuh", read(folder / "check.cuh")});
  for (const kernel::TemplateFile& file : kernel::template_library()) {
    source.files.push_back({std::string(file.name), std::string(file.text)});
  }
  return source;
}

class DeviceCode : public WithNvrtc, public testing::WithParamInterface<const char*> {};

TEST_P(DeviceCode, CompilesWithoutWarnings) {
  const auto binary = compiler().compile(device_test(GetParam()), {90, 0});
  ASSERT_TRUE(binary) << binary.error().message();
  EXPECT_EQ(binary->report.log, "");
}

TEST_P(DeviceCode, HoldsOnTheGpu) {
  const auto driver = system_driver();
  if (!driver) GTEST_SKIP() << "no GPU: " << driver.error().got;
  const auto devices = cuda_devices(**driver);
  if (!devices || devices->empty()) GTEST_SKIP() << "no GPU of compute capability 8.0 or later";
  const auto device = CudaDevice::open(**driver, devices->front().index);
  ASSERT_TRUE(device) << device.error().message();
  const auto facts = device->facts();
  ASSERT_TRUE(facts) << facts.error().message();
  const auto binary = compiler().compile(device_test(GetParam()), facts->target.arch);
  ASSERT_TRUE(binary) << binary.error().message();
  kernel::KernelSpec spec;
  spec.target = facts->target;
  spec.dtype = DType::bf16;
  spec.head_dim_qk = spec.head_dim_v = 64;
  spec.lowering = mask::LoweringKind::none;
  const auto kernel = CudaKernel::load(*device, binary->bytes(), spec);
  ASSERT_TRUE(kernel) << kernel.error().message();

  const auto memory = allocate(*device, sizeof(Checks));
  ASSERT_TRUE(memory) << memory.error().message();
  Checks checks{};
  ASSERT_TRUE(copy_from_host(*device, memory->get(), &checks, sizeof(Checks)));
  {
    const ContextScope scope(*device);
    ASSERT_TRUE(scope.entered());
    void* pointer = memory->get();
    std::array<void*, 1> arguments{&pointer};
    const auto launched = (*kernel)->launch(EntryPoint::forward, 1, threads, {}, arguments);
    ASSERT_TRUE(launched) << launched.error().message();
  }
  ASSERT_TRUE(synchronize(*device, {}));
  ASSERT_TRUE(copy_to_host(*device, &checks, memory->get(), sizeof(Checks)));
  EXPECT_GT(checks.count, 100);
  EXPECT_EQ(checks.failures, 0) << "first in " << GetParam() << ".cu, line " << checks.first_line;
}

INSTANTIATE_TEST_SUITE_P(Templates, DeviceCode, testing::Values("arithmetic", "intervals", "items", "tiles"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace flashspan::cuda
