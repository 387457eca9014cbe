// tuning.hpp -- tiles by measurement: Attention::tune() times what a call's kernel may be made of, with the call's own
// mask and plan at its own size, and a table of the results is what later calls take their tiles from.
//
// A call takes its tile from the first of
//   1. ForwardCall::tile, BackwardCall::tile;
//   2. a result for its kernel and mask (the program; whatever its data) on this device and of this compiler, whose
//      shape is of the same class: equal powers of two of batch times heads, of queries and of keys;
//   3. such a result of the nearest class;
//   4. the built-in table, and where that has nothing that fits, the resource model.
// explain() says which. A file has one result a line, as JSON. Writers merge under a lock, so that no process loses
// another's results; readers need none.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "flashspan/attention.hpp"
#include "flashspan/core/error.hpp"
#include "flashspan/core/tile_config.hpp"
#include "flashspan/core/tuning_record.hpp"
#include "flashspan/core/types.hpp"

#pragma GCC visibility push(default)
namespace flashspan {

/// What one thread block takes of its multiprocessor, known before anything is compiled.
struct TileResources {
  TileConfig tile;
  int threads = 0;                    ///< of a block, those that only copy included
  std::int64_t shared_bytes = 0;      ///< dynamic shared memory of a block
  std::int64_t shared_limit = 0;      ///< most that the architecture gives a block
  int accumulator_registers = 0;      ///< of a computing thread: results and one tile's scores
  int registers = 0;                  ///< of a computing thread, estimated
  int register_limit = 0;             ///< most that a computing thread can have in a block of this size
  int blocks_per_multiprocessor = 0;  ///< resident at a time; 0: the block cannot be launched
  double occupancy = 0;               ///< resident warps, as a part of the most that the architecture holds
  double predicted_cost = 0;          ///< rank of the model: relative time, smaller is faster
};

/// How the measurement of one candidate ended.
enum class TuneOutcome {
  measured,
  hopeless,     ///< stopped after its first runs: far slower than the best so far
  wrong,        ///< its results differ from the default tile's
  failed,       ///< it did not compile, takes too many registers, or did not launch
  out_of_time,  ///< TuneOptions::time_limit_seconds were over before it ran
};
[[nodiscard]] const char* to_string(TuneOutcome outcome);

struct TunedCandidate {
  TileResources resources;
  TuneOutcome outcome = TuneOutcome::failed;
  std::string note;         ///< one line: why it is not measured
  double milliseconds = 0;  ///< median of a call; 0: did not run
  int runs = 0;
  int compiled_registers = 0;  ///< of the cubin; 0 on the CPU
  std::int64_t spill_bytes = 0;
};

struct TuneReport {
  TuningRecord best;
  std::vector<TunedCandidate> candidates;  ///< the default first, then in the model's order
  bool remembered = false;                 ///< written to the tuning file
  std::string not_remembered;              ///< why not, if it was to be
};

// NOLINTBEGIN(readability-redundant-member-init): members with an initialiser may be left out of a designated list.
struct TuneOptions {
  /// Tiles to try beside the default; empty: those of the resource model. One that the kernel cannot have is reported
  /// as failed.
  std::vector<TileConfig> tiles{};
  int most_candidates = 0;             ///< of the model's, the first so many of its order; 0: all
  double time_limit_seconds = 60;      ///< for everything, compiles included; the default tile is always measured
  double candidate_milliseconds = 60;  ///< of device time that one candidate is measured for, at least 5 runs
  bool remember = true;                ///< in the tuning file and for later calls of this Attention
  /// Called by the calling thread once per candidate: how many are done, of how many, and the last one.
  std::function<void(int done, int all, const TunedCandidate&)> progress{};
};
// NOLINTEND(readability-redundant-member-init)

/// The tiles that a call's kernel may have on the architecture (nothing: the CPU), best first by the resource model.
/// Error: as explain().
[[nodiscard]] Result<std::vector<TileResources>> tile_candidates(const Mask& mask, const Score* score,
                                                                 const AttentionShape& shape, DType dtype,
                                                                 Direction direction, std::optional<Arch> arch);

/// One line for a record's kernel: "forward sm_90a hopper bf16 d128 128x64 expression".
[[nodiscard]] std::string kernel_summary(const std::string& spec);

/// The file that an Attention with these options reads and writes. Nothing: none.
[[nodiscard]] std::optional<std::string> tuning_file(const std::optional<std::string>& cache_dir = std::nullopt);
/// Lines that are no record are left out. Error: io_error.
[[nodiscard]] Result<std::vector<TuningRecord>> read_tuning_file(const std::string& path);
/// Adds records to a file; of those for one kernel, mask, class of shapes, device, compiler and driver the newest
/// stays. Error: io_error; the file is then as before.
Result<void> merge_tuning_records(const std::string& path, const std::vector<TuningRecord>& records);

}  // namespace flashspan
#pragma GCC visibility pop
