#include "runtime/cuda/cubin_parameters.hpp"

#include <elf.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "runtime/cuda/cubin.hpp"

namespace flashspan::cuda {
namespace {

using Bytes = std::span<const std::byte>;

template <typename T>
std::optional<T> read_at(Bytes bytes, std::size_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

std::optional<Bytes> contents_of(Bytes cubin, const Elf64_Shdr& section) {
  if (section.sh_offset > cubin.size() || section.sh_size > cubin.size() - section.sh_offset) return std::nullopt;
  return cubin.subspan(section.sh_offset, section.sh_size);
}

std::string_view text_at(Bytes strings, std::size_t offset) {
  if (offset >= strings.size()) return {};
  const auto* const begin = reinterpret_cast<const char*>(strings.data()) + offset;
  return {begin, ::strnlen(begin, strings.size() - offset)};
}

std::optional<Bytes> section_named(Bytes cubin, std::string_view name) {
  const auto header = read_at<Elf64_Ehdr>(cubin, 0);
  if (!header) return std::nullopt;
  const auto section = [&](std::size_t index) {
    return read_at<Elf64_Shdr>(cubin, header->e_shoff + index * sizeof(Elf64_Shdr));
  };
  const auto of_names = section(header->e_shstrndx);
  if (!of_names) return std::nullopt;
  const auto names = contents_of(cubin, *of_names);
  if (!names) return std::nullopt;
  for (std::size_t index = 0; index < header->e_shnum; ++index) {
    const auto candidate = section(index);
    if (candidate && text_at(*names, candidate->sh_name) == name) return contents_of(cubin, *candidate);
  }
  return std::nullopt;
}

constexpr std::uint8_t format_with_size = 4;  // a size of 16 bits, and as many bytes
constexpr std::uint8_t attribute_required_block = 0x10;
constexpr std::uint8_t attribute_parameter = 0x17;

struct PlacedParameter {
  int ordinal;
  KernelParameter parameter;
};

/// An index, the ordinal, the offset and, in the upper 14 bits of the last word, the size.
std::optional<PlacedParameter> parameter_from(Bytes value) {
  const auto ordinal = read_at<std::uint16_t>(value, 4);
  const auto offset = read_at<std::uint16_t>(value, 6);
  const auto flags = read_at<std::uint32_t>(value, 8);
  if (!ordinal || !offset || !flags) return std::nullopt;
  constexpr int size_shift = 18;
  return PlacedParameter{*ordinal, {*offset, static_cast<int>(*flags >> size_shift)}};
}

std::optional<std::array<int, 3>> block_from(Bytes value) {
  std::array<int, 3> block{};
  for (std::size_t axis = 0; axis < block.size(); ++axis) {
    const auto threads = read_at<std::uint32_t>(value, 4 * axis);
    if (!threads) return std::nullopt;
    block[axis] = static_cast<int>(*threads);
  }
  return block;
}

}  // namespace

std::optional<CubinKernel> cubin_kernel(Bytes cubin, std::string_view name) {
  if (cubin_damage(cubin)) return std::nullopt;
  const auto info = section_named(cubin, ".nv.info." + std::string(name));
  if (!info) return std::nullopt;
  CubinKernel kernel;
  std::vector<PlacedParameter> placed;
  std::size_t at = 0;
  constexpr std::size_t head_bytes = 4;  // format, attribute, and a size or a value
  while (at + head_bytes <= info->size()) {
    const auto format = std::to_integer<std::uint8_t>((*info)[at]);
    const auto attribute = std::to_integer<std::uint8_t>((*info)[at + 1]);
    const std::size_t size = format == format_with_size ? *read_at<std::uint16_t>(*info, at + 2) : 0;
    at += head_bytes;
    if (size > info->size() - at) return std::nullopt;
    const Bytes value = info->subspan(at, size);
    if (attribute == attribute_parameter && format == format_with_size) {
      const auto parameter = parameter_from(value);
      if (!parameter) return std::nullopt;
      placed.push_back(*parameter);
    } else if (attribute == attribute_required_block && format == format_with_size) {
      kernel.required_block = block_from(value);
    }
    at += size;
  }
  std::ranges::sort(placed, {}, &PlacedParameter::ordinal);
  for (const PlacedParameter& parameter : placed) kernel.parameters.push_back(parameter.parameter);
  return kernel;
}

}  // namespace flashspan::cuda
