// compare_results.hpp -- whether two computations of one tensor agree up to the rounding of another order of sums.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "flashspan/core/tensor.hpp"
#include "flashspan/core/types.hpp"

namespace flashspan::api {

/// How far a result may be from the reference. `precision`: the relative spacing of the call's dtype.
struct Tolerance {
  double largest = 0;  ///< most of any one difference, relative to the largest element of the reference
  double mean = 0;     ///< most of the root mean square of all, relative to that of the reference
};
[[nodiscard]] Tolerance tolerance_of(DType dtype);

/// Elements of `dtype`, as many in both. One line on the first reason why they do not agree: "element 17 is nan, by the
/// default tile 0.25". Equal bits agree, and NaN agrees with NaN.
[[nodiscard]] std::optional<std::string> disagreement(std::span<const std::byte> reference,
                                                      std::span<const std::byte> result, DType dtype,
                                                      const Tolerance& tolerance);

/// Bytes from a view's first element to the end of its last.
[[nodiscard]] std::size_t span_bytes(const TensorView& view);
/// Of memory that holds the view, as span_bytes() counts: sets its elements to NaN and leaves those between them.
void poison(const TensorView& view, std::vector<std::byte>& memory);

}  // namespace flashspan::api
