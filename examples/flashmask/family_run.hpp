// family_run.hpp -- runs one family forward and backward on a device, times it, and compares one head with binary64.
#pragma once

#include <cstdint>

#include "examples/flashmask/families.hpp"
#include "examples/flashmask/reference.hpp"
#include "flashspan/attention.hpp"
#include "flashspan/core/error.hpp"
#include "tools/flashspan/device_tensor.hpp"

namespace flashspan::flashmask {

/// One direction: what was compiled, and the median milliseconds of a launch.
struct DirectionRun {
  KernelRecord record;
  double milliseconds = 0;
};

struct FamilyRun {
  DirectionRun forward, backward;
  Differences differences;
  bool accurate = false;  ///< every difference is within rounding of the element type
};

/// Inputs that all families share, and the results of the last one, on one device.
class FamilyRunner {
 public:
  /// Standard normal queries, keys, values and output gradients. Error: no_device, missing_component, device_error.
  static Result<FamilyRunner> create(Device device, DType dtype, const AttentionShape& shape);

  /// `repeats` timed launches a direction after one that is not timed. `number` picks the head that is checked.
  Result<FamilyRun> run(const FamilyMask& family, int repeats, std::int64_t number);

 private:
  explicit FamilyRunner(Attention attention) : attention_(std::move(attention)) {}
  template <typename Call, typename Launch>
  Result<DirectionRun> launch(Call& call, int repeats, const Launch& start);
  Result<void> compare(const FamilyMask& family, std::int64_t number, FamilyRun& run) const;

  Attention attention_;
  AttentionShape shape_;
  DType dtype_ = DType::bf16;
  tool::HostArray host_query_, host_key_, host_value_, host_out_gradient_;
  tool::DeviceTensor query_, key_, value_, out_gradient_, out_, lse_, query_gradient_, key_gradient_, value_gradient_;
};

}  // namespace flashspan::flashmask
