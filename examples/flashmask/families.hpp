// families.hpp -- the mask families of the FlashMask paper (figure 1a), built from document lists.
//
// Each family comes twice, and neither is derived from the other: as the arrays that a Mask takes, and as the rule that
// says which pairs are visible, for checks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "examples/flashmask/document_lists.hpp"
#include "flashspan/core/error.hpp"
#include "flashspan/mask.hpp"
#include "tools/flashspan/host_array.hpp"

namespace flashspan::flashmask {

enum class Family {
  full,
  causal,
  sliding_window,
  causal_document,
  document,
  document_as_timed,  ///< what the paper's benchmark timed as "document": starts are shifted by L_i - L_0
  share_question,
  global_sliding_window,
  causal_blockwise,
  prefix_lm_document,
  prefix_lm_causal,
  qk_sparse,
  hash_sparse,  ///< in the paper's figure only; never benchmarked there
  random_eviction,
};

[[nodiscard]] const std::vector<Family>& all_families();
[[nodiscard]] const char* to_string(Family family);

/// Share of 128 x 128 tiles that the paper's tables call fully masked (average of the five samples); nothing for
/// families and lengths that they do not list.
[[nodiscard]] std::optional<double> paper_sparsity(Family family, std::int64_t length);

/// One family for a batch of samples. Owns the arrays.
struct FamilyMask {
  Family family = Family::full;
  bool causal = false;                            ///< flag of the FlashMask form
  std::map<std::string, tool::HostArray> arrays;  ///< "flashmask"; or "q_idx", "k_idx", "q_hash", "k_hash"; or none
  std::function<bool(std::int64_t batch, std::int64_t head, std::int64_t q, std::int64_t k)> visible;

  /// The object must outlive the mask. Error: as the builders of Mask.
  [[nodiscard]] Result<Mask> mask(const AttentionShape& shape) const;
};

/// Every sample is one batch element; all have the same length. `heads` matters to random eviction only, whose mask
/// differs by head. Random choices (answers, buckets, evictions) have fixed seeds.
[[nodiscard]] FamilyMask build_family(Family family, const std::vector<Sample>& samples, std::int64_t heads);

}  // namespace flashspan::flashmask
