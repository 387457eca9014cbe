#include "runtime/cuda/cubin.hpp"

#include <elf.h>

#include <cstring>

namespace flashspan::cuda {

namespace {

/// What is wrong with the header of the cubin that `bytes` start with, or nothing.
std::optional<std::string> header_damage(std::span<const std::byte> bytes) {
  constexpr unsigned machine_cuda = 190;  // EM_CUDA of the ELF registry
  Elf64_Ehdr header;
  if (bytes.size() < sizeof(header)) return "too short for an ELF header: " + std::to_string(bytes.size()) + " bytes";
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return "no ELF magic number at the start";
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != machine_cuda) return "not an ELF64 file for CUDA";
  return std::nullopt;
}

}  // namespace

std::size_t cubin_bytes(const void* code) {
  Elf64_Ehdr header;
  std::memcpy(&header, code, sizeof(header));
  return header.e_phoff + std::size_t{header.e_phnum} * header.e_phentsize;
}

std::optional<std::string> cubin_damage(std::span<const std::byte> bytes) {
  if (auto damage = header_damage(bytes)) return damage;
  const std::size_t end = cubin_bytes(bytes.data());
  if (end == bytes.size()) return std::nullopt;
  return "its headers end at byte " + std::to_string(end) + ", the file has " + std::to_string(bytes.size()) + " bytes";
}

std::vector<std::span<const std::byte>> split_cubins(std::span<const std::byte> bytes) {
  std::vector<std::span<const std::byte>> cubins;
  while (!bytes.empty()) {
    std::size_t size = header_damage(bytes) ? bytes.size() : cubin_bytes(bytes.data());
    if (size < sizeof(Elf64_Ehdr) || size > bytes.size()) size = bytes.size();
    cubins.push_back(bytes.first(size));
    bytes = bytes.subspan(size);
  }
  return cubins;
}

}  // namespace flashspan::cuda
