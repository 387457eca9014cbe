// formats.hpp -- number formats of the tests: binary32, binary16 and bfloat16, rounded to nearest even.
#pragma once

#include <cstddef>
#include <cstdint>

namespace oracle {

enum class Format { f32, f16, bf16 };

[[nodiscard]] std::size_t bytes_per_element(Format format);
/// Half the distance from 1 to the next number: the largest relative error of one rounding.
[[nodiscard]] double unit_roundoff(Format format);
/// Half the smallest positive number: the largest absolute error of one rounding near zero.
[[nodiscard]] double underflow_unit(Format format);

[[nodiscard]] std::uint16_t to_bf16(float value);
[[nodiscard]] float from_bf16(std::uint16_t bits);
[[nodiscard]] std::uint16_t to_f16(float value);
[[nodiscard]] float from_f16(std::uint16_t bits);

/// The number of `format` nearest to `value`.
[[nodiscard]] float round_to(Format format, float value);
/// Writes `value` in `format` at `memory` / reads it from there.
void store(Format format, float value, std::byte* memory);
[[nodiscard]] float load(Format format, const std::byte* memory);

}  // namespace oracle
