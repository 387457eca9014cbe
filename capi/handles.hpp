// handles.hpp -- what stands behind the handles, and how structures and texts cross the border.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include "capi/status.hpp"
#include "flashspan/attention.hpp"
#include "flashspan/device.hpp"
#include "flashspan/mask.hpp"

struct flashspan_mask {
  flashspan::Mask value;
};
struct flashspan_score {
  flashspan::Score value;
};
struct flashspan_attention {
  flashspan::Attention value;
};
struct flashspan_tile_plan {
  flashspan::TilePlan value;
};
struct flashspan_buffer {
  flashspan::Buffer value;
};

namespace flashspan::capi {

/// The caller's structure as this library knows it: fields that the caller's does not have are zero.
/// Error: bad_argument, for NULL, for a size that no version has had, and for fields that are not known here but set.
template <typename Structure>
Result<Structure> read_structure(const char* argument, const Structure* given) {
  if (given == nullptr) return null_argument(argument);
  const std::size_t size = given->struct_size;
  if (size < sizeof(std::size_t) || size > 65536) {
    return Error{ErrorCode::bad_argument, std::string(argument) + "->struct_size", std::to_string(size),
                 "the size of the structure", ""};
  }
  const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t at = sizeof(Structure); at < size; ++at) {
    if (bytes[at] == 0) continue;
    return Error{ErrorCode::unsupported, argument, "a field that this version does not know",
                 "zero in fields past its first " + std::to_string(sizeof(Structure)) + " bytes", ""};
  }
  Structure known{};
  std::memcpy(&known, given, std::min(size, sizeof(Structure)));
  return known;
}

/// Hands a result out as a new handle.
template <typename Handle, typename Value>
Result<void> give(Handle** to, Result<Value> value) {
  if (to == nullptr) return null_argument("result");
  if (!value) return value.error();
  *to = new Handle{std::move(*value)};
  return {};
}

inline Result<void> give_text(char** to, const std::string& text) {
  if (to == nullptr) return null_argument("result");
  auto* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) return Error{ErrorCode::io_error, "memory", "none left", "memory for a text", ""};
  std::memcpy(copy, text.c_str(), text.size() + 1);
  *to = copy;
  return {};
}

}  // namespace flashspan::capi
