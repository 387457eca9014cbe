// cubin.hpp -- whether bytes are a whole CUDA machine-code file.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace flashspan::cuda {

/// What is wrong with the cubin, or nothing. A cubin is an ELF64 file for EM_CUDA whose program headers stand last, so
/// a file that was cut short does not end with them.
[[nodiscard]] std::optional<std::string> cubin_damage(std::span<const std::byte> bytes);

}  // namespace flashspan::cuda
