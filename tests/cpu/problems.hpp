// problems.hpp -- random attention problems for the tests.
#pragma once

#include <cstdint>

#include "attention_run.hpp"
#include "oracle/attention.hpp"

namespace flashspan::cpu_test {

/// Random query, key, value and incoming gradient of `shape`, as `dtype` holds them; scale 1 / sqrt(D).
oracle::Problem random_problem(const AttentionShape& shape, DType dtype, std::uint64_t seed, bool with_gradient = true);

}  // namespace flashspan::cpu_test
