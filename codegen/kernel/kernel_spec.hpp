// kernel_spec.hpp -- KernelSpec: everything that changes a kernel's code and nothing that does not.
// Never in it: batch, lengths, strides within an alignment class, scalar values, pointers, paths.
#pragma once

#include <memory>
#include <string>

#include "codegen/mask/lowering.hpp"
#include "codegen/mask/program.hpp"
#include "flashspan/core/error.hpp"
#include "flashspan/core/tile_config.hpp"
#include "flashspan/core/types.hpp"

namespace flashspan::kernel {

/// Which templates a CUDA kernel is made of; a CPU kernel has no family.
enum class KernelFamily {
  mma,     ///< mma.sync and cp.async: every architecture from sm_80 on
  hopper,  ///< wgmma and the copy engine: sm_90a
};
[[nodiscard]] const char* to_string(KernelFamily family);

/// What executes the kernel: a CUDA architecture ("sm_90a") or the host CPU ("cpu").
struct Target {
  DeviceKind kind = DeviceKind::cpu;
  Arch arch{};  ///< CUDA only
  friend bool operator==(const Target&, const Target&) = default;
};
[[nodiscard]] std::string to_string(const Target& target);

struct KernelSpec {
  Direction direction = Direction::forward;
  Target target;
  KernelFamily family = KernelFamily::mma;
  DType dtype = DType::f32;  ///< of query, key, value, out and their gradients
  int head_dim_qk = 0;
  int head_dim_v = 0;
  mask::LoweringKind lowering = mask::LoweringKind::expression;
  std::string mask;   ///< signature of the simplified mask program; empty: interpreted, whatever it is
  std::string score;  ///< signature of the simplified score program; empty: scores are used as they are
  /// Backward: names of the score's tensors whose gradients are computed, in the order of their declarations, with
  /// commas between them. A spec without any is the same text as if there were no such field.
  std::string score_gradients;
  /// True if every row of every tensor starts at a multiple of 16 bytes, so 16-byte copies are legal.
  bool aligned = true;
  /// Forward of the hopper family: rows of tiles are cut into portions (worth_splitting()).
  bool split_rows = false;
  /// Backward of the hopper family: dQ has a pass of its own, stationary over queries, and no sums in memory.
  bool two_passes = false;
  TileConfig tile;

  friend bool operator==(const KernelSpec&, const KernelSpec&) = default;

  /// One "name = value" a line, in the order above; the identity of the spec.
  [[nodiscard]] std::string to_text() const;
  /// Inverse of to_text(): from_text(s.to_text()) == s for every s.
  static Result<KernelSpec> from_text(const std::string& text);
  /// One short line for logs: "forward sm_90a bf16 d128 128x64 expression".
  [[nodiscard]] std::string summary() const;
};

struct KernelSpecHash {
  [[nodiscard]] std::size_t operator()(const KernelSpec& spec) const noexcept;
};

}  // namespace flashspan::kernel
