// empty_cubin.hpp -- the smallest bytes that pass for a cubin: an ELF file for CUDA that has nothing in it.
#pragma once

#include <elf.h>

#include <cstddef>
#include <cstring>
#include <vector>

namespace flashspan::cuda {

inline std::vector<std::byte> empty_cubin() {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_machine = 190;
  header.e_phoff = sizeof(header);
  header.e_phentsize = sizeof(Elf64_Phdr);
  std::vector<std::byte> bytes(sizeof(header));
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}

}  // namespace flashspan::cuda
