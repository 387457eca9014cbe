// triton.hpp -- kernels that Triton compiled, read from its cache or from what its ahead-of-time tool wrote, and
// launched without Python. docs/triton.md says which versions and what is refused.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "flashspan/core/error.hpp"
#include "flashspan/core/types.hpp"

#pragma GCC visibility push(default)
namespace flashspan {

/// A parameter that the caller of a Triton kernel gives a value for.
struct TritonParameter {
  std::string name;  ///< as in the kernel's Python source, where the entry tells; else "arg0", "arg1", ...
  std::string type;  ///< as in Triton's signatures: "*fp32", "i32", "fp32", ...; "nvTmaDesc" for a tensor map
  int bytes = 0;
};

/// A kernel as it stands in a Triton cache: its code, and everything that its launch needs.
struct TritonKernelFile {
  std::string name;     ///< of the entry point
  std::string version;  ///< of Triton
  Arch arch{};
  std::vector<std::byte> cubin;
  std::vector<TritonParameter> parameters;
  int hidden_parameters = 0;  ///< behind them: pointers to scratch memory, by Triton's version
  int num_warps = 0;          ///< of a block, those of specialised warps included
  std::int64_t shared_bytes = 0;
  std::array<int, 3> cluster{1, 1, 1};  ///< blocks
  bool cooperative = false;
  bool programmatic_launch = false;       ///< PDL
  std::int64_t global_scratch_bytes = 0;  ///< for each block of the grid
  std::int64_t global_scratch_alignment = 1;
};

struct TritonReadOptions {
  /// Types of the parameters, "*fp32, *fp32, i32, fp32": for entries without .ttir and .ptx. Constexprs are left out.
  std::optional<std::string> signature;
  /// For entries whose .json does not say.
  std::optional<std::string> version;
};

/// Reads a kernel.
/// `path`: the .json or .cubin of an entry of Triton's cache, the entry's folder if it holds one kernel, or the .c that
/// triton.tools.compile wrote (whose grid is C, and is given anew in every launch here).
/// Error: io_error; bad_argument, for files of another form, or whose parameters are not those of the cubin;
/// unsupported, for a version of Triton that is not known, other targets than CUDA, and kernels that are made for the
/// profiler.
[[nodiscard]] Result<TritonKernelFile> read_triton_kernel(const std::string& path,
                                                          const TritonReadOptions& options = {});

/// Puts a kernel into the cache, from where export_cache() takes it into bundles. Returns its key.
/// Error: io_error.
[[nodiscard]] Result<std::string> add_to_cache(const TritonKernelFile& kernel,
                                               const std::optional<std::string>& cache_dir = std::nullopt);
/// A kernel in the cache or one of its layers, by the key that add_to_cache() returned.
/// Error: bad_argument, if there is none or it is no kernel of Triton's.
[[nodiscard]] Result<TritonKernelFile> triton_kernel_in_cache(
    const std::string& key, const std::optional<std::string>& cache_dir = std::nullopt);

/// A value for a parameter: a device address; a whole number for i1 to u64; a number for fp16 to fp64, rounded to it;
/// the 128 bytes of a CUtensorMap.
using TritonArgument = std::variant<const void*, std::int64_t, double, std::array<std::byte, 128>>;

struct TritonGrid {
  std::int64_t x = 1, y = 1, z = 1;  ///< programs
};

/// A kernel on one device. Thread-safe; copies share it. The last copy must outlive the work that it queued.
class TritonKernel {
 public:
  /// Error: no_device; unsupported, for a kernel of another architecture, or that needs more shared memory than the
  /// device has; device_error.
  static Result<TritonKernel> load(Device device, const TritonKernelFile& kernel);

  [[nodiscard]] const std::vector<TritonParameter>& parameters() const;
  /// Bytes of device memory that a launch over this grid takes as scratch; 0 for most kernels.
  [[nodiscard]] std::int64_t scratch_bytes(const TritonGrid& grid) const;

  /// Queues one launch; an empty grid queues nothing. Neither allocates nor synchronises, and can be captured in a CUDA
  /// graph. Error: bad_argument, for arguments of another number or type; workspace_too_small, if the kernel takes
  /// scratch memory and `scratch` is less; device_error.
  Result<void> launch(const TritonGrid& grid, const std::vector<TritonArgument>& arguments, Stream stream = {},
                      void* scratch = nullptr, std::int64_t scratch_bytes = 0) const;

 private:
  struct State;
  explicit TritonKernel(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

}  // namespace flashspan
#pragma GCC visibility pop
