// emit.hpp -- kernels as text for other programs: PTX, and C with the machine code in it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "flashspan/core/error.hpp"
#include "flashspan/core/tile_config.hpp"
#include "flashspan/core/types.hpp"
#include "flashspan/mask.hpp"

#pragma GCC visibility push(default)
namespace flashspan {

struct EmitRequest {
  const Mask* mask = nullptr;    ///< null: every key is visible; its tensors in host memory, of which only shapes count
  const Score* score = nullptr;  ///< null: scores as they are
  AttentionShape shape;          ///< all sizes are fixed: tensors are row-major [batch, heads, sequence, head dim]
  DType dtype = DType::bf16;
  Direction direction = Direction::forward;
  bool deterministic = false;
  std::optional<TileConfig> tile;
  std::vector<Arch> archs;
  std::string name = "attention";  ///< of the C function; an identifier
  std::optional<std::string> cache_dir;
  /// emit_ptx(): for Triton's ir_override, a kernel that takes tensors and scalars one by one; see emit_ptx().
  bool for_triton = false;
};

/// A program of one function and what belongs to it, for C11 and libcuda; Flashspan is not needed to compile or run it.
struct EmittedProgram {
  std::string header, source;  ///< <name>.h, <name>.c
};

/// Writes
///   CUresult <name>(CUstream stream, CUdeviceptr query, key, value, out, lse, ...,  float scale, CUdeviceptr
///   workspace)
/// with the mask's and score's tensors and scalars as further arguments, by their names, and of a backward the
/// gradients; <name>_workspace_bytes(), <name>_load() and <name>_unload(). It runs on the current context's device if
/// one of the architectures fits; it never exits, allocates nothing on the device, and may be captured in a CUDA graph
/// once loaded. Error: as prepare(); bad_argument for a name that is no identifier; unsupported for what such a program
/// cannot have.
[[nodiscard]] Result<EmittedProgram> emit_c(const EmitRequest& request);

/// PTX of each architecture, in their order: one module of the kernels and their planner. With `for_triton`, the call
/// is one that Triton can launch, with the arguments of emit_c() in their order, without a workspace, and the first
/// line says of which function, grid and number of warps. Error: as emit_c(); with `for_triton` also unsupported, for
/// calls of several kernels (those with a mask), architectures whose kernels take tensor maps by value (sm_90a), and
/// tiles of more than 48 KiB.
[[nodiscard]] Result<std::vector<std::string>> emit_ptx(const EmitRequest& request);

}  // namespace flashspan
#pragma GCC visibility pop
