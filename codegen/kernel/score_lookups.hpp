// score_lookups.hpp -- the lookups of a score program whose tensors take a gradient, each with what the gradient is
// made of: where it looks, and how the score changes with what it finds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/kernel/kernel_spec.hpp"
#include "codegen/mask/program.hpp"

namespace flashspan::kernel {

struct ScoreLookup {
  int gradient = 0;     ///< place of its tensor in the list of names
  mask::Program at;     ///< its root is the lookup
  mask::Program slope;  ///< d score / d value of the lookup

  /// Whether it looks elsewhere for another query, or another key.
  [[nodiscard]] bool by_query() const { return (at.dependencies() & set_of(mask::Variable::q)) != 0; }
  [[nodiscard]] bool by_key() const { return (at.dependencies() & set_of(mask::Variable::k)) != 0; }
  /// Whether it looks in one place for all pairs of one distance q - k.
  [[nodiscard]] bool by_distance() const;
};

/// Lookups in the tensors that KernelSpec::score_gradients names, but for those that the score does not change with.
[[nodiscard]] std::vector<ScoreLookup> score_lookups(const mask::Program& score, const std::string& names);

/// Shared memory of attention_backward_score_sum of a spec with these lookups, and whether it has room there to sum
/// along distances: for each lookup that looks by them, 16 rows of score_strip columns a warp, padded.
struct ScoreGradientMemory {
  std::int64_t bytes = 0;
  bool sums_distances = false;
};
[[nodiscard]] ScoreGradientMemory score_gradient_memory(const KernelSpec& spec,
                                                        const std::vector<ScoreLookup>& lookups);
/// The same of the spec's own.
[[nodiscard]] std::int64_t score_gradient_shared_bytes(const KernelSpec& spec);

/// KernelSpec::score_gradients of tensors with these names, and back.
[[nodiscard]] std::string join_names(const std::vector<std::string>& names);
[[nodiscard]] std::vector<std::string> split_names(const std::string& names);

}  // namespace flashspan::kernel
