// Kernels of other compilers are loaded with the shared memory and launched with the attributes that they ask for.
#include "runtime/cuda/foreign_kernel.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/cuda/empty_cubin.hpp"
#include "tests/cuda/fake_driver.hpp"

namespace flashspan::cuda {
namespace {

class ForeignKernels : public testing::Test {
 protected:
  [[nodiscard]] Result<std::shared_ptr<ForeignKernel>> load(const ForeignLaunch& launch) {
    return ForeignKernel::load(*CudaDevice::open(driver_.api(), 0), empty_cubin(), "their_kernel", launch);
  }
  [[nodiscard]] std::vector<std::pair<int, int>> attributes_set() const {
    std::vector<std::pair<int, int>> set;
    for (const FakeDriver::Attribute& attribute : driver_.attributes) {
      set.emplace_back(attribute.attribute, attribute.value);
    }
    return set;
  }

  FakeDriver driver_;
};

TEST_F(ForeignKernels, AreLaunchedAsTheyAsk) {
  ForeignLaunch launch;
  launch.grid_x = 6;
  launch.grid_y = 3;
  launch.threads = 128;
  launch.dynamic_shared_bytes = 60000;
  launch.cluster_x = 2;
  launch.cooperative = true;
  launch.programmatic_serialization = true;
  const auto kernel = load(launch);
  ASSERT_TRUE(kernel) << kernel.error().message();
  EXPECT_EQ(attributes_set(),
            (std::vector<std::pair<int, int>>{{function_attribute_max_dynamic_shared_size_bytes, 60000}}));

  std::vector<std::pair<int, std::array<unsigned, 3>>> attributes;
  int number = 7;
  driver_.on_foreign_launch = [&](const CUlaunchConfig& config, void** parameters) {
    EXPECT_EQ(config.grid_x, 6U);
    EXPECT_EQ(config.grid_y, 3U);
    EXPECT_EQ(config.grid_z, 1U);
    EXPECT_EQ(config.block_x, 128U);
    EXPECT_EQ(config.dynamic_shared_bytes, 60000U);
    EXPECT_EQ(parameters[0], &number);
    for (unsigned i = 0; i < config.attribute_count; ++i) {
      const CUlaunchAttribute& attribute = static_cast<const CUlaunchAttribute*>(config.attributes)[i];
      const auto& cluster = attribute.value.cluster;
      attributes.push_back({attribute.id, {cluster.x, cluster.y, cluster.z}});
    }
  };
  std::array<void*, 1> arguments{&number};
  ASSERT_TRUE((*kernel)->launch(launch, {}, arguments));
  using Attribute = std::pair<int, std::array<unsigned, 3>>;
  EXPECT_EQ(attributes,
            (std::vector<Attribute>{{launch_attribute_programmatic_serialization, {1, 0, 0}},
                                    {launch_attribute_cooperative, {1, 0, 0}},
                                    {launch_attribute_cluster_dimension, {2, 1, 1}},
                                    {launch_attribute_cluster_scheduling, {cluster_scheduling_spread, 0, 0}}}));
}

TEST_F(ForeignKernels, WithoutWishesHaveNoAttributes) {
  ForeignLaunch launch;
  launch.threads = 32;
  const auto kernel = load(launch);
  ASSERT_TRUE(kernel) << kernel.error().message();
  EXPECT_TRUE(attributes_set().empty());
  driver_.on_foreign_launch = [](const CUlaunchConfig& config, void**) {
    EXPECT_EQ(config.attribute_count, 0U);
    EXPECT_EQ(config.attributes, nullptr);
  };
  ASSERT_TRUE((*kernel)->launch(launch, {}, {}));
}

TEST_F(ForeignKernels, OfLargeClustersAskForThem) {
  ForeignLaunch launch;
  launch.cluster_x = 16;
  ASSERT_TRUE(load(launch));
  EXPECT_EQ(attributes_set(),
            (std::vector<std::pair<int, int>>{{function_attribute_non_portable_cluster_size_allowed, 1}}));
}

TEST_F(ForeignKernels, ThatNeedMoreSharedMemoryThanThereIsAreRefused) {
  ForeignLaunch launch;
  launch.dynamic_shared_bytes = 300000;
  const auto refused = load(launch);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_EQ(refused.error().message(),
            "their_kernel: got 300000 bytes of shared memory; takes at most 232448 on this device");
  EXPECT_FALSE(driver_.called("cuLibraryLoadData"));
}

TEST_F(ForeignKernels, AreUnloadedWithTheirLastOwnerAndAfterAFailure) {
  for (const char* call : {"cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelGetFunction"}) {
    driver_.failures = {{call, cuda_error_invalid_value}};
    const auto failed = load({});
    ASSERT_FALSE(failed) << call;
    EXPECT_EQ(failed.error().argument, call);
    EXPECT_EQ(driver_.live_libraries, 0) << call;
  }
  driver_.failures.clear();
  {
    const auto kernel = load({});
    EXPECT_EQ(driver_.live_libraries, 1);
  }
  EXPECT_EQ(driver_.live_libraries, 0);
}

}  // namespace
}  // namespace flashspan::cuda
