// A cubin that was cut short, or is not one, is recognised before a driver sees it; and of several, where each ends.
#include "runtime/cuda/cubin.hpp"

#include <elf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/cuda/nvrtc_fixture.hpp"

namespace flashspan::cuda {
namespace {

class Cubin : public WithNvrtc {
 protected:
  std::vector<std::byte> whole() const {
    const auto binary = compile("extern \"C\" __global__ void fill(int* p) { p[threadIdx.x] = 7; }", {"fill"});
    return binary ? binary->bytes() : std::vector<std::byte>{};
  }
};

TEST_F(Cubin, AsNvrtcMadeItIsWhole) {
  for (const Arch arch : {Arch{80, 0}, Arch{90, 0}, Arch{120, 0}}) {
    if (!std::binary_search(compiler().library().archs.begin(), compiler().library().archs.end(), arch.number))
      continue;
    const auto binary = compile("extern \"C\" __global__ void fill(int* p) { p[threadIdx.x] = 7; }", {"fill"}, arch);
    ASSERT_TRUE(binary) << binary.error().message();
    EXPECT_EQ(cubin_damage(binary->bytes()), std::nullopt) << to_string(arch);
  }
}

TEST_F(Cubin, CutShortAnywhereIsDamaged) {
  const auto bytes = whole();
  ASSERT_GT(bytes.size(), 1000u);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    ASSERT_TRUE(cubin_damage(std::span(bytes).first(size))) << "cut to " << size << " of " << bytes.size();
  }
}

TEST_F(Cubin, WithBytesBehindItIsDamaged) {
  auto bytes = whole();
  bytes.push_back(std::byte{0});
  ASSERT_TRUE(cubin_damage(bytes));
  EXPECT_NE(cubin_damage(bytes)->find("headers end at byte"), std::string::npos);
}

TEST_F(Cubin, WithAnotherMagicNumberOrMachineIsDamaged) {
  auto bytes = whole();
  ASSERT_FALSE(bytes.empty());
  auto other_magic = bytes;
  other_magic[1] = std::byte{'e'};
  EXPECT_EQ(cubin_damage(other_magic), "no ELF magic number at the start");
  auto other_machine = bytes;
  other_machine[18] = std::byte{62};  // e_machine: x86-64
  EXPECT_EQ(cubin_damage(other_machine), "not an ELF64 file for CUDA");
}

std::vector<std::byte> joined(const std::vector<std::byte>& first, const std::vector<std::byte>& second) {
  auto bytes = first;
  bytes.insert(bytes.end(), second.begin(), second.end());
  return bytes;
}

TEST_F(Cubin, StandsBehindAnotherAndIsFoundThere) {
  const auto one = whole();
  const auto other = compile("extern \"C\" __global__ void add(int* p, int n) { p[threadIdx.x] += n; }", {"add"});
  ASSERT_TRUE(other) << other.error().message();
  const auto bytes = joined(one, other->bytes());
  const auto cubins = split_cubins(bytes);
  ASSERT_EQ(cubins.size(), 2u);
  EXPECT_TRUE(std::ranges::equal(cubins[0], one));
  EXPECT_TRUE(std::ranges::equal(cubins[1], other->bytes()));
  EXPECT_EQ(split_cubins(one).size(), 1u);
  EXPECT_TRUE(split_cubins({}).empty());
}

TEST_F(Cubin, CutShortAnywhereBehindAnotherIsTheLastAndDamaged) {
  const auto one = whole();
  const auto bytes = joined(one, one);
  for (std::size_t size = one.size() + 1; size < bytes.size(); ++size) {
    const auto cubins = split_cubins(std::span(bytes).first(size));
    ASSERT_EQ(cubins.size(), 2u) << "cut to " << size;
    ASSERT_EQ(cubin_damage(cubins[0]), std::nullopt);
    ASSERT_TRUE(cubin_damage(cubins[1])) << "cut to " << size;
  }
}

TEST_F(Cubin, WhoseHeaderEndsItBeforeItselfIsDamaged) {
  auto bytes = whole();
  ASSERT_FALSE(bytes.empty());
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  header.e_phoff = 0;
  header.e_phnum = 0;
  std::memcpy(bytes.data(), &header, sizeof(header));
  const auto cubins = split_cubins(bytes);
  ASSERT_EQ(cubins.size(), 1u);
  EXPECT_TRUE(cubin_damage(cubins[0]));
}

}  // namespace
}  // namespace flashspan::cuda
