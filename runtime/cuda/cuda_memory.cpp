#include "runtime/cuda/cuda_memory.hpp"

#include <algorithm>
#include <string>

#include "runtime/cuda/relaxed_capture.hpp"

namespace flashspan::cuda {
namespace {

/// cuMemAlloc refuses 0 bytes, and a null pointer means "not given".
constexpr std::int64_t smallest_allocation = 256;

CUdeviceptr device_pointer(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace

Result<std::shared_ptr<void>> allocate(const CudaDevice& device, std::int64_t bytes) {
  if (bytes < 0) return Error{ErrorCode::bad_argument, "bytes", std::to_string(bytes), "0 or more", ""};
  const DriverApi& driver = *device.driver;
  const ContextScope scope(device);
  if (!scope.entered()) return scope.entered().error();
  const RelaxedCapture relaxed(driver);
  CUdeviceptr pointer = 0;
  const CUresult code = driver.mem_alloc(&pointer, static_cast<std::size_t>(std::max(bytes, smallest_allocation)));
  if (code != cuda_success) {
    Error error = driver_error(driver, "cuMemAlloc", code);
    error.detail = std::to_string(bytes) + " bytes on cuda:" + std::to_string(device.ordinal);
    return error;
  }
  // The driver hands out addresses as integers.
  auto* address = reinterpret_cast<void*>(pointer);  // NOLINT(performance-no-int-to-ptr)
  return std::shared_ptr<void>(address, [device](void* memory) {
    const ContextScope owner(device);
    // At process exit the driver may be gone, and the memory with it: nothing is left to do or to say.
    if (!owner.entered()) return;
    const RelaxedCapture relaxed(*device.driver);
    device.driver->mem_free(device_pointer(memory));
  });
}

Result<void> copy_from_host(const CudaDevice& device, void* to, const void* from, std::int64_t bytes) {
  if (bytes <= 0) return {};
  const DriverApi& driver = *device.driver;
  const ContextScope scope(device);
  if (!scope.entered()) return scope.entered();
  const RelaxedCapture relaxed(driver);
  const CUresult code = driver.memcpy_htod(device_pointer(to), from, static_cast<std::size_t>(bytes));
  if (code != cuda_success) return driver_error(driver, "cuMemcpyHtoD", code);
  // From pageable memory the call may return before the last transfer has ended ("API synchronization behavior" in the
  // driver API's manual), and a non-blocking stream would not wait for it.
  return check(driver, "cuStreamSynchronize", driver.stream_synchronize(nullptr));
}

Result<void> copy_to_host(const CudaDevice& device, void* to, const void* from, std::int64_t bytes) {
  if (bytes <= 0) return {};
  const DriverApi& driver = *device.driver;
  const ContextScope scope(device);
  if (!scope.entered()) return scope.entered();
  const RelaxedCapture relaxed(driver);
  return check(driver, "cuMemcpyDtoH", driver.memcpy_dtoh(to, device_pointer(from), static_cast<std::size_t>(bytes)));
}

Result<void> synchronize(const CudaDevice& device, Stream stream) {
  const DriverApi& driver = *device.driver;
  const ContextScope scope(device);
  if (!scope.entered()) return scope.entered();
  const CUresult code = driver.stream_synchronize(static_cast<CUstream>(stream.handle));
  return check(driver, "cuStreamSynchronize", code);
}

}  // namespace flashspan::cuda
