// tensors.hpp -- DLPack's vocabulary as ours.
#pragma once

#include <cstddef>
#include <vector>

#include "flashspan/core/error.hpp"
#include "flashspan/core/tensor.hpp"
#include "flashspan/core/types.hpp"
#include "flashspan/flashspan.h"
#include "flashspan/mask.hpp"

namespace flashspan::capi {

/// Error: unsupported, with the argument's name.
[[nodiscard]] Result<Device> device_of(const char* argument, DLDevice device);
[[nodiscard]] Result<DType> dtype_of(const char* argument, DLDataType dtype);
/// NULL gives a view that is not given. Error: bad_argument, unsupported.
[[nodiscard]] Result<TensorView> view_of(const char* argument, const DLTensor* tensor);
/// Error: as of view_of(), and bad_argument for a name or tensor that is NULL.
[[nodiscard]] Result<std::vector<NamedTensor>> named_tensors(const char* argument, const flashspan_named_tensor* given,
                                                             std::size_t count);
/// Error: bad_argument.
[[nodiscard]] Result<AttentionShape> shape_of(const flashspan_shape* shape);

/// Reads several tensors and keeps the first error.
class TensorReader {
 public:
  [[nodiscard]] TensorView read(const char* argument, const DLTensor* tensor) {
    auto view = view_of(argument, tensor);
    if (view) return *view;
    if (done_) done_ = view.error();
    return {};
  }
  [[nodiscard]] const Result<void>& done() const { return done_; }

 private:
  Result<void> done_;
};

}  // namespace flashspan::capi
