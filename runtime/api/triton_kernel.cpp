// triton_kernel.cpp -- kernels of Triton's by their files, in our cache, and on a device.
#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "flashspan/triton.hpp"
#include "runtime/api/cache_entries.hpp"
#include "runtime/api/device_memory.hpp"
#include "runtime/api/kernel_stores.hpp"
#include "runtime/api/log_sink.hpp"
#include "runtime/api/settings.hpp"
#include "runtime/api/triton_entry.hpp"
#include "runtime/api/triton_types.hpp"
#include "runtime/attention/tensor_rule.hpp"
#include "runtime/cuda/foreign_kernel.hpp"

namespace flashspan {

namespace {

namespace fs = std::filesystem;
using attention::bad_argument;

constexpr const char* takes_path =
    "an entry of Triton's cache (its folder, .json or .cubin), or the .c of triton.tools.compile";

/// The .json of the one kernel in a folder; those of groups (__grp__) name files and no kernel.
Result<fs::path> entry_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code failed;
  for (const auto& item : fs::directory_iterator(folder, failed)) {
    const fs::path& path = item.path();
    if (path.extension() != ".json" || path.filename().string().starts_with("__grp__")) continue;
    fs::path cubin = path;
    if (fs::exists(cubin.replace_extension(".cubin"), failed)) found.push_back(path);
  }
  if (found.size() == 1) return found.front();
  return bad_argument("path", folder.string() + " with " + std::to_string(found.size()) + " kernels", takes_path);
}

/// A kernel in the order of its parameters, ready for the driver.
struct PackedArguments {
  std::vector<std::vector<std::byte>> values;
  std::vector<void*> addresses;
};

}  // namespace

Result<TritonKernelFile> read_triton_kernel(const std::string& path, const TritonReadOptions& options) {
  fs::path entry = path;
  std::error_code failed;
  if (fs::is_directory(entry, failed)) {
    auto found = entry_in(entry);
    if (!found) return found.error();
    entry = *std::move(found);
  }
  if (entry.extension() == ".cubin") entry.replace_extension(".json");
  if (entry.extension() == ".json") return api::read_triton_cache_entry(entry, options);
  if (entry.extension() == ".c") return api::read_triton_compile_product(entry, options);
  return bad_argument("path", path, takes_path);
}

Result<std::string> add_to_cache(const TritonKernelFile& kernel, const std::optional<std::string>& cache_dir) {
  auto store = api::open_store(cache_dir);
  if (!store) return store.error();
  const cache::Entry entry = api::entry_of(kernel);
  const std::string_view code(reinterpret_cast<const char*>(entry.artifact.data()), entry.artifact.size());
  const auto key = cache::KernelKey::of(std::array<std::string_view, 3>{"triton kernel", entry.metadata, code});
  if (auto written = store->write(key, entry); !written) return written.error();
  return key.to_text();
}

Result<TritonKernelFile> triton_kernel_in_cache(const std::string& key, const std::optional<std::string>& cache_dir) {
  const auto parsed = cache::KernelKey::from_text(key);
  if (!parsed) return bad_argument("key", key, "32 hexadecimal digits");
  const api::Settings& settings = api::settings();
  const auto cache =
      api::open_kernel_cache(api::cache_folder(settings, cache_dir), api::cache_layers(settings, std::nullopt),
                             api::standard_log(settings.log), nullptr);
  const auto found = cache->find(*parsed);
  if (!found) return bad_argument("key", key, "the key of an entry in the cache or its layers");
  auto kernel = api::triton_kernel_of(*found->entry);
  if (!kernel) return bad_argument("key", key, "the key of a kernel of Triton's");
  return *std::move(kernel);
}

struct TritonKernel::State {
  TritonKernelFile file;
  std::shared_ptr<cuda::ForeignKernel> kernel;

  [[nodiscard]] cuda::ForeignLaunch launch_over(const TritonGrid& grid) const {
    cuda::ForeignLaunch launch;
    const auto blocks = [](std::int64_t programs, int cluster) { return static_cast<unsigned>(programs * cluster); };
    launch.cluster_x = static_cast<unsigned>(file.cluster[0]);
    launch.cluster_y = static_cast<unsigned>(file.cluster[1]);
    launch.cluster_z = static_cast<unsigned>(file.cluster[2]);
    launch.grid_x = blocks(grid.x, file.cluster[0]);
    launch.grid_y = blocks(grid.y, file.cluster[1]);
    launch.grid_z = blocks(grid.z, file.cluster[2]);
    launch.threads = static_cast<unsigned>(file.num_warps) * 32U;
    launch.dynamic_shared_bytes = static_cast<unsigned>(file.shared_bytes);
    launch.cooperative = file.cooperative;
    launch.programmatic_serialization = file.programmatic_launch;
    return launch;
  }

  /// The values, and null for what is hidden but for scratch memory that the kernel has use for.
  [[nodiscard]] Result<PackedArguments> packed(const std::vector<TritonArgument>& arguments,
                                               const void* scratch) const {
    if (arguments.size() != file.parameters.size()) {
      return bad_argument("arguments", std::to_string(arguments.size()),
                          std::to_string(file.parameters.size()) + ", one for each parameter of " + file.name);
    }
    PackedArguments packed;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      auto value = api::pack(file.parameters[i], arguments[i]);
      if (!value) return value.error();
      packed.values.push_back(*std::move(value));
    }
    for (int hidden = 0; hidden < file.hidden_parameters; ++hidden) {
      const void* const pointer = hidden == 0 ? scratch : nullptr;  // the first is global scratch
      packed.values.push_back(*api::pack({"scratch", "*i8", 8}, pointer));
    }
    for (std::vector<std::byte>& value : packed.values) packed.addresses.push_back(value.data());
    return packed;
  }
};

Result<TritonKernel> TritonKernel::load(Device device, const TritonKernelFile& kernel) {
  if (device.kind != DeviceKind::cuda) return bad_argument("device", to_string(device), "a CUDA device");
  const auto opened = api::cuda_device(device.index);
  if (!opened) return opened.error();
  const auto facts = (*opened)->facts();
  if (!facts) return facts.error();
  // Machine code with a letter is for one architecture alone; without, for all of its major version from it on.
  const int number = facts->target.arch.number;
  const bool exact = kernel.arch.suffix != 0;
  const bool runs =
      exact ? number == kernel.arch.number : number / 10 == kernel.arch.number / 10 && number >= kernel.arch.number;
  if (!runs) {
    return Error{ErrorCode::unsupported, kernel.name, "code for " + to_string(kernel.arch),
                 "code for " + to_string(facts->target.arch), ""};
  }
  auto state = std::make_shared<State>();
  state->file = kernel;
  auto loaded = cuda::ForeignKernel::load(**opened, kernel.cubin, kernel.name, state->launch_over({}));
  if (!loaded) return loaded.error();
  state->kernel = *std::move(loaded);
  return TritonKernel(std::move(state));
}

const std::vector<TritonParameter>& TritonKernel::parameters() const { return state_->file.parameters; }

std::int64_t TritonKernel::scratch_bytes(const TritonGrid& grid) const {
  const std::array<int, 3>& cluster = state_->file.cluster;
  return grid.x * grid.y * grid.z * cluster[0] * cluster[1] * cluster[2] * state_->file.global_scratch_bytes;
}

Result<void> TritonKernel::launch(const TritonGrid& grid, const std::vector<TritonArgument>& arguments, Stream stream,
                                  void* scratch, std::int64_t scratch_bytes) const {
  constexpr std::int64_t most_x = (std::int64_t{1} << 31) - 1, most_y_and_z = 65535;
  if (grid.x < 0 || grid.y < 0 || grid.z < 0 || grid.x > most_x / state_->file.cluster[0] || grid.y > most_y_and_z ||
      grid.z > most_y_and_z) {
    return bad_argument("grid",
                        std::to_string(grid.x) + " x " + std::to_string(grid.y) + " x " + std::to_string(grid.z),
                        "0 to 2147483647 x 65535 x 65535 blocks");
  }
  const std::int64_t needed = this->scratch_bytes(grid);
  if (needed > scratch_bytes || (needed > 0 && scratch == nullptr)) {
    return Error{ErrorCode::workspace_too_small, "scratch",
                 std::to_string(scratch == nullptr ? 0 : scratch_bytes) + " bytes",
                 std::to_string(needed) + " bytes of device memory: " + state_->file.name + " keeps data in them", ""};
  }
  const auto alignment = static_cast<std::uintptr_t>(std::max<std::int64_t>(state_->file.global_scratch_alignment, 1));
  if (needed > 0 && reinterpret_cast<std::uintptr_t>(scratch) % alignment != 0) {
    return bad_argument("scratch", "an address that is not aligned", "a multiple of " + std::to_string(alignment));
  }
  auto packed = state_->packed(arguments, needed > 0 ? scratch : nullptr);
  if (!packed) return packed.error();
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return {};
  return state_->kernel->launch(state_->launch_over(grid), stream, packed->addresses);
}

}  // namespace flashspan
