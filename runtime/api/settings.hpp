// settings.hpp -- everything that the environment decides, read once and in one place.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "flashspan/core/error.hpp"

namespace flashspan::api {

/// What the environment says; paths are as given, empty values count as not given.
struct Settings {
  std::optional<std::string> cache_dir;           ///< FLASHSPAN_CACHE_DIR
  std::optional<std::string> cache_home;          ///< XDG_CACHE_HOME, absolute
  std::optional<std::string> home;                ///< HOME, absolute
  std::optional<std::string> temp_dir;            ///< TMPDIR
  std::optional<std::string> dump_dir;            ///< FLASHSPAN_DUMP_DIR
  std::optional<std::string> cpu_plugin;          ///< FLASHSPAN_CPU_PLUGIN: file of the CPU back end
  std::optional<std::string> cuda_home;           ///< CUDA_HOME, else CUDA_PATH
  std::optional<std::string> virtual_env;         ///< VIRTUAL_ENV: a Python prefix that may hold NVRTC
  std::optional<std::string> log;                 ///< FLASHSPAN_LOG: a level, and a sink behind a colon
  std::optional<std::string> cache_path;          ///< FLASHSPAN_CACHE_PATH: folders and bundles, ':' between them
  std::optional<std::string> accept_other_nvrtc;  ///< FLASHSPAN_ACCEPT_OTHER_NVRTC: 0 or 1
  std::optional<std::string> tuning_file;         ///< FLASHSPAN_TUNING_FILE
  std::optional<std::string> max_loaded_kernels;  ///< FLASHSPAN_MAX_LOADED_KERNELS
  std::optional<std::string> network_plugin;      ///< FLASHSPAN_NETWORK_PLUGIN: file of the network's plug-in
  std::optional<std::string> service;             ///< FLASHSPAN_SERVICE: address of a compile service
  std::optional<std::string> service_token;       ///< FLASHSPAN_SERVICE_TOKEN
  std::optional<std::string> service_timeout;     ///< FLASHSPAN_SERVICE_TIMEOUT: seconds
  std::optional<std::string> shared_store;        ///< FLASHSPAN_SHARED_STORE: URL
  std::optional<std::string> signing_key_file;    ///< FLASHSPAN_SIGNING_KEY_FILE
};

/// Value of a variable, or nothing.
using Environment = std::function<std::optional<std::string>(const char* name)>;

[[nodiscard]] Settings read_settings(const Environment& environment);
/// Those of the process, as they were at the first call.
[[nodiscard]] const Settings& settings();

/// Where kernels are kept, first choice first taken: FLASHSPAN_CACHE_DIR, whatever its state; else
/// $XDG_CACHE_HOME/flashspan or $HOME/.cache/flashspan if it can be written to; else the private folder
/// <temp>/flashspan-<uid>. Nothing if that one is not ours alone: kernels then live in memory. Makes no folder but the
/// last. `chosen` overrules the environment; an empty one means memory only.
[[nodiscard]] std::optional<std::filesystem::path> cache_folder(const Settings& settings,
                                                                const std::optional<std::string>& chosen);
/// True if the folder, or the nearest folder above it that exists, can be written to.
[[nodiscard]] bool can_be_written(std::filesystem::path folder);
/// Where the source of a kernel that does not compile goes, first choice first.
[[nodiscard]] std::vector<std::filesystem::path> dump_folders(const Settings& settings,
                                                              const std::optional<std::filesystem::path>& cache);

/// The read-only layers below the cache, in the order they are asked. `chosen` overrules the environment.
[[nodiscard]] std::vector<std::filesystem::path> cache_layers(const Settings& settings,
                                                              const std::optional<std::string>& chosen);
/// Error: bad_argument, for anything but 0 or 1.
[[nodiscard]] Result<bool> accepts_other_nvrtc(const Settings& settings);

/// How long a kernel of a compile service is waited for: FLASHSPAN_SERVICE_TIMEOUT, or `fallback` without it.
/// Error: bad_argument, for anything but a number of seconds above 0 and of 3600 at most.
[[nodiscard]] Result<double> service_timeout_seconds(const Settings& settings, double fallback);

/// How many kernels an Attention keeps on its device: FLASHSPAN_MAX_LOADED_KERNELS, or `fallback` without it.
/// Error: bad_argument, for anything but a whole number of 1 or more.
[[nodiscard]] Result<std::size_t> max_loaded_kernels(const Settings& settings, std::size_t fallback);

}  // namespace flashspan::api
