// bench_case.hpp -- one attention problem on a device: its tensors, its mask, and how to run and time it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "flashspan/attention.hpp"
#include "flashspan/device.hpp"

namespace flashspan::bench {

/// What to run. Tensors are [B, H, S, D], contiguous.
struct CaseOptions {
  AttentionShape shape;
  DType dtype = DType::bf16;
  std::string mask = "full";                     ///< a named mask or an expression
  std::vector<std::string> tensors;              ///< "doc=doc.i32": rank-1 i32 tensors, raw files
  std::vector<std::string> scalars;              ///< "left=1023": integers
  std::optional<std::filesystem::path> inputs;   ///< folder with q, k, v, do as raw files; else random numbers
  std::optional<std::filesystem::path> results;  ///< folder that gets out, lse, dq, dk, dv as raw files
  bool deterministic = false;                    ///< as in BackwardCall
  std::optional<TileConfig> forward_tile;        ///< instead of the one that is chosen
  std::optional<TileConfig> backward_tile;       ///< as forward_tile
  bool backward = true;                          ///< whether there is a backward at all; else no gradients either
};

class Case {
 public:
  /// Error: whatever the mask, the files or the device give.
  static Result<std::unique_ptr<Case>> create(Attention attention, const CaseOptions& options);

  /// Compiles and loads both kernels; time from nothing to ready is in the caller's hands.
  Result<KernelRecord> prepare_forward() { return attention_.prepare(forward_); }
  Result<KernelRecord> prepare_backward() { return attention_.prepare(backward_); }
  Result<void> run();
  /// Milliseconds a launch, of launches that follow one another without waiting; then the wait for the last.
  Result<double> round_ms(Direction direction, int launches);
  /// Median of rounds that are long enough for the wait not to count.
  Result<double> median_ms(Direction direction, int rounds);
  /// Microseconds that the host spends in a forward of a queue of `launches`, median of `rounds`. Means something as
  /// long as the queue of the device does not fill up. `share_plan`: the first call plans for all.
  Result<double> host_microseconds(int rounds, int launches, bool share_plan);
  /// Microseconds of planning a forward, alone. Needs a prepared forward on a CUDA device.
  Result<double> time_planning(int rounds);
  Result<void> write_results(const std::filesystem::path& folder) const;

 private:
  struct Tensor {
    Buffer buffer;
    TensorView view;
  };

  explicit Case(Attention attention) : attention_(std::move(attention)) {}
  Result<void> allocate(const CaseOptions& options);
  Result<void> fill(const CaseOptions& options);
  Result<void> bind_mask(const CaseOptions& options);
  Result<void> make_workspaces();
  Result<void> launch(Direction direction);
  Result<Tensor> make(DType dtype, std::initializer_list<std::int64_t> shape) const;

  Attention attention_;
  bool has_backward_ = true;
  Tensor query_, key_, value_, out_, lse_, out_gradient_, query_gradient_, key_gradient_, value_gradient_;
  std::vector<std::vector<std::int32_t>> mask_data_;
  std::optional<Mask> mask_;
  Buffer forward_workspace_, backward_workspace_;
  ForwardCall forward_;
  BackwardCall backward_;
};

}  // namespace flashspan::bench
