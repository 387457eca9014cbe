#include "runtime/cuda/cuda_kernel.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "codegen/kernel/emit_cuda.hpp"
#include "codegen/kernel/score_lookups.hpp"
#include "codegen/kernel/tile_config.hpp"
#include "runtime/cuda/cubin.hpp"
#include "runtime/cuda/relaxed_capture.hpp"

namespace flashspan::cuda {
namespace {

const char* name_of(EntryPoint entry) {
  switch (entry) {
    case EntryPoint::plan_program:
      return kernel::entry_plan_program;
    case EntryPoint::plan_tiles:
      return kernel::entry_plan_tiles;
    case EntryPoint::forward:
      return kernel::entry_forward;
    case EntryPoint::backward_delta:
      return kernel::entry_backward_delta;
    case EntryPoint::backward_sink:
      return kernel::entry_backward_sink;
    case EntryPoint::backward_dq:
      return kernel::entry_backward_dq;
    case EntryPoint::backward_dkdv:
      return kernel::entry_backward_dkdv;
    case EntryPoint::backward_tiles:
      return kernel::entry_backward_tiles;
    case EntryPoint::backward_query_gradient:
      return kernel::entry_backward_query_gradient;
    case EntryPoint::backward_score_clear:
      return kernel::entry_backward_score_clear;
    case EntryPoint::backward_score_sum:
      return kernel::entry_backward_score_sum;
    case EntryPoint::backward_score_round:
      return kernel::entry_backward_score_round;
  }
  return "";
}

/// Entry points of one program, with the dynamic shared memory that each is launched with.
using EntryPoints = std::vector<std::pair<EntryPoint, std::int64_t>>;

EntryPoints attention_entry_points(const kernel::KernelSpec& spec) {
  const std::int64_t shared = kernel::shared_memory_bytes(spec);
  EntryPoints entries;
  switch (spec.direction) {
    case Direction::forward:
      entries.emplace_back(EntryPoint::forward, shared);
      break;
    case Direction::backward:
      entries.emplace_back(EntryPoint::backward_delta, 0);
      entries.emplace_back(EntryPoint::backward_sink, 0);
      switch (spec.family) {
        case kernel::KernelFamily::mma:
          entries.emplace_back(EntryPoint::backward_dq, shared);
          entries.emplace_back(EntryPoint::backward_dkdv, shared);
          break;
        case kernel::KernelFamily::hopper:
          entries.emplace_back(EntryPoint::backward_tiles, shared);
          entries.emplace_back(EntryPoint::backward_query_gradient, spec.two_passes ? shared : 0);
          break;
      }
      if (spec.score_gradients.empty()) break;
      entries.emplace_back(EntryPoint::backward_score_clear, 0);
      entries.emplace_back(EntryPoint::backward_score_sum, kernel::score_gradient_shared_bytes(spec));
      entries.emplace_back(EntryPoint::backward_score_round, 0);
      break;
  }
  return entries;
}

EntryPoints planner_entry_points(const kernel::KernelSpec& spec) {
  EntryPoints entries{{EntryPoint::plan_tiles, 0}};
  if (spec.lowering == mask::LoweringKind::interpreted) entries.emplace_back(EntryPoint::plan_program, 0);
  return entries;
}

/// Of each program that kernel::emit_cuda() writes.
std::vector<EntryPoints> entry_points(const kernel::KernelSpec& spec) {
  std::vector<EntryPoints> programs{attention_entry_points(spec)};
  if (spec.lowering != mask::LoweringKind::none) programs.push_back(planner_entry_points(spec));
  return programs;
}

Error with_detail(Error error, std::string detail) {
  error.detail = std::move(detail);
  return error;
}

/// Of a call that loads: tells results that blame the cubin from those of a device that is out of memory, or lost.
Error load_error(const DriverApi& driver, const char* call, CUresult code) {
  constexpr std::array blame_the_cubin{cuda_error_invalid_image,  cuda_error_no_binary_for_gpu,
                                       cuda_error_invalid_ptx,    cuda_error_unsupported_ptx_version,
                                       cuda_error_invalid_source, cuda_error_not_found};
  Error error = driver_error(driver, call, code);
  if (std::ranges::find(blame_the_cubin, code) != blame_the_cubin.end()) error.code = ErrorCode::unsupported;
  return error;
}

}  // namespace

Result<std::shared_ptr<CudaKernel>> CudaKernel::load(const CudaDevice& device, std::span<const std::byte> binary,
                                                     const kernel::KernelSpec& spec) {
  const std::vector<EntryPoints> programs = entry_points(spec);
  const auto cubins = split_cubins(binary);
  for (const std::span<const std::byte> cubin : cubins) {
    const auto damage = cubin_damage(cubin);
    if (damage) return Error{ErrorCode::unsupported, "cubin", *damage, "a whole cubin", spec.summary()};
  }
  if (cubins.size() != programs.size()) {
    return Error{ErrorCode::unsupported, "cubins", std::to_string(cubins.size()),
                 std::to_string(programs.size()) + ", one a program", spec.summary()};
  }
  const ContextScope scope(device);
  if (!scope.entered()) return scope.entered().error();
  const RelaxedCapture relaxed(*device.driver);

  std::shared_ptr<CudaKernel> loaded(new CudaKernel(device));
  for (std::size_t i = 0; i < programs.size(); ++i) {
    const auto library = loaded->load_library(cubins[i]);
    if (!library) return with_detail(library.error(), spec.summary());
    for (const auto& [entry, shared] : programs[i]) {
      const auto done = loaded->load_entry(*library, entry, shared);
      if (!done) return with_detail(done.error(), std::string(name_of(entry)) + " of " + spec.summary());
    }
  }
  return loaded;
}

Result<CUlibrary> CudaKernel::load_library(std::span<const std::byte> cubin) {
  const DriverApi& driver = *device_.driver;
  CUlibrary library = nullptr;
  const CUresult code = driver.library_load_data(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (code != cuda_success) return load_error(driver, "cuLibraryLoadData", code);
  libraries_.push_back(library);
  return library;
}

Result<void> CudaKernel::load_entry(CUlibrary library, EntryPoint entry, std::int64_t dynamic_shared_bytes) {
  const DriverApi& driver = *device_.driver;
  CUkernel kernel = nullptr;
  const CUresult found = driver.library_get_kernel(&kernel, library, name_of(entry));
  if (found != cuda_success) return load_error(driver, "cuLibraryGetKernel", found);
  if (dynamic_shared_bytes > 0) {
    const CUresult set = driver.kernel_set_attribute(function_attribute_max_dynamic_shared_size_bytes,
                                                     static_cast<int>(dynamic_shared_bytes), kernel, device_.device);
    if (set != cuda_success) return driver_error(driver, "cuKernelSetAttribute", set);
  }
  // Loading is lazy by default: asking for the function loads it into the current context now.
  CUfunction function = nullptr;
  const CUresult forced = driver.kernel_get_function(&function, kernel);
  if (forced != cuda_success) return load_error(driver, "cuKernelGetFunction", forced);
  entries_[static_cast<std::size_t>(entry)] = Entry{kernel, static_cast<unsigned>(dynamic_shared_bytes)};
  return {};
}

CudaKernel::~CudaKernel() {
  const DriverApi& driver = *device_.driver;
  // Another thread may be capturing a stream; in the relaxed mode an unload does not break its capture. At process exit
  // the driver may be gone (CUDA_ERROR_DEINITIALIZED), and the library with it: results are of no use here.
  const RelaxedCapture relaxed(driver);
  for (const CUlibrary library : libraries_) driver.library_unload(library);
}

void CudaKernel::follow_launches() {
  const ContextScope scope(device_);
  const RelaxedCapture relaxed(*device_.driver);
  if (scope.entered()) pending_ = PendingLaunches::open(device_);
}

bool CudaKernel::may_unload() const { return pending_ != nullptr && pending_->none(); }

Result<void> CudaKernel::launch(EntryPoint entry, std::int64_t blocks, int threads, Stream stream,
                                std::span<void*> arguments) const {
  const Entry& loaded = entries_[static_cast<std::size_t>(entry)];
  CUlaunchConfig config;
  config.grid_x = static_cast<unsigned>(blocks);
  config.block_x = static_cast<unsigned>(threads);
  config.dynamic_shared_bytes = loaded.dynamic_shared_bytes;
  config.stream = static_cast<CUstream>(stream.handle);
  // A CUkernel may stand for a CUfunction: the driver takes it in the current context (cuLaunchKernelEx, notes).
  const auto function = reinterpret_cast<CUfunction>(loaded.kernel);
  const CUresult code = device_.driver->launch_kernel_ex(&config, function, arguments.data(), nullptr);
  if (code != cuda_success) return with_detail(driver_error(*device_.driver, "cuLaunchKernelEx", code), name_of(entry));
  if (pending_ != nullptr) pending_->record(config.stream);
  return {};
}

}  // namespace flashspan::cuda
