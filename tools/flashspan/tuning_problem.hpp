// tuning_problem.hpp -- TuningProblem: tensors of a size for a mask to be tuned with.
#pragma once

#include <memory>

#include "flashspan/attention.hpp"
#include "flashspan/core/error.hpp"
#include "flashspan/tuning.hpp"
#include "tools/flashspan/mask_source.hpp"

namespace flashspan::tool {

/// Owns a call's mask and tensors, which hold pseudo-random numbers, the same every time. Of a backward it owns a
/// forward's results too.
class TuningProblem {
 public:
  /// Error: as the builders of Mask, and of an allocation. The source must outlive the problem.
  static Result<std::unique_ptr<TuningProblem>> make(const MaskSource& source, const AttentionShape& shape, DType dtype,
                                                     Device device, Direction direction, bool deterministic);
  ~TuningProblem();
  TuningProblem(const TuningProblem&) = delete;
  TuningProblem& operator=(const TuningProblem&) = delete;

  /// Error: as Attention::tune(), and as the forward's before a backward.
  Result<TuneReport> tune(Attention& attention, const TuneOptions& options);

 private:
  struct State;
  explicit TuningProblem(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace flashspan::tool
