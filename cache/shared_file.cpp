#include "cache/shared_file.hpp"

#include <cerrno>
#include <cstddef>
#include <span>

#include "cache/file_lock.hpp"
#include "cache/whole_file.hpp"

namespace flashspan::cache {
int change_file(const std::filesystem::path& path, const TextChange& change) {
  if (path.has_parent_path()) {
    if (const int error = create_private_directories(path.parent_path()); error != 0) return error;
  }
  FileLock lock(path.string() + ".lock");
  if (const int error = lock.wait_for(); error != 0) return error;
  FileContents contents;
  constexpr std::int64_t never = -1;
  const int error = read_file(path, largest_shared_file_bytes, never, contents);
  if (error != 0 && error != ENOENT) return error;
  const std::string old(reinterpret_cast<const char*>(contents.bytes.data()), contents.bytes.size());
  const std::string changed = change(old);
  return publish_file(path, std::as_bytes(std::span(changed)), Permissions::of_directory);
}

}  // namespace flashspan::cache
