// tensor_rule.hpp -- TensorRule: the dtype and shape that a tensor argument must have, and the one message that is
// given when it has another.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "flashspan/core/error.hpp"
#include "flashspan/core/tensor.hpp"
#include "flashspan/core/types.hpp"

namespace flashspan::attention {

/// Accepted lengths of one axis, each with the name it goes by ("Sk = 128", "1"). None listed: any length.
struct AxisLengths {
  std::string name;  ///< of an axis that takes any length
  std::vector<std::int64_t> accepted;
  std::vector<std::string> texts;
};

[[nodiscard]] AxisLengths exactly(const std::string& name, std::int64_t length);
[[nodiscard]] AxisLengths one_of(std::vector<std::int64_t> lengths);
[[nodiscard]] AxisLengths any_length(const std::string& name);
/// 1 or the batch.
[[nodiscard]] AxisLengths mask_batch(const AttentionShape& shape);
/// 1, the key/value heads or the query heads.
[[nodiscard]] AxisLengths mask_heads(const AttentionShape& shape);

struct TensorRule {
  std::string argument;
  DType dtype = DType::i32;
  std::vector<AxisLengths> axes;
};

/// "i32[1 | B = 2, 1 | Hkv = 2 | Hq = 8, Sk = 128, 1 | 2]".
[[nodiscard]] std::string to_string(const TensorRule& rule);

/// Given (unless it has no elements), of the rule's dtype and shape, with memory as of check_memory().
/// Error: bad_argument.
[[nodiscard]] Result<void> check_tensor(const TensorRule& rule, const TensorView& view);

/// Null memory is fine for a tensor without elements.
[[nodiscard]] Result<void> check_given(std::string_view argument, const TensorView& view, std::string_view takes);
/// No negative strides, and elements that are naturally aligned: a GPU's load of another one ends the whole context.
[[nodiscard]] Result<void> check_memory(std::string_view argument, const TensorView& view);

[[nodiscard]] inline Error bad_argument(std::string argument, std::string got, std::string takes) {
  return Error{ErrorCode::bad_argument, std::move(argument), std::move(got), std::move(takes), ""};
}

}  // namespace flashspan::attention
