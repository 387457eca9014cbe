// named_masks.hpp -- masks known by name: text with declared scalars and tensors, never special cases.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/mask/program.hpp"

namespace flashspan::mask {

/// One argument of a named mask: an integer scalar (`window(left=1023)`).
struct NamedMaskArgument {
  std::string name;
  std::optional<std::int64_t> default_value;  ///< nothing: must be given
  std::int64_t smallest = 0;                  ///< smaller values are refused
  std::string meaning;
};

/// One name of the catalogue.
struct NamedMask {
  std::string name;
  std::vector<NamedMaskArgument> arguments;
  std::vector<TensorDeclaration> tensors;  ///< tensors the caller must bind, e.g. doc: i32[1]
  std::string text;                        ///< expression over the arguments and tensors
  std::string meaning;                     ///< one line for --help
};

[[nodiscard]] const std::vector<NamedMask>& named_masks();
/// Catalogue entry, or null.
[[nodiscard]] const NamedMask* find_named_mask(std::string_view name);

/// `window(left=1023, right=0)` taken apart; nothing if `text` is not a single call or a single bare name
/// of the catalogue. Arguments may be positional. Error: unknown argument, value too small, missing value.
struct NamedMaskCall {
  const NamedMask* mask = nullptr;
  std::vector<std::int64_t> values;  ///< one per argument
};
[[nodiscard]] Result<std::optional<NamedMaskCall>> parse_named_mask(const std::string& text);

}  // namespace flashspan::mask
