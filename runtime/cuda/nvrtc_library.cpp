#include "runtime/cuda/nvrtc_library.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <glob.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace flashspan::cuda {
namespace {

constexpr int oldest_major = 12;  ///< CUDA 12.0: the first whose drivers have the cuLibrary functions
/// Newest first. A soname carries the major version only.
constexpr std::array<const char*, 2> known_sonames{"libnvrtc.so.13", "libnvrtc.so.12"};

/// Existing paths that match, in descending order, so that newer versions come first.
std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  std::sort(paths.rbegin(), paths.rend());
  return paths;
}

void add_libraries_in(const std::string& folder_pattern, std::vector<std::string>& candidates) {
  for (const char* soname : known_sonames) {
    for (std::string& path : matches(folder_pattern + "/" + soname)) {
      if (std::find(candidates.begin(), candidates.end(), path) == candidates.end()) {
        candidates.push_back(std::move(path));
      }
    }
  }
}

/// A toolkit's root holds lib64, or targets/<platform>/lib (cross and conda packages).
void add_toolkit(const std::string& root, std::vector<std::string>& candidates) {
  add_libraries_in(root + "/lib64", candidates);
  add_libraries_in(root + "/lib", candidates);
  add_libraries_in(root + "/targets/x86_64-linux/lib", candidates);
}

/// Folders of the wheels nvidia-cuda-nvrtc (13) and nvidia-cuda-nvrtc-cu12 below one site-packages folder.
void add_wheels(const std::string& site_packages, std::vector<std::string>& candidates) {
  add_libraries_in(site_packages + "/nvidia/cu13/lib", candidates);
  add_libraries_in(site_packages + "/nvidia/cuda_nvrtc/lib", candidates);
}

template <typename Function>
bool resolve(void* handle, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, symbol));
  return function != nullptr;
}

bool resolve_all(void* handle, NvrtcApi& api) {
  return resolve(handle, "nvrtcVersion", api.version) && resolve(handle, "nvrtcGetErrorString", api.get_error_string) &&
         resolve(handle, "nvrtcGetNumSupportedArchs", api.get_num_supported_archs) &&
         resolve(handle, "nvrtcGetSupportedArchs", api.get_supported_archs) &&
         resolve(handle, "nvrtcCreateProgram", api.create_program) &&
         resolve(handle, "nvrtcDestroyProgram", api.destroy_program) &&
         resolve(handle, "nvrtcCompileProgram", api.compile_program) &&
         resolve(handle, "nvrtcGetProgramLogSize", api.get_program_log_size) &&
         resolve(handle, "nvrtcGetProgramLog", api.get_program_log) &&
         resolve(handle, "nvrtcGetCUBINSize", api.get_cubin_size) && resolve(handle, "nvrtcGetCUBIN", api.get_cubin) &&
         resolve(handle, "nvrtcGetPTXSize", api.get_ptx_size) && resolve(handle, "nvrtcGetPTX", api.get_ptx);
}

/// The build id among the notes of one section (elf(5), "Notes (Nhdr)"; names and descriptors are padded to 4 bytes).
std::string build_id_in(const std::byte* notes, std::size_t size) {
  constexpr auto padded = [](std::size_t bytes) { return (bytes + 3) / 4 * 4; };
  for (std::size_t at = 0; at + sizeof(Elf64_Nhdr) <= size;) {
    Elf64_Nhdr note;
    std::memcpy(&note, notes + at, sizeof(note));
    const std::size_t name = at + sizeof(note);
    const std::size_t text = name + padded(note.n_namesz);
    if (text + note.n_descsz > size) break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(notes + name, "GNU", 4) == 0) {
      std::string id;
      for (std::size_t i = 0; i < note.n_descsz; ++i) {
        constexpr const char* digits = "0123456789abcdef";
        const auto byte = std::to_integer<unsigned>(notes[text + i]);
        id += {digits[byte >> 4], digits[byte & 15]};
      }
      return id;
    }
    at = text + padded(note.n_descsz);
  }
  return {};
}

/// The build id of a file. Its sections are read, not the segments in memory: the wheels' libraries before 12.9 have a
/// moved note that their program headers do not point to.
std::string build_id_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const auto read = [&file](std::uint64_t offset, void* to, std::size_t size) {
    file.seekg(static_cast<std::streamoff>(offset));
    file.read(static_cast<char*>(to), static_cast<std::streamsize>(size));
    return file.good();
  };
  Elf64_Ehdr header{};
  if (!read(0, &header, sizeof(header)) || header.e_shentsize != sizeof(Elf64_Shdr)) return {};
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  if (!read(header.e_shoff, sections.data(), sections.size() * sizeof(Elf64_Shdr))) return {};
  for (const Elf64_Shdr& section : sections) {
    constexpr std::uint64_t largest_note = 4096;
    if (section.sh_type != SHT_NOTE || section.sh_size > largest_note) continue;
    std::vector<std::byte> notes(section.sh_size);
    if (!read(section.sh_offset, notes.data(), notes.size())) return {};
    if (std::string id = build_id_in(notes.data(), notes.size()); !id.empty()) return id;
  }
  return {};
}

/// NVRTC opens libnvrtc-builtins by name on the first compile. Opening the one beside it beforehand makes that work
/// without a RUNPATH; without one beside it, the loader must find one.
bool builtins_found(const NvrtcLibrary& library) {
  const std::string name =
      "libnvrtc-builtins.so." + std::to_string(library.major) + "." + std::to_string(library.minor);
  const std::filesystem::path beside = std::filesystem::path(library.path).parent_path() / name;
  return dlopen(beside.c_str(), RTLD_LAZY | RTLD_LOCAL) != nullptr ||
         dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL) != nullptr;
}

/// Fills in `library`; returns the reason if it cannot be used.
std::optional<std::string> examine(void* handle, const NvrtcSearch& search, NvrtcLibrary& library) {
  if (!resolve_all(handle, library.api)) return "is not an NVRTC that we know (a function is missing)";
  if (library.api.version(&library.major, &library.minor) != 0) return "nvrtcVersion fails";
  const std::string version = std::to_string(library.major) + "." + std::to_string(library.minor);
  if (library.major < oldest_major) return "is version " + version;
  if (search.newest_major != 0 && library.major > search.newest_major) {
    return "is version " + version + ", whose machine code the driver (CUDA " + std::to_string(search.newest_major) +
           ") does not load";
  }
  const link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0 && map != nullptr) {
    library.path = map->l_name;
    library.build_id = build_id_of(library.path);
  }
  if (!builtins_found(library)) return "has no libnvrtc-builtins.so." + version + " beside it";
  int count = 0;
  if (library.api.get_num_supported_archs(&count) != 0 || count <= 0) return "names no architecture";
  library.archs.resize(static_cast<std::size_t>(count));
  if (library.api.get_supported_archs(library.archs.data()) != 0) return "names no architecture";
  return std::nullopt;
}

/// Opens one candidate; on failure appends the reason to `reasons`.
std::optional<NvrtcLibrary> try_open(const std::string& candidate, int flags, const NvrtcSearch& search,
                                     std::string& reasons) {
  // An NVRTC that is unloaded leaves half a megabyte behind each time: a refused one stays.
  void* handle = dlopen(candidate.c_str(), flags | RTLD_NODELETE);
  if (handle == nullptr) {
    const char* reason = dlerror();
    if ((flags & RTLD_NOLOAD) == 0) reasons += std::string(reason == nullptr ? candidate : reason) + "\n";
    return std::nullopt;
  }
  NvrtcLibrary library;
  if (const auto refused = examine(handle, search, library)) {
    reasons += candidate + " " + *refused + "\n";
    dlclose(handle);
    return std::nullopt;
  }
  return library;
}

bool is_loaded(const char* soname) {
  void* handle = dlopen(soname, RTLD_LAZY | RTLD_NOLOAD);
  if (handle != nullptr) dlclose(handle);
  return handle != nullptr;
}

std::string identity_of_build(int major, const std::string& build_id) {
  return "nvrtc " + std::to_string(major) + " build " + build_id;
}

/// As the file's name says.
int major_of(const std::string& path) { return std::atoi(path.substr(path.rfind('.') + 1).c_str()); }

}  // namespace

std::string NvrtcLibrary::identity() const {
  if (!build_id.empty()) return identity_of_build(major, build_id);
  return "nvrtc " + std::to_string(major) + "." + std::to_string(minor);
}

std::optional<NamedNvrtc> name_nvrtc(const NvrtcSearch& search) {
  if (std::any_of(known_sonames.begin(), known_sonames.end(), is_loaded)) return std::nullopt;
  for (const std::string& candidate : nvrtc_candidates(search)) {
    const int major = major_of(candidate);
    if (search.newest_major != 0 && major > search.newest_major) continue;
    const std::filesystem::path folder = std::filesystem::path(candidate).parent_path();
    if (folder.empty()) return std::nullopt;  // the loader's to find
    const std::string build_id = build_id_of(candidate);
    const bool whole = !matches(folder.string() + "/libnvrtc-builtins.so." + std::to_string(major) + ".*").empty();
    if (build_id.empty() || !whole) return std::nullopt;
    return NamedNvrtc{candidate, identity_of_build(major, build_id)};
  }
  return std::nullopt;
}

std::vector<std::string> nvrtc_candidates(const NvrtcSearch& search) {
  std::vector<std::string> candidates;
  if (!search.cuda_home.empty()) add_toolkit(search.cuda_home, candidates);
  add_toolkit("/usr/local/cuda", candidates);
  add_toolkit("/usr/local/cuda-*", candidates);
  for (const std::string& folder : search.extra_folders) {
    add_libraries_in(folder, candidates);
    add_libraries_in(folder + "/lib", candidates);
    add_wheels(folder, candidates);
    add_wheels(folder + "/lib/python3*/site-packages", candidates);
  }
  for (const char* prefix : {"/usr/local/lib", "/usr/lib"}) {
    for (const char* packages : {"site-packages", "dist-packages"}) {
      add_wheels(std::string(prefix) + "/python3*/" + packages, candidates);
    }
  }
  candidates.insert(candidates.end(), known_sonames.begin(), known_sonames.end());
  return candidates;
}

Result<NvrtcLibrary> open_nvrtc(const NvrtcSearch& search) {
  std::string reasons;
  if (!search.first.empty()) {
    if (auto library = try_open(search.first, RTLD_NOW | RTLD_LOCAL, search, reasons)) return *std::move(library);
  }
  for (const char* soname : known_sonames) {
    if (auto library = try_open(soname, RTLD_NOW | RTLD_NOLOAD, search, reasons)) return *std::move(library);
  }
  for (const std::string& candidate : nvrtc_candidates(search)) {
    if (auto library = try_open(candidate, RTLD_NOW | RTLD_LOCAL, search, reasons)) return *std::move(library);
  }
  const bool limited = search.newest_major != 0;
  return Error{ErrorCode::missing_component, "nvrtc", "no usable libnvrtc",
               "libnvrtc 12.0 or later" +
                   (limited ? " and before " + std::to_string(search.newest_major + 1) + ".0" : std::string()) +
                   ": install it with `pip install nvidia-cuda-nvrtc" +
                   (search.newest_major == oldest_major ? "-cu12" : "") + "` or install the CUDA toolkit",
               reasons};
}

}  // namespace flashspan::cuda
