// numpy_files.hpp -- the tests' own writer of .npy and .npz files, and reader of .npz; shares no code with the command.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cli_test {

using Shape = std::vector<std::int64_t>;

/// A .npy file's text. `elements` are the raw bytes.
[[nodiscard]] std::string npy_text(const std::string& descr, const Shape& shape, const std::string& elements,
                                   bool fortran_order = false, int version = 1);
[[nodiscard]] std::string npy_f32(const Shape& shape, const std::vector<double>& values);
[[nodiscard]] std::string npy_f16(const Shape& shape, const std::vector<double>& values);
[[nodiscard]] std::string npy_i32(const Shape& shape, const std::vector<std::int64_t>& values);
[[nodiscard]] std::string npy_i64(const Shape& shape, const std::vector<std::int64_t>& values);

/// A zip archive of the members; `deflated` as numpy.savez_compressed writes it.
[[nodiscard]] std::string npz_text(const std::vector<std::pair<std::string, std::string>>& members, bool deflated);

/// A f4 array read back.
struct ReadArray {
  Shape shape;
  std::vector<double> values;
};

/// The arrays of an archive of stored f4 members, by name without ".npy". Checks every CRC-32 and throws
/// std::runtime_error for whatever is not as it should be.
[[nodiscard]] std::map<std::string, ReadArray> read_npz(const std::string& path);

}  // namespace cli_test
