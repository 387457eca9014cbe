// bindings.hpp -- values for a Program's scalars and tensors, in the order of its declarations.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/mask/program.hpp"
#include "flashspan/core/tensor.hpp"

namespace flashspan::mask {

/// One scalar's value; which member counts is told by its declaration.
struct ScalarValue {
  std::int64_t integer = 0;
  float real = 0;
};

/// Data for one program. A tensor view's rank and dtype equal its declaration's; a stride of 0 broadcasts.
struct Bindings {
  std::vector<ScalarValue> scalars;
  std::vector<TensorView> tensors;
};

}  // namespace flashspan::mask
