// driver_api.hpp -- DriverApi: libcuda opened at run time, as one table of functions, and the one mapper from its
// result codes to Error. Nothing links against libcuda, so a program without a driver starts and says what is missing.
#pragma once

#include <cstddef>

#include "flashspan/core/error.hpp"
#include "runtime/cuda/driver_types.hpp"

namespace flashspan::cuda {

/// The driver functions that we call, each under the name of its CUDA function. A test can fill in its own.
struct DriverApi {
  CUresult (*init)(unsigned flags) = nullptr;
  CUresult (*driver_get_version)(int* version) = nullptr;
  CUresult (*get_error_name)(CUresult error, const char** name) = nullptr;
  CUresult (*get_error_string)(CUresult error, const char** text) = nullptr;

  CUresult (*device_get_count)(int* count) = nullptr;
  CUresult (*device_get)(CUdevice* device, int ordinal) = nullptr;
  CUresult (*device_get_name)(char* name, int length, CUdevice device) = nullptr;
  CUresult (*device_get_attribute)(int* value, int attribute, CUdevice device) = nullptr;
  CUresult (*device_total_mem)(std::size_t* bytes, CUdevice device) = nullptr;
  CUresult (*device_primary_ctx_retain)(CUcontext* context, CUdevice device) = nullptr;
  CUresult (*ctx_get_current)(CUcontext* context) = nullptr;
  CUresult (*ctx_push_current)(CUcontext context) = nullptr;
  CUresult (*ctx_pop_current)(CUcontext* context) = nullptr;

  CUresult (*mem_alloc)(CUdeviceptr* pointer, std::size_t bytes) = nullptr;
  CUresult (*mem_free)(CUdeviceptr pointer) = nullptr;
  CUresult (*memcpy_htod)(CUdeviceptr device, const void* host, std::size_t bytes) = nullptr;
  CUresult (*memcpy_dtoh)(void* host, CUdeviceptr device, std::size_t bytes) = nullptr;
  CUresult (*memset_d8_async)(CUdeviceptr device, unsigned char value, std::size_t bytes, CUstream stream) = nullptr;
  CUresult (*stream_synchronize)(CUstream stream) = nullptr;
  CUresult (*stream_get_id)(CUstream stream, unsigned long long* number) = nullptr;
  CUresult (*stream_is_capturing)(CUstream stream, int* status) = nullptr;
  CUresult (*event_create)(CUevent* event, unsigned flags) = nullptr;
  CUresult (*event_destroy)(CUevent event) = nullptr;
  CUresult (*event_record)(CUevent event, CUstream stream) = nullptr;
  CUresult (*event_query)(CUevent event) = nullptr;
  CUresult (*event_synchronize)(CUevent event) = nullptr;
  CUresult (*event_elapsed_time)(float* milliseconds, CUevent begin, CUevent end) = nullptr;
  CUresult (*thread_exchange_stream_capture_mode)(int* mode) = nullptr;

  CUresult (*library_load_data)(CUlibrary* library, const void* code, void* jit_options, void** jit_values,
                                unsigned jit_count, void* library_options, void** library_values,
                                unsigned library_count) = nullptr;
  CUresult (*library_unload)(CUlibrary library) = nullptr;
  CUresult (*library_get_kernel)(CUkernel* kernel, CUlibrary library, const char* name) = nullptr;
  CUresult (*kernel_get_function)(CUfunction* function, CUkernel kernel) = nullptr;
  CUresult (*kernel_set_attribute)(int attribute, int value, CUkernel kernel, CUdevice device) = nullptr;
  CUresult (*tensor_map_encode_tiled)(void* map, int data_type, unsigned rank, void* address,
                                      const unsigned long long* extents, const unsigned long long* strides,
                                      const unsigned* box, const unsigned* element_strides, int interleave, int swizzle,
                                      int l2_promotion, int oob_fill) = nullptr;
  CUresult (*launch_kernel_ex)(const CUlaunchConfig* config, CUfunction function, void** parameters,
                               void** extra) = nullptr;
};

/// The installed driver, opened and initialised on the first call, for the rest of the process.
/// Error: no_device if there is no libcuda.so.1, it is older than CUDA 12.0, or it finds no usable device.
[[nodiscard]] Result<const DriverApi*> system_driver();

/// "13.0" for 13000.
[[nodiscard]] std::string cuda_version_text(int version);

/// The Error for a driver call that did not succeed: device_error, argument = the call, got = the code's name and text.
[[nodiscard]] Error driver_error(const DriverApi& driver, const char* call, CUresult code);

/// Success, or driver_error().
[[nodiscard]] inline Result<void> check(const DriverApi& driver, const char* call, CUresult code) {
  if (code == cuda_success) return {};
  return driver_error(driver, call, code);
}

}  // namespace flashspan::cuda
