// triton_types.hpp -- Triton's names of types: from its signatures, its IR and PTX, their sizes, and values packed as
// them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flashspan/core/error.hpp"
#include "flashspan/triton.hpp"

namespace flashspan::api {

/// Bytes of a parameter of this type; nothing for a type that no parameter has.
[[nodiscard]] std::optional<int> size_of_triton_type(std::string_view type);

/// "*fp32, i32:16, fp32" taken apart; hints behind ':' are dropped, and numbers are constexprs, which are no
/// parameters. Error: bad_argument "signature".
[[nodiscard]] Result<std::vector<TritonParameter>> parameters_of_signature(const std::string& signature);

/// From the public function of a kernel's .ttir. Nothing if there is none of that name, or it takes a type that is not
/// known (a tensor descriptor, which becomes several parameters).
[[nodiscard]] std::optional<std::vector<TritonParameter>> parameters_of_ttir(const std::string& ttir,
                                                                             const std::string& kernel);

/// All parameters of the kernel's .entry, hidden ones too, without names. Nothing if there is no such entry.
[[nodiscard]] std::optional<std::vector<TritonParameter>> parameters_of_ptx(const std::string& ptx,
                                                                            const std::string& kernel);

/// The value as the kernel reads it. Error: bad_argument, which names the parameter.
[[nodiscard]] Result<std::vector<std::byte>> pack(const TritonParameter& parameter, const TritonArgument& argument);

}  // namespace flashspan::api
