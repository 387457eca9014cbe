// settings.cpp -- the only getenv of the library, and the folders that follow from it.
#include "runtime/api/settings.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <sstream>
#include <system_error>

#include "cache/disk_store.hpp"

namespace flashspan::api {

namespace {

std::optional<std::string> process_environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return value;
}

/// A folder that a relative path would lead to depends on where the process was started: not a place for a cache.
std::optional<std::string> absolute_only(std::optional<std::string> path) {
  if (path && !std::filesystem::path(*path).is_absolute()) return std::nullopt;
  return path;
}

/// <temp>/flashspan-<uid>, made with mode 0700. Others may have made it first, in a place that anyone can write to; it
/// is used only if it is a folder (not a link) that belongs to us and that nobody else can enter.
std::optional<std::filesystem::path> private_temp_folder(const Settings& settings) {
  std::filesystem::path folder =
      std::filesystem::path(settings.temp_dir.value_or("/tmp")) / ("flashspan-" + std::to_string(::geteuid()));
  constexpr mode_t ours_alone = 0700;
  constexpr mode_t others = 0077;
  ::mkdir(folder.c_str(), ours_alone);  // that it exists already is the usual case; what counts is what stands there
  struct stat found{};
  if (::lstat(folder.c_str(), &found) != 0) return std::nullopt;
  if (!S_ISDIR(found.st_mode) || found.st_uid != ::geteuid() || (found.st_mode & others) != 0) return std::nullopt;
  return folder;
}

}  // namespace

Settings read_settings(const Environment& environment) {
  const auto given = [&](const char* name) -> std::optional<std::string> {
    auto value = environment(name);
    if (value && value->empty()) return std::nullopt;
    return value;
  };
  Settings settings;
  settings.cache_dir = given("FLASHSPAN_CACHE_DIR");
  settings.cache_home = absolute_only(given("XDG_CACHE_HOME"));
  settings.home = absolute_only(given("HOME"));
  settings.temp_dir = absolute_only(given("TMPDIR"));
  settings.dump_dir = given("FLASHSPAN_DUMP_DIR");
  settings.cpu_plugin = given("FLASHSPAN_CPU_PLUGIN");
  settings.cuda_home = given("CUDA_HOME");
  if (!settings.cuda_home) settings.cuda_home = given("CUDA_PATH");
  settings.virtual_env = given("VIRTUAL_ENV");
  settings.log = given("FLASHSPAN_LOG");
  settings.cache_path = given("FLASHSPAN_CACHE_PATH");
  settings.accept_other_nvrtc = given("FLASHSPAN_ACCEPT_OTHER_NVRTC");
  settings.tuning_file = given("FLASHSPAN_TUNING_FILE");
  settings.max_loaded_kernels = given("FLASHSPAN_MAX_LOADED_KERNELS");
  settings.network_plugin = given("FLASHSPAN_NETWORK_PLUGIN");
  settings.service = given("FLASHSPAN_SERVICE");
  settings.service_token = given("FLASHSPAN_SERVICE_TOKEN");
  settings.service_timeout = given("FLASHSPAN_SERVICE_TIMEOUT");
  settings.shared_store = given("FLASHSPAN_SHARED_STORE");
  settings.signing_key_file = given("FLASHSPAN_SIGNING_KEY_FILE");
  return settings;
}

const Settings& settings() {
  static const Settings read = read_settings(process_environment);
  return read;
}

bool can_be_written(std::filesystem::path folder) {
  std::error_code failed;
  while (!std::filesystem::exists(folder, failed)) {
    if (!folder.has_parent_path() || folder.parent_path() == folder) return false;
    folder = folder.parent_path();
  }
  return std::filesystem::is_directory(folder, failed) && ::access(folder.c_str(), W_OK | X_OK) == 0;
}

std::optional<std::filesystem::path> cache_folder(const Settings& settings, const std::optional<std::string>& chosen) {
  if (chosen) {
    if (chosen->empty()) return std::nullopt;
    return *chosen;
  }
  if (settings.cache_dir) return *settings.cache_dir;
  std::optional<std::filesystem::path> usual;
  if (settings.cache_home) {
    usual = std::filesystem::path(*settings.cache_home) / "flashspan";
  } else if (settings.home) {
    usual = std::filesystem::path(*settings.home) / ".cache" / "flashspan";
  }
  if (usual && can_be_written(*usual)) return usual;
  return private_temp_folder(settings);
}

std::vector<std::filesystem::path> dump_folders(const Settings& settings,
                                                const std::optional<std::filesystem::path>& cache) {
  std::vector<std::filesystem::path> folders;
  if (settings.dump_dir) folders.emplace_back(*settings.dump_dir);
  if (cache) folders.push_back(*cache / cache::failed_folder);
  if (const auto temp = private_temp_folder(settings)) folders.push_back(*temp / cache::failed_folder);
  return folders;
}

std::vector<std::filesystem::path> cache_layers(const Settings& settings, const std::optional<std::string>& chosen) {
  std::vector<std::filesystem::path> layers;
  std::istringstream path(chosen ? *chosen : settings.cache_path.value_or(""));
  for (std::string layer; std::getline(path, layer, ':');) {
    if (!layer.empty()) layers.emplace_back(layer);
  }
  return layers;
}

Result<bool> accepts_other_nvrtc(const Settings& settings) {
  const std::string text = settings.accept_other_nvrtc.value_or("0");
  if (text == "0" || text == "1") return text == "1";
  return Error{ErrorCode::bad_argument, "FLASHSPAN_ACCEPT_OTHER_NVRTC", text, "0 or 1", ""};
}

Result<double> service_timeout_seconds(const Settings& settings, double fallback) {
  if (!settings.service_timeout) return fallback;
  const std::string& text = *settings.service_timeout;
  constexpr double most = 3600;
  double seconds = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const bool whole = failed == std::errc() && end == text.data() + text.size();
  if (whole && seconds > 0 && seconds <= most) return seconds;
  return Error{ErrorCode::bad_argument, "FLASHSPAN_SERVICE_TIMEOUT", text, "seconds, above 0 and at most 3600", ""};
}

Result<std::size_t> max_loaded_kernels(const Settings& settings, std::size_t fallback) {
  if (!settings.max_loaded_kernels) return fallback;
  const std::string& text = *settings.max_loaded_kernels;
  std::size_t number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed == std::errc() && end == text.data() + text.size() && number > 0) return number;
  return Error{ErrorCode::bad_argument, "FLASHSPAN_MAX_LOADED_KERNELS", text, "a whole number of 1 or more", ""};
}

}  // namespace flashspan::api
