// own_folder.cpp -- see own_folder.hpp.
#include "runtime/api/own_folder.hpp"

#include <dlfcn.h>

#include <system_error>

namespace flashspan::api {

std::filesystem::path own_folder() {
  static const int here = 0;
  Dl_info found{};
  if (dladdr(&here, &found) == 0 || found.dli_fname == nullptr) return {};
  std::error_code failed;
  const auto file = std::filesystem::canonical(found.dli_fname, failed);
  return failed ? std::filesystem::path() : file.parent_path();
}

}  // namespace flashspan::api
