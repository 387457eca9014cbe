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
};

/// Times in milliseconds: medians of rounds of launches that follow one another without waiting.
struct Times {
  double forward_ms = 0;
  double backward_ms = 0;
};

class Case {
 public:
  /// Error: whatever the mask, the files or the device give.
  static Result<std::unique_ptr<Case>> create(Attention attention, const CaseOptions& options);

  /// Compiles and loads both kernels; time from nothing to ready is in the caller's hands.
  Result<KernelRecord> prepare_forward() { return attention_.prepare(forward_); }
  Result<KernelRecord> prepare_backward() { return attention_.prepare(backward_); }
  Result<void> run();
  Result<Times> time(int rounds);
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
  Result<Tensor> make(DType dtype, std::initializer_list<std::int64_t> shape) const;

  Attention attention_;
  Tensor query_, key_, value_, out_, lse_, out_gradient_, query_gradient_, key_gradient_, value_gradient_;
  std::vector<std::vector<std::int32_t>> mask_data_;
  std::optional<Mask> mask_;
  Buffer forward_workspace_, backward_workspace_;
  ForwardCall forward_;
  BackwardCall backward_;
};

}  // namespace flashspan::bench
