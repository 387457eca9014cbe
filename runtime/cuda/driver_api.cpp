#include "runtime/cuda/driver_api.hpp"

#include <dlfcn.h>

#include <string>

namespace flashspan::cuda {
namespace {

constexpr const char* library_name = "libcuda.so.1";
constexpr const char* driver_wanted = "an NVIDIA driver for CUDA 12.0 or later (525.60 or later)";

Error no_driver(std::string got, std::string detail = "") {
  return Error{ErrorCode::no_device, "CUDA driver", std::move(got), driver_wanted, std::move(detail)};
}

/// cuGetProcAddress_v2 (CUDA 12.0): finds a function by its name and by the version that introduced its signature.
using GetProcAddress = CUresult (*)(const char* symbol, void** function, int version, unsigned long long flags,
                                    int* query_result);

/// Collects the functions of a DriverApi; remembers the first that is missing.
struct Resolver {
  GetProcAddress get_proc_address;
  std::string missing;

  template <typename Function>
  void operator()(Function& function, const char* symbol, int version) {
    void* address = nullptr;
    const CUresult code = get_proc_address(symbol, &address, version, 0, nullptr);
    if ((code != cuda_success || address == nullptr) && missing.empty()) missing = symbol;
    function = reinterpret_cast<Function>(address);
  }
};

/// Versions are those of cudaTypedefs.h (PFN_<name>_v<version>).
void resolve_all(Resolver& resolve, DriverApi& api) {
  resolve(api.init, "cuInit", 2000);
  resolve(api.driver_get_version, "cuDriverGetVersion", 2020);
  resolve(api.get_error_name, "cuGetErrorName", 6000);
  resolve(api.get_error_string, "cuGetErrorString", 6000);
  resolve(api.device_get_count, "cuDeviceGetCount", 2000);
  resolve(api.device_get, "cuDeviceGet", 2000);
  resolve(api.device_get_name, "cuDeviceGetName", 2000);
  resolve(api.device_get_attribute, "cuDeviceGetAttribute", 2000);
  resolve(api.device_total_mem, "cuDeviceTotalMem", 3020);
  resolve(api.device_primary_ctx_retain, "cuDevicePrimaryCtxRetain", 7000);
  resolve(api.ctx_get_current, "cuCtxGetCurrent", 4000);
  resolve(api.ctx_push_current, "cuCtxPushCurrent", 4000);
  resolve(api.ctx_pop_current, "cuCtxPopCurrent", 4000);
  resolve(api.mem_alloc, "cuMemAlloc", 3020);
  resolve(api.mem_free, "cuMemFree", 3020);
  resolve(api.memcpy_htod, "cuMemcpyHtoD", 3020);
  resolve(api.memcpy_dtoh, "cuMemcpyDtoH", 3020);
  resolve(api.memset_d8_async, "cuMemsetD8Async", 3020);
  resolve(api.stream_synchronize, "cuStreamSynchronize", 2000);
  resolve(api.stream_get_id, "cuStreamGetId", 12000);
  resolve(api.stream_is_capturing, "cuStreamIsCapturing", 10000);
  resolve(api.event_create, "cuEventCreate", 2000);
  resolve(api.event_destroy, "cuEventDestroy", 4000);
  resolve(api.event_record, "cuEventRecord", 2000);
  resolve(api.event_query, "cuEventQuery", 2000);
  resolve(api.event_synchronize, "cuEventSynchronize", 2000);
  resolve(api.event_elapsed_time, "cuEventElapsedTime", 2000);
  resolve(api.thread_exchange_stream_capture_mode, "cuThreadExchangeStreamCaptureMode", 10010);
  resolve(api.library_load_data, "cuLibraryLoadData", 12000);
  resolve(api.library_unload, "cuLibraryUnload", 12000);
  resolve(api.library_get_kernel, "cuLibraryGetKernel", 12000);
  resolve(api.kernel_get_function, "cuKernelGetFunction", 12000);
  resolve(api.kernel_set_attribute, "cuKernelSetAttribute", 12000);
  resolve(api.tensor_map_encode_tiled, "cuTensorMapEncodeTiled", 12000);
  resolve(api.launch_kernel_ex, "cuLaunchKernelEx", 11060);
}

/// Never closed: the table lives for the rest of the process.
Result<const DriverApi*> open_driver() {
  void* library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    return no_driver("none", reason == nullptr ? library_name : reason);
  }
  const auto get_proc_address = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
  if (get_proc_address == nullptr) return no_driver("a driver without cuGetProcAddress_v2");

  static DriverApi api;
  Resolver resolve{get_proc_address, ""};
  resolve_all(resolve, api);
  if (!resolve.missing.empty()) return no_driver("a driver without " + resolve.missing);
  if (const CUresult code = api.init(0); code != cuda_success) {
    Error error = driver_error(api, "cuInit", code);
    error.code = ErrorCode::no_device;
    return error;
  }
  return &api;
}

}  // namespace

Result<const DriverApi*> system_driver() {
  static const Result<const DriverApi*> driver = open_driver();
  return driver;
}

std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Error driver_error(const DriverApi& driver, const char* call, CUresult code) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (driver.get_error_name(code, &name) != cuda_success || name == nullptr) name = "unknown CUresult";
  if (driver.get_error_string(code, &text) != cuda_success || text == nullptr) text = "no text";
  return Error{ErrorCode::device_error, call, std::string(name) + " (" + std::to_string(code) + "): " + text,
               "CUDA_SUCCESS", ""};
}

}  // namespace flashspan::cuda
