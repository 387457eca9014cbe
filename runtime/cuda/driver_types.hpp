// driver_types.hpp -- the few types and constants of the CUDA driver API that we use, declared by ourselves so that
// building needs no CUDA header. Names and values are those of cuda.h; a test compares the two where there is one.
#pragma once

namespace flashspan::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUlibrary = struct CUlib_st*;
using CUkernel = struct CUkern_st*;
using CUfunction = struct CUfunc_st*;

// CUresult
inline constexpr CUresult cuda_success = 0;
inline constexpr CUresult cuda_error_invalid_value = 1;
inline constexpr CUresult cuda_error_deinitialized = 4;
inline constexpr CUresult cuda_error_no_device = 100;
inline constexpr CUresult cuda_error_invalid_image = 200;
inline constexpr CUresult cuda_error_no_binary_for_gpu = 209;
inline constexpr CUresult cuda_error_invalid_ptx = 218;
inline constexpr CUresult cuda_error_unsupported_ptx_version = 222;
inline constexpr CUresult cuda_error_invalid_source = 300;
inline constexpr CUresult cuda_error_not_found = 500;
inline constexpr CUresult cuda_error_not_ready = 600;

// CUdevice_attribute
inline constexpr int device_attribute_multiprocessor_count = 16;
inline constexpr int device_attribute_compute_capability_major = 75;
inline constexpr int device_attribute_compute_capability_minor = 76;
inline constexpr int device_attribute_max_shared_memory_per_block_optin = 97;

// CUfunction_attribute
inline constexpr int function_attribute_max_dynamic_shared_size_bytes = 8;
inline constexpr int function_attribute_non_portable_cluster_size_allowed = 14;

// CUlaunchAttributeID
inline constexpr int launch_attribute_cooperative = 2;
inline constexpr int launch_attribute_cluster_dimension = 4;
inline constexpr int launch_attribute_cluster_scheduling = 5;
inline constexpr int launch_attribute_programmatic_serialization = 6;

// CUclusterSchedulingPolicy
inline constexpr int cluster_scheduling_spread = 1;

// CUstreamCaptureMode
inline constexpr int stream_capture_mode_relaxed = 2;

// CUstreamCaptureStatus
inline constexpr int stream_capture_status_none = 0;

// CUevent_flags
inline constexpr unsigned event_default = 0;
inline constexpr unsigned event_disable_timing = 2;

// CUtensorMapDataType, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill
inline constexpr int tensor_map_float16 = 6;
inline constexpr int tensor_map_bfloat16 = 9;
inline constexpr int tensor_map_interleave_none = 0;
inline constexpr int tensor_map_swizzle_128b = 3;
inline constexpr int tensor_map_l2_promotion_256b = 3;
inline constexpr int tensor_map_oob_fill_none = 0;

/// CUlaunchAttribute
struct CUlaunchAttribute {
  struct ClusterDimension {
    unsigned x, y, z;
  };
  int id = 0;
  alignas(8) union {
    char room[64] = {};
    int number;
    ClusterDimension cluster;
  } value;
};

/// CUlaunchConfig
struct CUlaunchConfig {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1;
  unsigned block_x = 1, block_y = 1, block_z = 1;
  unsigned dynamic_shared_bytes = 0;
  CUstream stream = nullptr;
  void* attributes = nullptr;
  unsigned attribute_count = 0;
};

}  // namespace flashspan::cuda
