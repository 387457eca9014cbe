#include "runtime/cuda/cubin.hpp"

#include <elf.h>

#include <cstring>

namespace flashspan::cuda {

std::optional<std::string> cubin_damage(std::span<const std::byte> bytes) {
  constexpr unsigned machine_cuda = 190;  // EM_CUDA of the ELF registry
  const std::string size = std::to_string(bytes.size()) + " bytes";
  Elf64_Ehdr header;
  if (bytes.size() < sizeof(header)) return "too short for an ELF header: " + size;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return "no ELF magic number at the start";
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != machine_cuda) return "not an ELF64 file for CUDA";
  const std::size_t end = header.e_phoff + std::size_t{header.e_phnum} * header.e_phentsize;
  if (end != bytes.size()) return "its headers end at byte " + std::to_string(end) + ", the file has " + size;
  return std::nullopt;
}

}  // namespace flashspan::cuda
