// reference.hpp -- attention of one head in binary64 by direct loops over pairs, and its largest differences from
// results.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace flashspan::flashmask {

/// One head, row-major [length, dim], widened from what the kernels read.
struct HeadTensors {
  std::int64_t length = 0, dim = 0;
  double scale = 1;
  std::vector<double> query, key, value, out_gradient;
};

/// What the kernels wrote for the same head; lse [length], the others [length, dim].
struct HeadResults {
  std::vector<double> out, lse, query_gradient, key_gradient, value_gradient;
};

/// Largest absolute difference, and the largest magnitude of the exact values it belongs to.
struct Difference {
  double error = 0, magnitude = 0;
};

struct Differences {
  Difference out, lse, query_gradient, key_gradient, value_gradient;
};

using Visible = std::function<bool(std::int64_t q, std::int64_t k)>;

/// Checks out and lse of every row, the query gradient of every `row_step`-th row and the key and value gradients of
/// every `key_step`-th key. Uses all cores. An lse or a gradient that is not finite where it should be counts as
/// infinitely wrong.
[[nodiscard]] Differences compare_with_reference(const HeadTensors& tensors, const HeadResults& results,
                                                 const Visible& visible, std::int64_t row_step, std::int64_t key_step);

}  // namespace flashspan::flashmask
