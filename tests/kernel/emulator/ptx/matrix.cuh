// matrix.cuh -- stands in for templates/ptx/matrix.cuh on the host. Written from the fragment layouts of the PTX ISA
// ("Warp Level Matrix Load Instruction: ldmatrix", "Matrix Fragments for mma.m16n8k16"), not from the templates.
// Stands behind convert.cuh, which every program includes first.
#pragma once

namespace flashspan_device {

using u32 = unsigned int;

inline u32 shared_address(const void* pointer) {
  return static_cast<u32>(static_cast<const char*>(pointer) - reinterpret_cast<const char*>(shared));
}

struct MatrixLoad {
  u32 address;
  u32* result;
};

/// Eight rows of 16 bytes that share a bank cost one more pass each.
inline void count_bank_conflicts(const std::array<MatrixLoad*, emulation::lanes>& loads) {
  for (std::size_t matrix = 0; matrix < 4; ++matrix) {
    u32 banks = 0;
    for (std::size_t row = 0; row < 8; ++row) {
      const u32 bank = 1u << (loads[matrix * 8 + row]->address / 16 % 8);
      if ((banks & bank) != 0) ++emulation::block.bank_conflicts;
      banks |= bank;
    }
  }
}

inline void load_matrices_any(u32 (&result)[4], u32 address, bool transposed) {
  if (address % 16 != 0) emulation::fail("ldmatrix from an address that is not a multiple of 16");
  MatrixLoad load = {address, result};
  const char* const operation = transposed ? "ldmatrix.trans" : "ldmatrix";
  emulation::meet_in_warp(operation, load, [transposed](const std::array<MatrixLoad*, emulation::lanes>& loads) {
    count_bank_conflicts(loads);
    const auto element = [&](std::size_t matrix, std::size_t row, std::size_t column) -> u32 {
      return shared[loads[matrix * 8 + row]->address / 2 + column];
    };
    for (std::size_t lane = 0; lane < loads.size(); ++lane) {
      const std::size_t major = lane / 4;
      const std::size_t minor = lane % 4 * 2;
      for (std::size_t matrix = 0; matrix < 4; ++matrix) {
        loads[lane]->result[matrix] = transposed
                                          ? element(matrix, minor, major) | element(matrix, minor + 1, major) << 16
                                          : element(matrix, major, minor) | element(matrix, major, minor + 1) << 16;
      }
    }
  });
}

inline void load_matrices(u32 (&result)[4], u32 address) { load_matrices_any(result, address, false); }
inline void load_matrices_transposed(u32 (&result)[4], u32 address) { load_matrices_any(result, address, true); }

struct MultiplyAdd {
  float* accumulator;
  const u32* a;
  u32 b[2];
};

template <bool is_bf16>
inline float half_of(u32 pair, std::size_t which) {
  return widen<is_bf16>(static_cast<unsigned short>(which == 0 ? pair & 0xffffu : pair >> 16));
}

template <bool is_bf16>
inline void multiply_add(float (&accumulator)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  MultiplyAdd operands = {accumulator, a, {b0, b1}};
  emulation::meet_in_warp("mma.sync", operands, [](const std::array<MultiplyAdd*, emulation::lanes>& all) {
    float left[16][16];
    float right[16][8];
    for (std::size_t lane = 0; lane < all.size(); ++lane) {
      const std::size_t group = lane / 4;
      const std::size_t pair = lane % 4 * 2;
      for (std::size_t i = 0; i < 8; ++i) {  // a0 .. a7: row group or group + 8, columns in pairs
        const std::size_t row = group + (i / 2 % 2 == 0 ? 0 : 8);
        const std::size_t column = pair + i % 2 + (i >= 4 ? 8 : 0);
        left[row][column] = half_of<is_bf16>(all[lane]->a[i / 2], i % 2);
      }
      for (std::size_t i = 0; i < 4; ++i) {  // b0 .. b3: rows in pairs, column group
        right[pair + i % 2 + (i >= 2 ? 8 : 0)][group] = half_of<is_bf16>(all[lane]->b[i / 2], i % 2);
      }
    }
    for (std::size_t lane = 0; lane < all.size(); ++lane) {
      for (std::size_t i = 0; i < 4; ++i) {  // c0 .. c3
        const std::size_t row = lane / 4 + (i >= 2 ? 8 : 0);
        const std::size_t column = lane % 4 * 2 + i % 2;
        float sum = all[lane]->accumulator[i];
        for (std::size_t k = 0; k < 16; ++k) sum += left[row][k] * right[k][column];
        all[lane]->accumulator[i] = sum;
      }
    }
  });
}

}  // namespace flashspan_device
