// npy.hpp -- NumPy's .npy format (versions 1 to 3) in memory: bytes to HostArray and back.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "flashspan/core/error.hpp"
#include "tools/flashspan/host_array.hpp"

namespace flashspan::tool {

/// Takes little-endian f4, f2, i4, and i8 whose values fit in 32 bits (they become i32), of rank 0 to 5, in C or
/// Fortran order. `argument` and `file` name the input in messages. Error: bad_argument.
[[nodiscard]] Result<HostArray> array_from_npy(std::vector<std::byte> bytes, const std::string& argument,
                                               const std::string& file);

/// The header that goes before the row-major bytes of a f32, f16 or i32 array (format version 1.0).
[[nodiscard]] std::string npy_header(const HostArray& array);

}  // namespace flashspan::tool
