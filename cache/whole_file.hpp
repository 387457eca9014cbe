// whole_file.hpp -- reading and creating whole files with the cause of every failure kept as an errno value, which
// decides in disk_store what a failure means.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
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

/// Creates `directory`/.tmp-<pid>-<random> with the bytes, on stable storage, with the directory's permissions.
/// After a failure no file is left.
int create_temporary(const std::filesystem::path& directory, std::span<const std::byte> bytes,
                     std::filesystem::path& temporary);

/// Creates `directory` and its missing parents, readable by the owner only. An existing directory is success.
int create_private_directories(const std::filesystem::path& directory);

/// Creates `directory` with the permissions of `parent`, which exists. An existing directory is success.
int create_directory_like(const std::filesystem::path& directory, const std::filesystem::path& parent);

/// Makes renames inside the directory durable, where the file system can.
void sync_directory(const std::filesystem::path& directory);

}  // namespace flashspan::cache
