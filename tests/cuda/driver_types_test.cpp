// Our declarations of the driver API against cuda.h, on machines that have one; nothing is linked.
#if __has_include(<cuda.h>)
#include <cuda.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

#include "runtime/cuda/driver_api.hpp"
#include "templates/attention/parameters.cuh"

namespace ours = flashspan::cuda;

namespace {

TEST(DriverTypes, LaunchConfigHasTheLayoutOfCudaH) {
  using Theirs = ::CUlaunchConfig;
  using Ours = ours::CUlaunchConfig;
  EXPECT_EQ(sizeof(Ours), sizeof(Theirs));
  EXPECT_EQ(offsetof(Ours, grid_x), offsetof(Theirs, gridDimX));
  EXPECT_EQ(offsetof(Ours, grid_z), offsetof(Theirs, gridDimZ));
  EXPECT_EQ(offsetof(Ours, block_x), offsetof(Theirs, blockDimX));
  EXPECT_EQ(offsetof(Ours, dynamic_shared_bytes), offsetof(Theirs, sharedMemBytes));
  EXPECT_EQ(offsetof(Ours, stream), offsetof(Theirs, hStream));
  EXPECT_EQ(offsetof(Ours, attributes), offsetof(Theirs, attrs));
  EXPECT_EQ(offsetof(Ours, attribute_count), offsetof(Theirs, numAttrs));
}

TEST(DriverTypes, LaunchAttributesHaveTheLayoutOfCudaH) {
  using Theirs = ::CUlaunchAttribute;
  using Ours = ours::CUlaunchAttribute;
  EXPECT_EQ(sizeof(Ours), sizeof(Theirs));
  EXPECT_EQ(offsetof(Ours, id), offsetof(Theirs, id));
  EXPECT_EQ(offsetof(Ours, value), offsetof(Theirs, value));
}

TEST(DriverTypes, NumbersAreThoseOfCudaH) {
  EXPECT_EQ(ours::cuda_success, static_cast<int>(CUDA_SUCCESS));
  EXPECT_EQ(ours::cuda_error_invalid_value, static_cast<int>(CUDA_ERROR_INVALID_VALUE));
  EXPECT_EQ(ours::cuda_error_deinitialized, static_cast<int>(CUDA_ERROR_DEINITIALIZED));
  EXPECT_EQ(ours::cuda_error_no_device, static_cast<int>(CUDA_ERROR_NO_DEVICE));
  EXPECT_EQ(ours::cuda_error_not_ready, static_cast<int>(CUDA_ERROR_NOT_READY));
  EXPECT_EQ(ours::device_attribute_multiprocessor_count, static_cast<int>(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  EXPECT_EQ(ours::device_attribute_compute_capability_major,
            static_cast<int>(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
  EXPECT_EQ(ours::device_attribute_compute_capability_minor,
            static_cast<int>(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  EXPECT_EQ(ours::device_attribute_max_shared_memory_per_block_optin,
            static_cast<int>(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  EXPECT_EQ(ours::function_attribute_max_dynamic_shared_size_bytes,
            static_cast<int>(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES));
  EXPECT_EQ(ours::function_attribute_non_portable_cluster_size_allowed,
            static_cast<int>(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED));
  EXPECT_EQ(ours::launch_attribute_cooperative, static_cast<int>(CU_LAUNCH_ATTRIBUTE_COOPERATIVE));
  EXPECT_EQ(ours::launch_attribute_cluster_dimension, static_cast<int>(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION));
  EXPECT_EQ(ours::launch_attribute_cluster_scheduling,
            static_cast<int>(CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE));
  EXPECT_EQ(ours::launch_attribute_programmatic_serialization,
            static_cast<int>(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION));
  EXPECT_EQ(ours::cluster_scheduling_spread, static_cast<int>(CU_CLUSTER_SCHEDULING_POLICY_SPREAD));
  EXPECT_EQ(ours::stream_capture_mode_relaxed, static_cast<int>(CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_EQ(ours::stream_capture_status_none, static_cast<int>(CU_STREAM_CAPTURE_STATUS_NONE));
  EXPECT_EQ(ours::tensor_map_float16, static_cast<int>(CU_TENSOR_MAP_DATA_TYPE_FLOAT16));
  EXPECT_EQ(ours::tensor_map_bfloat16, static_cast<int>(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16));
  EXPECT_EQ(ours::tensor_map_interleave_none, static_cast<int>(CU_TENSOR_MAP_INTERLEAVE_NONE));
  EXPECT_EQ(ours::tensor_map_swizzle_128b, static_cast<int>(CU_TENSOR_MAP_SWIZZLE_128B));
  EXPECT_EQ(ours::tensor_map_l2_promotion_256b, static_cast<int>(CU_TENSOR_MAP_L2_PROMOTION_L2_256B));
  EXPECT_EQ(ours::tensor_map_oob_fill_none, static_cast<int>(CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  EXPECT_EQ(ours::event_default, static_cast<unsigned>(CU_EVENT_DEFAULT));
  EXPECT_EQ(ours::event_disable_timing, static_cast<unsigned>(CU_EVENT_DISABLE_TIMING));
}

TEST(DriverTypes, HandlesHaveTheSizesOfCudaH) {
  EXPECT_EQ(sizeof(ours::CUresult), sizeof(::CUresult));
  EXPECT_EQ(sizeof(ours::CUdevice), sizeof(::CUdevice));
  EXPECT_EQ(sizeof(ours::CUdeviceptr), sizeof(::CUdeviceptr));
  EXPECT_EQ(sizeof(flashspan_device::TensorMap), sizeof(::CUtensorMap));
  EXPECT_EQ(alignof(flashspan_device::TensorMap), alignof(::CUtensorMap));
}

}  // namespace
#endif
