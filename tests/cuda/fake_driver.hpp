// fake_driver.hpp -- a driver table without a GPU: it records every call with the context and stream it was made on,
// and fails where it is told to. One at a time, because the driver's functions take no object.
#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cuda/driver_api.hpp"
#include "templates/attention/parameters.cuh"
#include "tests/cuda/made_up_address.hpp"

namespace flashspan::cuda {

class FakeDriver {
 public:
  struct Call {
    std::string name;
    CUcontext context = nullptr;  ///< current when it was made
    int capture_mode = 0;         ///< of the calling thread
  };
  struct Launch {
    std::string kernel;
    CUcontext context = nullptr;
    CUlaunchConfig config;
    flashspan_device::ProgramCode code{};  ///< of plan_program alone
    flashspan_device::AttentionParameters attention;
    flashspan_device::ProgramArguments mask;
    flashspan_device::ProgramArguments score;
  };
  struct Memset {
    CUdeviceptr device = 0;
    unsigned char value = 0;
    std::size_t bytes = 0;
    CUstream stream = nullptr;
    std::size_t launches_before = 0;
  };
  struct TensorMapMade {
    void* map = nullptr;
    int data_type = 0;
    void* address = nullptr;
    std::vector<unsigned long long> extents;
    std::vector<unsigned long long> strides;
    std::vector<unsigned> box;
  };
  struct Attribute {
    std::string kernel;
    int attribute = 0;
    int value = 0;
    CUdevice device = 0;
  };

  FakeDriver() { current_ = this; }
  ~FakeDriver() { current_ = nullptr; }
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;

  // What the machine is.
  std::vector<std::pair<int, int>> capabilities{{9, 0}, {8, 0}};
  int version = 13000;
  std::map<std::string, CUresult> failures;               ///< CUDA function -> what it returns
  std::set<CUstream> capturing;                           ///< streams in the middle of a capture
  std::set<unsigned long long> busy;                      ///< numbers of streams whose events are not reached yet
  float elapsed_milliseconds = 0;                         ///< between any two events
  std::map<CUstream, unsigned long long> stream_numbers;  ///< where it is not the handle itself

  /// In place of what our own kernels take: is told of every launch.
  std::function<void(const CUlaunchConfig&, void** parameters)> on_foreign_launch;

  // What happened.
  std::vector<Call> calls;
  std::vector<Launch> launches;
  std::vector<Memset> memsets;
  std::vector<TensorMapMade> tensor_maps;
  std::vector<Attribute> attributes;
  std::map<CUlibrary, std::vector<std::string>> kernels_asked_for;  ///< libraries in the order of their loads
  std::vector<CUcontext> context_stack;
  int live_libraries = 0;
  int live_events = 0;
  std::map<CUdeviceptr, std::size_t> live_memory;

  [[nodiscard]] static CUcontext context_of(int device) {
    return made_up_address<CUcontext>(0x1000 + static_cast<std::uintptr_t>(device));
  }
  [[nodiscard]] CUcontext current_context() const { return context_stack.empty() ? nullptr : context_stack.back(); }
  [[nodiscard]] bool called(const std::string& name) const {
    for (const Call& call : calls) {
      if (call.name == name) return true;
    }
    return false;
  }

  [[nodiscard]] const DriverApi& api() const { return api_; }

 private:
  /// Records a call; the failure that was asked for, or success.
  static CUresult record(const char* name) {
    current_->calls.push_back({name, current_->current_context(), current_->capture_mode});
    const auto failure = current_->failures.find(name);
    return failure == current_->failures.end() ? cuda_success : failure->second;
  }

  static CUresult device_get_attribute(int* value, int attribute, CUdevice device) {
    const auto& capability = current_->capabilities.at(static_cast<std::size_t>(device));
    *value = attribute == device_attribute_compute_capability_major   ? capability.first
             : attribute == device_attribute_compute_capability_minor ? capability.second
             : attribute == device_attribute_multiprocessor_count     ? 132
                                                                      : 232448;
    return record("cuDeviceGetAttribute");
  }

  static CUresult push(CUcontext context) {
    const CUresult code = record("cuCtxPushCurrent");
    if (code == cuda_success) current_->context_stack.push_back(context);
    return code;
  }
  static CUresult pop(CUcontext* context) {
    const CUresult code = record("cuCtxPopCurrent");
    *context = current_->current_context();
    current_->context_stack.pop_back();
    return code;
  }

  static CUresult mem_alloc(CUdeviceptr* pointer, std::size_t bytes) {
    const CUresult code = record("cuMemAlloc");
    if (code != cuda_success) return code;
    *pointer = 0x100000 + 0x10000 * current_->live_memory.size();
    current_->live_memory[*pointer] = bytes;
    return code;
  }
  static CUresult mem_free(CUdeviceptr pointer) {
    const CUresult code = record("cuMemFree");
    current_->live_memory.erase(pointer);
    return code;
  }

  static CUresult library_load_data(CUlibrary* library, const void*, void*, void**, unsigned, void*, void**, unsigned) {
    const CUresult code = record("cuLibraryLoadData");
    if (code != cuda_success) return code;
    ++current_->live_libraries;
    *library = made_up_address<CUlibrary>(0x2000 + ++current_->loaded_libraries_);
    return code;
  }
  static CUresult library_unload(CUlibrary) {
    --current_->live_libraries;
    return record("cuLibraryUnload");
  }
  static CUresult library_get_kernel(CUkernel* kernel, CUlibrary library, const char* name) {
    current_->names_.emplace_back(name);
    current_->kernels_asked_for[library].emplace_back(name);
    *kernel = reinterpret_cast<CUkernel>(&current_->names_.back());
    return record("cuLibraryGetKernel");
  }
  template <typename Handle>
  static const std::string& name_of(Handle handle) {
    return *reinterpret_cast<const std::string*>(handle);
  }
  static CUresult kernel_set_attribute(int attribute, int value, CUkernel kernel, CUdevice device) {
    current_->attributes.push_back({name_of(kernel), attribute, value, device});
    return record("cuKernelSetAttribute");
  }
  static CUresult tensor_map_encode_tiled(void* map, int data_type, unsigned rank, void* address,
                                          const unsigned long long* extents, const unsigned long long* strides,
                                          const unsigned* box, const unsigned*, int, int, int, int) {
    const CUresult code = record("cuTensorMapEncodeTiled");
    if (code != cuda_success) return code;
    current_->tensor_maps.push_back(
        {map, data_type, address, {extents, extents + rank}, {strides, strides + rank - 1}, {box, box + rank}});
    return code;
  }
  static CUresult launch_kernel_ex(const CUlaunchConfig* config, CUfunction function, void** parameters, void**) {
    const CUresult code = record("cuLaunchKernelEx");
    if (code != cuda_success) return code;
    Launch launch;
    launch.kernel = name_of(function);
    launch.context = current_->current_context();
    launch.config = *config;
    if (current_->on_foreign_launch) {
      current_->on_foreign_launch(*config, parameters);
      return code;
    }
    std::memcpy(&launch.mask, parameters[1], sizeof(launch.mask));
    if (launch.kernel == "plan_program") {
      std::memcpy(&launch.code, parameters[0], sizeof(launch.code));
    } else {
      std::memcpy(&launch.attention, parameters[0], sizeof(launch.attention));
      if (!launch.kernel.starts_with("plan_")) std::memcpy(&launch.score, parameters[2], sizeof(launch.score));
    }
    current_->launches.push_back(launch);
    return code;
  }

  static unsigned long long number_of(CUstream stream) {
    const auto other = current_->stream_numbers.find(stream);
    return other != current_->stream_numbers.end() ? other->second : reinterpret_cast<std::uintptr_t>(stream);
  }
  static CUresult event_create(CUevent* event, unsigned) {
    const CUresult code = record("cuEventCreate");
    if (code != cuda_success) return code;
    ++current_->live_events;
    current_->recorded_on_.push_back(0);
    *event = reinterpret_cast<CUevent>(&current_->recorded_on_.back());
    return code;
  }
  static CUresult event_destroy(CUevent) {
    --current_->live_events;
    return record("cuEventDestroy");
  }
  static CUresult event_record(CUevent event, CUstream stream) {
    *reinterpret_cast<unsigned long long*>(event) = number_of(stream);
    return record("cuEventRecord");
  }
  static CUresult event_query(CUevent event) {
    const CUresult code = record("cuEventQuery");
    return current_->busy.contains(*reinterpret_cast<unsigned long long*>(event)) ? cuda_error_not_ready : code;
  }

  static DriverApi table() {
    DriverApi api;
    api.init = [](unsigned) { return record("cuInit"); };
    api.driver_get_version = [](int* version) { return *version = current_->version, record("cuDriverGetVersion"); };
    api.get_error_name = [](CUresult code, const char** name) {
      *name = code == cuda_error_invalid_value ? "CUDA_ERROR_INVALID_VALUE" : nullptr;
      return *name == nullptr ? cuda_error_invalid_value : cuda_success;
    };
    api.get_error_string = [](CUresult, const char** text) { return *text = "invalid argument", cuda_success; };
    api.device_get_count = [](int* count) {
      return *count = static_cast<int>(current_->capabilities.size()), record("cuDeviceGetCount");
    };
    api.device_get = [](CUdevice* device, int ordinal) { return *device = ordinal, record("cuDeviceGet"); };
    api.device_get_name = [](char* name, int length, CUdevice) {
      std::strncpy(name, "Fake GPU", static_cast<std::size_t>(length));
      return record("cuDeviceGetName");
    };
    api.device_get_attribute = device_get_attribute;
    api.device_total_mem = [](std::size_t* bytes, CUdevice) {
      return *bytes = std::size_t{1} << 37, record("cuDeviceTotalMem");
    };
    api.device_primary_ctx_retain = [](CUcontext* context, CUdevice device) {
      return *context = context_of(device), record("cuDevicePrimaryCtxRetain");
    };
    api.ctx_get_current = [](CUcontext* context) {
      return *context = current_->current_context(), record("cuCtxGetCurrent");
    };
    api.ctx_push_current = push;
    api.ctx_pop_current = pop;
    api.mem_alloc = mem_alloc;
    api.mem_free = mem_free;
    api.memcpy_htod = [](CUdeviceptr, const void*, std::size_t) { return record("cuMemcpyHtoD"); };
    api.memcpy_dtoh = [](void*, CUdeviceptr, std::size_t) { return record("cuMemcpyDtoH"); };
    api.memset_d8_async = [](CUdeviceptr device, unsigned char value, std::size_t bytes, CUstream stream) {
      const CUresult code = record("cuMemsetD8Async");
      if (code == cuda_success) current_->memsets.push_back({device, value, bytes, stream, current_->launches.size()});
      return code;
    };
    api.stream_synchronize = [](CUstream) { return record("cuStreamSynchronize"); };
    api.stream_get_id = [](CUstream stream, unsigned long long* number) {
      return *number = number_of(stream), record("cuStreamGetId");
    };
    api.stream_is_capturing = [](CUstream stream, int* status) {
      *status = current_->capturing.contains(stream) ? 1 : 0;
      return record("cuStreamIsCapturing");
    };
    api.event_create = event_create;
    api.event_destroy = event_destroy;
    api.event_record = event_record;
    api.event_query = event_query;
    api.event_synchronize = [](CUevent) { return record("cuEventSynchronize"); };
    api.event_elapsed_time = [](float* milliseconds, CUevent, CUevent) {
      return *milliseconds = current_->elapsed_milliseconds, record("cuEventElapsedTime");
    };
    api.thread_exchange_stream_capture_mode = [](int* mode) {
      return std::swap(*mode, current_->capture_mode), record("cuThreadExchangeStreamCaptureMode");
    };
    api.library_load_data = library_load_data;
    api.library_unload = library_unload;
    api.library_get_kernel = library_get_kernel;
    api.kernel_get_function = [](CUfunction* function, CUkernel kernel) {
      return *function = reinterpret_cast<CUfunction>(kernel), record("cuKernelGetFunction");
    };
    api.kernel_set_attribute = kernel_set_attribute;
    api.tensor_map_encode_tiled = tensor_map_encode_tiled;
    api.launch_kernel_ex = launch_kernel_ex;
    return api;
  }

 public:
  int capture_mode = 0;  ///< of the thread

 private:
  inline static FakeDriver* current_ = nullptr;
  DriverApi api_ = table();
  std::uintptr_t loaded_libraries_ = 0;
  std::deque<std::string> names_;               ///< a kernel's handle is the address of its name
  std::deque<unsigned long long> recorded_on_;  ///< an event's handle is the address of the number of its stream
};

}  // namespace flashspan::cuda
