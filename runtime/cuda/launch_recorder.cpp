#include "runtime/cuda/launch_recorder.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "runtime/cuda/cubin.hpp"
#include "runtime/cuda/cubin_parameters.hpp"
#include "templates/attention/parameters.cuh"

namespace flashspan::cuda {
namespace {

thread_local LaunchRecorder* current = nullptr;

/// Handles are places in the recorder's lists, counted from 1.
template <typename Handle>
Handle handle_of(std::size_t place) {
  return reinterpret_cast<Handle>(place + 1);  // NOLINT(performance-no-int-to-ptr)
}
template <typename Handle>
std::size_t place_of(Handle handle) {
  return reinterpret_cast<std::uintptr_t>(handle) - 1;
}

}  // namespace

std::size_t offset_of_scale() { return offsetof(flashspan_device::AttentionParameters, scale); }
std::size_t offset_of_integer(std::size_t place) {
  return offsetof(flashspan_device::ProgramArguments, integers) + place * sizeof(long long);
}
std::size_t offset_of_real(std::size_t place) {
  return offsetof(flashspan_device::ProgramArguments, reals) + place * sizeof(float);
}

/// The driver's functions, as far as a call comes by them.
struct LaunchRecorder::Functions {
  static CUresult attribute(int* value, int attribute, CUdevice) {
    const int number = current->arch_.number;
    *value = attribute == device_attribute_compute_capability_major   ? number / 10
             : attribute == device_attribute_compute_capability_minor ? number % 10
             : attribute == device_attribute_multiprocessor_count     ? processors
                                                                      : 0;
    return cuda_success;
  }

  static CUresult load(CUlibrary* library, const void* code, void*, void**, unsigned, void*, void**, unsigned) {
    const auto* const bytes = static_cast<const std::byte*>(code);
    current->modules_.emplace_back(bytes, bytes + cubin_bytes(code));
    *library = handle_of<CUlibrary>(current->modules_.size() - 1);
    return cuda_success;
  }

  static CUresult get_kernel(CUkernel* kernel, CUlibrary library, const char* name) {
    current->kernels_.push_back({name, place_of(library)});
    *kernel = handle_of<CUkernel>(current->kernels_.size() - 1);
    return cuda_success;
  }

  static CUresult launch(const CUlaunchConfig* config, CUfunction function, void** parameters, void**) {
    RecordedLaunch launch;
    launch.kernel = current->kernels_.at(place_of(function));
    launch.blocks = config->grid_x;
    launch.threads = static_cast<int>(config->block_x);
    launch.dynamic_shared_bytes = static_cast<int>(config->dynamic_shared_bytes);
    const auto kernel = cubin_kernel(current->modules_.at(launch.kernel.module), launch.kernel.name);
    if (!kernel) return cuda_error_invalid_value;
    for (std::size_t i = 0; i < kernel->parameters.size(); ++i) {
      const auto* const bytes = static_cast<const std::byte*>(parameters[i]);
      launch.parameters.emplace_back(bytes, bytes + kernel->parameters[i].bytes);
    }
    current->recording_.steps.emplace_back(std::move(launch));
    return cuda_success;
  }

  static CUresult encode(void* map, int data_type, unsigned rank, void* address, const unsigned long long* extents,
                         const unsigned long long* strides, const unsigned* box, const unsigned* element_strides,
                         int interleave, int swizzle, int l2_promotion, int fill) {
    constexpr std::size_t words = 16;
    std::array<std::uint64_t, words> mark{};
    mark.fill(map_mark(current->recording_.maps.size()));
    std::memcpy(map, mark.data(), sizeof(mark));
    current->recording_.maps.push_back({data_type,
                                        reinterpret_cast<std::uintptr_t>(address),
                                        {extents, extents + rank},
                                        {strides, strides + rank - 1},
                                        {box, box + rank},
                                        {element_strides, element_strides + rank},
                                        interleave,
                                        swizzle,
                                        l2_promotion,
                                        fill});
    return cuda_success;
  }

  static CUresult memset(CUdeviceptr device, unsigned char value, std::size_t bytes, CUstream) {
    current->recording_.steps.emplace_back(
        RecordedMemset{static_cast<std::uintptr_t>(device), value, static_cast<std::int64_t>(bytes)});
    return cuda_success;
  }
};

LaunchRecorder::LaunchRecorder(Arch arch) : arch_(arch) {
  current = this;
  api_.driver_get_version = [](int* version) { return *version = 0, cuda_success; };
  api_.get_error_name = [](CUresult, const char** name) { return *name = "no device", cuda_success; };
  api_.get_error_string = [](CUresult, const char** text) { return *text = "launches are recorded", cuda_success; };
  api_.device_get_count = [](int* count) { return *count = 1, cuda_success; };
  api_.device_get = [](CUdevice* device, int) { return *device = 0, cuda_success; };
  api_.device_get_name = [](char* name, int, CUdevice) { return *name = 0, cuda_success; };
  api_.device_get_attribute = Functions::attribute;
  api_.device_total_mem = [](std::size_t* bytes, CUdevice) { return *bytes = 0, cuda_success; };
  api_.device_primary_ctx_retain = [](CUcontext* context, CUdevice) { return *context = nullptr, cuda_success; };
  api_.ctx_get_current = [](CUcontext* context) { return *context = nullptr, cuda_success; };
  api_.ctx_push_current = [](CUcontext) { return cuda_success; };
  api_.ctx_pop_current = [](CUcontext*) { return cuda_success; };
  api_.stream_is_capturing = [](CUstream, int* status) { return *status = stream_capture_status_none, cuda_success; };
  api_.thread_exchange_stream_capture_mode = [](int*) { return cuda_success; };
  api_.memset_d8_async = Functions::memset;
  api_.library_load_data = Functions::load;
  api_.library_unload = [](CUlibrary) { return cuda_success; };
  api_.library_get_kernel = Functions::get_kernel;
  api_.kernel_get_function = [](CUfunction* function, CUkernel kernel) {
    return *function = reinterpret_cast<CUfunction>(kernel), cuda_success;
  };
  api_.kernel_set_attribute = [](int, int, CUkernel, CUdevice) { return cuda_success; };
  api_.tensor_map_encode_tiled = Functions::encode;
  api_.launch_kernel_ex = Functions::launch;
}

LaunchRecorder::~LaunchRecorder() { current = nullptr; }

Recording LaunchRecorder::take() { return std::exchange(recording_, {}); }

}  // namespace flashspan::cuda
