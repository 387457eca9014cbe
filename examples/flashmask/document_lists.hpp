// document_lists.hpp -- the document lengths of the FlashMask paper's benchmark, read from document_lists.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flashspan/core/error.hpp"

namespace flashspan::flashmask {

struct Document {
  std::int64_t prefix = 0;  ///< tokens at its start that form the prefix, or the question
  std::int64_t length = 0;
  bool dropped = false;  ///< hidden by the QK-sparse mask
};

/// Documents that fill one sequence, in order.
using Sample = std::vector<Document>;

/// The five samples of `length` tokens. Lengths that the paper does not list are made from the list of 8192 tokens by
/// scaling every boundary. Error: io_error; bad_argument for a malformed file or a length below 256.
[[nodiscard]] Result<std::vector<Sample>> read_document_lists(const std::string& path, std::int64_t length);

}  // namespace flashspan::flashmask
