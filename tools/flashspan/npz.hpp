// npz.hpp -- NumPy's .npz format (a zip archive of .npy files) in memory, and the arrays of a path on disk.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "flashspan/core/error.hpp"
#include "tools/flashspan/host_array.hpp"

namespace flashspan::tool {

/// One file of an archive, its contents inflated and their CRC-32 checked.
struct ArchiveMember {
  std::string name;
  std::vector<std::byte> bytes;
};

/// Names of the archive's members, in its order. Error: bad_argument if the archive is damaged.
[[nodiscard]] Result<std::vector<std::string>> archive_names(const std::vector<std::byte>& archive,
                                                             const std::string& argument, const std::string& file);
/// The member `name`. Error: bad_argument if it is missing, encrypted, damaged or packed by an unknown method.
[[nodiscard]] Result<ArchiveMember> archive_member(const std::vector<std::byte>& archive, const std::string& name,
                                                   const std::string& argument, const std::string& file);

/// Reads "a.npy", "a.npz" (of one member) or "a.npz:name". Error: io_error, bad_argument.
[[nodiscard]] Result<HostArray> read_array(const std::string& path, const std::string& argument);

using NamedArrays = std::vector<std::pair<std::string, HostArray>>;

/// Writes an uncompressed .npz: a private file beside `path`, flushed, then renamed, so that `path` holds either what
/// it held before or the whole archive. Error: io_error.
[[nodiscard]] Result<void> write_npz(const std::string& path, const std::string& argument, const NamedArrays& arrays);

}  // namespace flashspan::tool
