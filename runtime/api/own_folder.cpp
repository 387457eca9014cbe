// own_folder.cpp -- see own_folder.hpp.
#include "runtime/api/own_folder.hpp"

#include <dlfcn.h>
#include <link.h>

#include <string_view>
#include <system_error>

namespace flashspan::api {

std::filesystem::path own_folder() {
  static const int here = 0;
  Dl_info found{};
  void* map = nullptr;
  if (dladdr1(&here, &found, &map, RTLD_DL_LINKMAP) == 0 || map == nullptr) return {};
  const std::string_view object = static_cast<const link_map*>(map)->l_name;
  // The executable has no name here, and dli_fname is what its caller called it: "flashspan", if it was found along
  // PATH, which may be another file in the working directory.
  std::error_code failed;
  const auto file = std::filesystem::canonical(object.empty() ? "/proc/self/exe" : object, failed);
  return failed ? std::filesystem::path() : file.parent_path();
}

}  // namespace flashspan::api
