// What a cubin says of its kernels' parameters is what the source declares.
#include "runtime/cuda/cubin_parameters.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "tests/cuda/nvrtc_fixture.hpp"

namespace flashspan::cuda {
namespace {

class CubinParameters : public WithNvrtc {
 protected:
  [[nodiscard]] std::vector<std::byte> cubin() const {
    const auto binary = compile(R"(
      struct Triple { int values[3]; };
      extern "C" __global__ void several(char first, double* second, Triple third, float fourth) {
        *second = first + third.values[2] + fourth;
      }
      extern "C" __global__ void none() {})");
    EXPECT_TRUE(binary) << binary.error().message();
    return binary ? binary->bytes() : std::vector<std::byte>{};
  }
};

TEST_F(CubinParameters, HaveTheOffsetsAndSizesOfTheirTypes) {
  const auto kernel = cubin_kernel(cubin(), "several");
  ASSERT_TRUE(kernel);
  EXPECT_EQ(kernel->parameters, (std::vector<KernelParameter>{{0, 1}, {8, 8}, {16, 12}, {28, 4}}));
  EXPECT_FALSE(kernel->required_block);
  const auto empty = cubin_kernel(cubin(), "none");
  ASSERT_TRUE(empty);
  EXPECT_TRUE(empty->parameters.empty());
}

TEST_F(CubinParameters, AreNothingOfKernelsThatAreNotThereAndOfBytesThatAreNoCubin) {
  std::vector<std::byte> bytes = cubin();
  EXPECT_FALSE(cubin_kernel(bytes, "another"));
  bytes.resize(bytes.size() / 2);
  EXPECT_FALSE(cubin_kernel(bytes, "several"));
  EXPECT_FALSE(cubin_kernel({}, "several"));
}

}  // namespace
}  // namespace flashspan::cuda
