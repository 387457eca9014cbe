// validate_program.hpp -- checks of sizes on their own, and of a mask or score against a call's sizes and device.
#pragma once

#include <string>
#include <vector>

#include "flashspan/core/error.hpp"
#include "flashspan/core/types.hpp"
#include "runtime/attention/attention_call.hpp"

namespace flashspan::attention {

/// Most tensors and scalars that one program may use: they travel by value with every launch.
inline constexpr int largest_tensor_count = 12;
inline constexpr int largest_scalar_count = 12;

/// Nothing negative or longer than a program's arithmetic is specified for, and query heads a multiple of kv heads.
[[nodiscard]] Result<void> check_shape(const AttentionShape& shape);

/// Axis rules that follow from how `program` indexes its tensors. With `exact`, an axis indexed by q or k must have
/// the call's length; otherwise it may be longer.
[[nodiscard]] std::vector<AxisRule> axis_rules_of(const mask::Program& program, bool exact);

/// Tensors on the call's device, not too many, and long enough for their bare indices. `argument`: "mask" or "score".
[[nodiscard]] Result<void> check_program(const std::string& argument, const BoundProgram& program,
                                         const AttentionShape& shape, Device device);
/// The same, and agreement with the shapes that the mask was built for.
[[nodiscard]] Result<void> check_mask(const BoundMask& mask, const AttentionShape& shape, Device device);
/// Agreement with the shapes that the mask was built for, alone.
[[nodiscard]] Result<void> check_bound_shapes(const BoundMask& mask, const AttentionShape& shape);
/// Every tensor in host memory, where the library may read it.
[[nodiscard]] Result<void> check_in_host_memory(const std::string& argument, const BoundProgram& program);

}  // namespace flashspan::attention
