// range_masks.hpp -- random masks of the kind that shows ranges: text over the names of random_environment().
#pragma once

#include <random>
#include <string>

#include "codegen/mask/program.hpp"

namespace flashspan::mask::test {

/// Comparisons that nest the operations a derivation of ranges takes apart, joined to a depth of `depth`. `axis`, q or
/// k, stands once in most comparisons and twice in none but choices; the numbers beside it may be any.
[[nodiscard]] std::string random_range_mask(std::mt19937_64& random, Variable axis, int depth);

}  // namespace flashspan::mask::test
