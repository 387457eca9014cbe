// tensors.hpp -- how Python passes a tensor: (address, dtype, shape, strides, CUDA device or -1 for the CPU).
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "flashspan/core/tensor.hpp"

namespace flashspan::python {

/// Strides in elements; dtype by the library's name ("f32", "bf16", "i32").
using TensorTuple = std::tuple<std::uintptr_t, std::string, std::vector<std::int64_t>, std::vector<std::int64_t>, int>;

/// Throws bad_argument named `argument` for a dtype or a rank that no call takes.
TensorView view_of(const TensorTuple& tensor, const char* argument);
/// A view that is not given, for nothing.
TensorView view_of(const std::optional<TensorTuple>& tensor, const char* argument);

[[nodiscard]] void* pointer_of(std::uintptr_t address);
/// `address`, or for the null of a tensor without elements one that is never read and does not mean "not given".
void* address_of(std::uintptr_t address);

/// (batch, query_heads, kv_heads, q_len, kv_len, head_dim_qk, head_dim_v)
using ShapeTuple =
    std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
AttentionShape shape_of(const ShapeTuple& shape);

Device device_of(int cuda_device);
DType dtype_of(const std::string& name);

}  // namespace flashspan::python
