// cubin.hpp -- where CUDA machine-code files end, and whether they are whole.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace flashspan::cuda {

/// Size of the cubin that starts at `code`, as a driver finds it: an ELF64 file, whose program headers stand last.
/// At least its header must be there.
[[nodiscard]] std::size_t cubin_bytes(const void* code);

/// What is wrong with the cubin, or nothing. One that was cut short does not end with its program headers.
[[nodiscard]] std::optional<std::string> cubin_damage(std::span<const std::byte> bytes);

/// The cubins that stand one after another in `bytes`, which they refer to. From the first damaged one on, all that is
/// left is one of them.
[[nodiscard]] std::vector<std::span<const std::byte>> split_cubins(std::span<const std::byte> bytes);

}  // namespace flashspan::cuda
