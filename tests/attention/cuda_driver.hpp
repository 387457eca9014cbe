// cuda_driver.hpp -- the driver functions that tests of streams, graphs and contexts call themselves.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <stdexcept>
#include <string>

#include "runtime/cuda/driver_types.hpp"

namespace flashspan::tests {

using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;

/// libcuda's own functions, looked up by their exported names.
struct CudaDriver {
  int (*ctx_get_current)(cuda::CUcontext*) = symbol<int (*)(cuda::CUcontext*)>("cuCtxGetCurrent");
  int (*ctx_set_current)(cuda::CUcontext) = symbol<int (*)(cuda::CUcontext)>("cuCtxSetCurrent");
  int (*ctx_create)(cuda::CUcontext*, unsigned,
                    int) = symbol<int (*)(cuda::CUcontext*, unsigned, int)>("cuCtxCreate_v2");
  int (*ctx_destroy)(cuda::CUcontext) = symbol<int (*)(cuda::CUcontext)>("cuCtxDestroy_v2");
  int (*primary_retain)(cuda::CUcontext*, int) = symbol<int (*)(cuda::CUcontext*, int)>("cuDevicePrimaryCtxRetain");
  int (*primary_release)(int) = symbol<int (*)(int)>("cuDevicePrimaryCtxRelease_v2");
  int (*mem_get_info)(std::size_t*, std::size_t*) = symbol<int (*)(std::size_t*, std::size_t*)>("cuMemGetInfo_v2");
  int (*memset_async)(cuda::CUdeviceptr, unsigned char, std::size_t, cuda::CUstream) =
      symbol<int (*)(cuda::CUdeviceptr, unsigned char, std::size_t, cuda::CUstream)>("cuMemsetD8Async");
  int (*copy_async)(cuda::CUdeviceptr, cuda::CUdeviceptr, std::size_t, cuda::CUstream) =
      symbol<int (*)(cuda::CUdeviceptr, cuda::CUdeviceptr, std::size_t, cuda::CUstream)>("cuMemcpyDtoDAsync_v2");
  int (*stream_create)(cuda::CUstream*, unsigned) = symbol<int (*)(cuda::CUstream*, unsigned)>("cuStreamCreate");
  int (*stream_destroy)(cuda::CUstream) = symbol<int (*)(cuda::CUstream)>("cuStreamDestroy_v2");
  int (*begin_capture)(cuda::CUstream, int) = symbol<int (*)(cuda::CUstream, int)>("cuStreamBeginCapture_v2");
  int (*end_capture)(cuda::CUstream, CUgraph*) = symbol<int (*)(cuda::CUstream, CUgraph*)>("cuStreamEndCapture");
  int (*is_capturing)(cuda::CUstream, int*) = symbol<int (*)(cuda::CUstream, int*)>("cuStreamIsCapturing");
  int (*instantiate)(CUgraphExec*, CUgraph, unsigned long long) =
      symbol<int (*)(CUgraphExec*, CUgraph, unsigned long long)>("cuGraphInstantiateWithFlags");
  int (*launch_graph)(CUgraphExec, cuda::CUstream) = symbol<int (*)(CUgraphExec, cuda::CUstream)>("cuGraphLaunch");
  int (*destroy_executable)(CUgraphExec) = symbol<int (*)(CUgraphExec)>("cuGraphExecDestroy");
  int (*destroy_graph)(CUgraph) = symbol<int (*)(CUgraph)>("cuGraphDestroy");

 private:
  template <typename Function>
  static Function symbol(const char* name) {
    static void* library = dlopen("libcuda.so.1", RTLD_NOW);
    void* address = library != nullptr ? dlsym(library, name) : nullptr;
    if (address == nullptr) throw std::runtime_error("libcuda.so.1 has no " + std::string(name));
    return reinterpret_cast<Function>(address);
  }
};

inline constexpr unsigned stream_non_blocking = 1;
inline constexpr int capture_mode_global = 0;
inline constexpr int capture_status_active = 1;

[[nodiscard]] inline cuda::CUdeviceptr address_of(const void* pointer) {
  return reinterpret_cast<cuda::CUdeviceptr>(pointer);
}

/// Ends the test if a driver call failed.
inline void expect_cuda(int code) {
  if (code != cuda::cuda_success) throw std::runtime_error("driver call failed with code " + std::to_string(code));
}

/// The device's primary context is current, and a stream of it exists, as long as this object does.
class SideStream {
 public:
  explicit SideStream(int ordinal) : ordinal_(ordinal) {
    expect_cuda(driver.primary_retain(&context_, ordinal));
    expect_cuda(driver.ctx_get_current(&before_));
    expect_cuda(driver.ctx_set_current(context_));
    expect_cuda(driver.stream_create(&stream_, stream_non_blocking));
  }
  ~SideStream() {
    driver.stream_destroy(stream_);
    driver.ctx_set_current(before_);
    driver.primary_release(ordinal_);
  }
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  [[nodiscard]] cuda::CUstream handle() const { return stream_; }
  [[nodiscard]] cuda::CUcontext context() const { return context_; }

  CudaDriver driver;

 private:
  int ordinal_;
  cuda::CUcontext context_ = nullptr;
  cuda::CUcontext before_ = nullptr;
  cuda::CUstream stream_ = nullptr;
};

}  // namespace flashspan::tests
