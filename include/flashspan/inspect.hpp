// inspect.hpp -- what Flashspan knows and would do: tile maps, explanations, ahead-of-time compiles, the cache, the
// machine. Nothing here launches a kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "flashspan/attention.hpp"
#include "flashspan/core/error.hpp"
#include "flashspan/core/tuning_record.hpp"
#include "flashspan/core/types.hpp"
#include "flashspan/mask.hpp"

#pragma GCC visibility push(default)
namespace flashspan {

enum class TileKind : std::uint8_t { empty, full, partial };

/// Exact classification of the tiles of one (batch, head).
struct TileMap {
  std::int64_t block_m = 0, block_n = 0;
  std::int64_t rows = 0, columns = 0;  ///< in tiles
  std::vector<TileKind> kinds;         ///< row-major
  std::int64_t empty = 0, full = 0, partial = 0;
  std::int64_t visible_pairs = 0;
  std::int64_t undecided_by_analysis = 0;  ///< tiles that only exact evaluation settled
};

/// On the host; the mask's tensors must be in host memory. Error: bad_argument.
[[nodiscard]] Result<TileMap> tile_map(const Mask& mask, const AttentionShape& shape, std::int64_t batch,
                                       std::int64_t head, std::int64_t block_m, std::int64_t block_n);

/// The path from mask to kernel, with values, for one direction.
struct DirectionPlan {
  Direction direction = Direction::forward;
  std::string lowering;
  std::string lowering_reason;
  std::string kernel_family;  ///< which templates the kernel is made of: "mma", "hopper"; empty for the CPU
  std::string kernel_family_reason;
  std::string spec;  ///< KernelSpec text, one "name = value" a line
  std::int64_t block_m = 0, block_n = 0;
  std::string tile;         ///< to_string() of its TileConfig
  std::string tile_reason;  ///< where the tile comes from: a tuned one, for which shape and device, or the table
  double flops = 0;         ///< on visible pairs: 2 * (D + Dv) forward, 2 * (3 D + 2 Dv) backward, per pair and head
};

struct Explanation {
  std::string program;  ///< canonical text
  std::string score;    ///< canonical text, empty if none
  std::string score_derivative;
  std::string depends_on;  ///< e.g. "h, q, k"
  TileMap tiles;           ///< of batch 0, head 0, at the forward's tile size
  double density = 0;      ///< visible pairs / (q_len * kv_len), over all heads and batches the mask tells apart
  std::vector<DirectionPlan> directions;
};

/// `arch` nothing means the CPU. Mask tensors in host memory.
[[nodiscard]] Result<Explanation> explain(const Mask& mask, const Score* score, const AttentionShape& shape,
                                          DType dtype, std::optional<Arch> arch);

/// One kernel compiled ahead of time; no GPU needed.
struct CompiledKernel {
  Arch arch{};
  Direction direction = Direction::forward;
  KernelRecord record;
  std::optional<Error> error;
  std::string source;  ///< flattened text of kernels and planner, compiles alone with nvcc
};

struct CompileRequest {
  const Mask* mask = nullptr;
  const Score* score = nullptr;
  std::vector<Arch> archs;
  std::vector<Direction> directions;
  DType dtype = DType::bf16;
  int head_dim_qk = 128;
  int head_dim_v = 128;
  std::vector<std::string> score_gradients;  ///< backward: names of tensors, as in BackwardCall::score_gradients
  bool aligned = true;
  bool few_rows = false;       ///< kernels for calls with too few rows of tiles to fill a card, for example few queries
  bool deterministic = false;  ///< as in BackwardCall
  std::optional<TileConfig> tile;     ///< of both directions; default: that of the built-in table
  std::vector<TuningRecord> tunings;  ///< each kernel is also made with the tiles that these results have for it
  std::optional<std::string> cache_dir, cache_path;  ///< as in AttentionOptions
};

/// Compiles into the cache, `threads` at a time, 0: one a core; `progress` (may be null) is called from the calling
/// thread's view once per finished kernel. Error: missing_component if there is no NVRTC; bad_argument for a dtype,
/// head dims or score gradients that no call takes.
[[nodiscard]] Result<std::vector<CompiledKernel>> compile_ahead(
    const CompileRequest& request, int threads, const std::function<void(const CompiledKernel&)>& progress);

/// The same for many requests, whose kernels, those of their tunings among them, share the threads; the outer list is
/// in the order of the requests, and `progress` is told the place of the kernel's. Error: of the first request that no
/// call takes; nothing is compiled then.
[[nodiscard]] Result<std::vector<std::vector<CompiledKernel>>> compile_ahead(
    const std::vector<CompileRequest>& requests, int threads,
    const std::function<void(std::size_t, const CompiledKernel&)>& progress);

/// How many kernels compile_ahead() makes of a request: one for each architecture and direction, and those of
/// `tunings`. Error: bad_argument, as compile_ahead().
[[nodiscard]] Result<int> count_kernels(const CompileRequest& request);
/// Those of `known` that are results for the kernels of a request, whatever their device and size. Error: as above.
[[nodiscard]] Result<std::vector<TuningRecord>> tunings_for(const CompileRequest& request,
                                                            const std::vector<TuningRecord>& known);

/// Compiles the kernel of a spec into the cache. `spec`: its text, one "name = value" a line, as DirectionPlan::spec
/// and the .spec files in FLASHSPAN_DUMP_DIR have it. Error: bad_argument, for a text that is no spec;
/// missing_component.
[[nodiscard]] Result<CompiledKernel> compile_spec(const std::string& spec, const std::optional<std::string>& cache_dir,
                                                  const std::optional<std::string>& cache_path);

/// One entry of the disk cache or of a bundle.
struct CacheEntry {
  std::string key;
  std::string spec;      ///< summary line
  std::string metadata;  ///< JSON
  std::int64_t bytes = 0;
  std::int64_t last_used_unix_seconds = 0;  ///< 0: in a bundle, which does not say
  bool valid = false;
  std::string damage;
};

/// Directory that the cache uses, resolved as in AttentionOptions.
[[nodiscard]] std::string cache_directory(const std::optional<std::string>& cache_dir);
[[nodiscard]] Result<std::vector<CacheEntry>> list_cache(const std::optional<std::string>& cache_dir);
[[nodiscard]] Result<std::vector<CacheEntry>> prune_cache(const std::optional<std::string>& cache_dir,
                                                          std::optional<std::int64_t> max_bytes,
                                                          std::optional<std::int64_t> older_than_seconds);

/// One finding of `flashspan doctor`.
struct Finding {
  std::string subject;  ///< "driver", "nvrtc", "gpu 0", "cpu", "llvm", "network", "cache"
  bool ok = false;
  std::string detail;  ///< version, path, features
  std::string remedy;  ///< the command that installs what is missing; empty if ok
};
[[nodiscard]] std::vector<Finding> examine_machine(const std::optional<std::string>& cache_dir);

}  // namespace flashspan
#pragma GCC visibility pop
