// bind_program.hpp -- expression text with named tensors and scalars to a bound program: the one way in which every
// mask and score comes into being.
#pragma once

#include <string>
#include <vector>

#include "codegen/mask/parser.hpp"
#include "flashspan/core/error.hpp"
#include "flashspan/mask.hpp"
#include "runtime/api/states.hpp"

namespace flashspan::api {

/// The data that a text is bound to.
struct NamedData {
  std::vector<NamedTensor> tensors;
  std::vector<NamedScalar> scalars;
};

/// Parses, simplifies and binds by name. The result has no axis rules yet.
/// Error: bad_expression, bad_argument for data that cannot be bound or that the text does not use.
[[nodiscard]] Result<attention::BoundProgram> bind_program(const std::string& text, mask::ProgramKind kind,
                                                           const NamedData& data);

/// Fills in what follows from the mask's program.
[[nodiscard]] Mask finish_mask(MaskState state);

/// bind_program() for a builder that has checked its tensors against `shape`.
[[nodiscard]] Result<Mask> build_mask(const std::string& text, const NamedData& data, const AttentionShape& shape);

}  // namespace flashspan::api
