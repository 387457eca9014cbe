// shared_file.hpp -- one file that many processes add to: read, changed and published under a lock, so that no change
// is lost. Readers need no lock; they see the file as it was before a change or after it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace flashspan::cache {

/// From the whole old text to the whole new one.
using TextChange = std::function<std::string(const std::string& old)>;

/// Largest file that is read.
inline constexpr std::int64_t largest_shared_file_bytes = std::int64_t{256} << 20;

/// Replaces the text of the file by change(text), where a file that is not there has none. The lock is flock() on
/// <path>.lock, which stays; folders that are missing are made, readable by the owner only. Returns 0, or the errno
/// value of what failed: the file is then as it was.
int change_file(const std::filesystem::path& path, const TextChange& change);

}  // namespace flashspan::cache
