// nvrtc_library.hpp -- finding and opening libnvrtc at run time. Reads no environment variable: the caller says where
// to look.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "flashspan/core/error.hpp"

namespace flashspan::cuda {

/// Where to look for libnvrtc beside the usual places.
struct NvrtcSearch {
  std::string cuda_home;  ///< a toolkit's root (CUDA_HOME or CUDA_PATH); empty: none is set
  /// Any of: a folder that holds libnvrtc, a site-packages folder, a Python prefix (VIRTUAL_ENV, CONDA_PREFIX,
  /// ~/.local).
  std::vector<std::string> extra_folders;
  /// Largest CUDA major version whose machine code the driver loads (its own); 0: any. Machine code runs on drivers of
  /// the same or a later major version only (CUDA Compatibility guide, "minor version compatibility").
  int newest_major = 0;
  /// A file that is tried before all others, and before a libnvrtc that the process has loaded; empty: none.
  std::string first = {};
};

/// The NVRTC functions that we call, each under the name of its function.
struct NvrtcApi {
  using Program = struct nvrtc_program*;
  int (*version)(int* major, int* minor) = nullptr;
  const char* (*get_error_string)(int result) = nullptr;
  int (*get_num_supported_archs)(int* count) = nullptr;
  int (*get_supported_archs)(int* archs) = nullptr;
  int (*create_program)(Program* program, const char* source, const char* name, int header_count,
                        const char* const* headers, const char* const* include_names) = nullptr;
  int (*destroy_program)(Program* program) = nullptr;
  int (*compile_program)(Program program, int option_count, const char* const* options) = nullptr;
  int (*get_program_log_size)(Program program, std::size_t* size) = nullptr;
  int (*get_program_log)(Program program, char* log) = nullptr;
  int (*get_cubin_size)(Program program, std::size_t* size) = nullptr;
  int (*get_cubin)(Program program, char* cubin) = nullptr;
  int (*get_ptx_size)(Program program, std::size_t* size) = nullptr;
  int (*get_ptx)(Program program, char* ptx) = nullptr;
};

/// An opened libnvrtc; stays open for the rest of the process.
struct NvrtcLibrary {
  NvrtcApi api;
  int major = 0;
  int minor = 0;
  std::string path;
  std::string build_id;    ///< the linker's build id in hexadecimal, naming the exact build; empty if there is none
  std::vector<int> archs;  ///< it compiles for sm_<number>, ascending

  /// "nvrtc 13 build 65be0db3...": the exact build, without its path. A library without a build id is told by its
  /// version, "nvrtc 13.0".
  [[nodiscard]] std::string identity() const;
};

/// Files that open_nvrtc() tries, in order, after a libnvrtc that the process has loaded already: cuda_home, the
/// toolkits in /usr/local, the Python wheels, the loader's own path. Names of the loader's path have no folder.
[[nodiscard]] std::vector<std::string> nvrtc_candidates(const NvrtcSearch& search);

/// A libnvrtc that is known by its file alone: opening takes ten milliseconds, most of them for 200,000 relocations.
struct NamedNvrtc {
  std::string path;
  std::string identity;  ///< NvrtcLibrary::identity(), if it can be opened
};

/// The one that open_nvrtc() would most likely open. Nothing if only opening tells, among others if a libnvrtc is open
/// in this process already.
[[nodiscard]] std::optional<NamedNvrtc> name_nvrtc(const NvrtcSearch& search);

/// The first usable libnvrtc of version 12.0 or later.
/// Error: missing_component, with every candidate and the reason against it in `detail`.
[[nodiscard]] Result<NvrtcLibrary> open_nvrtc(const NvrtcSearch& search);

}  // namespace flashspan::cuda
