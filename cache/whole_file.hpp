// whole_file.hpp -- reading and creating whole files with the cause of every failure kept as an errno value, which
// decides in disk_store what a failure means.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace flashspan::cache {

/// Every function here returns 0, or the errno value of the call that failed.

struct FileContents {
  std::vector<std::byte> bytes;
  struct stat status{};
};

/// EFBIG if the file is larger than `limit_bytes`. Stamps the file as used now (its modification time) if the last
/// stamp is older than `stamp_after_seconds`; a stamp that fails is no failure. Negative: never stamps.
int read_file(const std::filesystem::path& path, std::int64_t limit_bytes, std::int64_t stamp_after_seconds,
              FileContents& contents);

/// Who may read and write a file that is published.
enum class Permissions {
  of_directory,  ///< who may do so with its directory: of a store that its owner has opened to others
  of_caller,     ///< as of any file that the caller writes: those of the file that it replaces, else what umask leaves
};

/// Puts a file with the bytes at `path`, in place of what is there, and on stable storage: through a private file
/// .tmp-<pid>-<random> beside it that is renamed. Who has the old file open goes on reading it. After a failure no file
/// of ours is left.
int publish_file(const std::filesystem::path& path, std::span<const std::byte> bytes, Permissions permissions);

/// Creates `directory` and its missing parents, readable by the owner only. An existing directory is success.
int create_private_directories(const std::filesystem::path& directory);

/// Creates `directory` with the permissions of `parent`, which exists, its sticky bit among them. An existing directory
/// is success.
int create_directory_like(const std::filesystem::path& directory, const std::filesystem::path& parent);

/// Gives an open file the read and write permissions of `directory`; in a sticky one, where nobody may put a file in
/// the place of another's, its owner alone may write. Best effort: a file of somebody else keeps its own.
void take_permissions_of_directory(int descriptor, const std::filesystem::path& directory);

/// What the system calls an errno value.
[[nodiscard]] std::string error_text(int error);

}  // namespace flashspan::cache
