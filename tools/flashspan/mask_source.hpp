// mask_source.hpp -- a mask as the command line names it: a name, an expression, or a JSON file with arrays beside it.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "flashspan/core/error.hpp"
#include "flashspan/mask.hpp"
#include "tools/flashspan/host_array.hpp"

namespace flashspan::tool {

/// The options as typed: --mask, --tensor name=file, --scalar name=value, --lowering kind.
struct MaskOptions {
  std::string mask;
  std::string score;
  std::vector<std::string> tensors;
  std::vector<std::string> scalars;
  std::string lowering;  ///< of the forward; empty: the one that is chosen
};

/// Sizes that the user gave; what is missing is taken from the mask's arrays or from a default.
struct ShapeOptions {
  std::optional<std::int64_t> batch, query_heads, kv_heads, q_len, kv_len;
  std::int64_t head_dim_qk = 128;
  std::optional<std::int64_t> head_dim_v;
};

/// Everything that a mask and a score need, read from files; owns the arrays that the built ones look into.
class MaskSource {
 public:
  /// Reads every file that the options name. Error: io_error; bad_argument for a malformed JSON file, an unknown or
  /// missing entry, or an index array that does not hold integers.
  static Result<MaskSource> read(const MaskOptions& options);

  /// The user's sizes, completed by what the arrays tell, else batch 1, heads 1, lengths 8192.
  [[nodiscard]] AttentionShape shape(const ShapeOptions& options) const;

  /// Error: as the builders of Mask. The source must outlive the mask.
  [[nodiscard]] Result<Mask> mask(const AttentionShape& shape) const;
  /// Nothing if no score was given. The source must outlive the score.
  [[nodiscard]] Result<std::optional<Score>> score() const;

 private:
  /// Which builder of Mask the source is for.
  enum class Form { text, flashmask, key_ranges, key_ranges_csr, scfa, slices };

  Result<void> read_named_options(const MaskOptions& options);
  /// A mask that is made of arrays alone takes no names, so that the score has to use all of them.
  [[nodiscard]] Result<void> require_used() const;
  [[nodiscard]] Result<Mask> built(const AttentionShape& shape) const;
  Result<void> read_json(const std::string& path);
  Result<void> read_expression(const nlohmann::json& text, const nlohmann::json& tensors, const nlohmann::json& scalars,
                               const std::string& folder);
  Result<void> read_arrays(const std::map<std::string, std::string>& files, const std::string& folder);
  /// Length of an axis of a structured form's array; nothing if there is no such array of that rank.
  [[nodiscard]] std::optional<std::int64_t> length_of(const std::string& name, std::size_t rank,
                                                      std::size_t axis) const;
  [[nodiscard]] std::optional<std::int64_t> largest_value(const std::string& name) const;
  /// Sizes as far as the structured form's arrays tell them.
  struct ArraySizes {
    std::optional<std::int64_t> batch, heads, q_len, kv_len;
  };
  [[nodiscard]] ArraySizes array_sizes() const;
  /// What the options and the mask file name, as far as the mask or the score uses it. What neither uses goes to the
  /// mask, which says so.
  struct NamedData {
    std::vector<NamedTensor> tensors;
    std::vector<NamedScalar> scalars;
  };
  [[nodiscard]] NamedData data_of_mask() const;
  [[nodiscard]] NamedData data_of_score() const;
  template <typename Predicate>
  [[nodiscard]] NamedData data_where(const Predicate& wanted) const;
  [[nodiscard]] TensorView array(const std::string& name) const;

  Form form_ = Form::text;
  std::string text_, score_text_;
  std::optional<LoweringKind> lowering_;
  std::map<std::string, HostArray> tensors_;  ///< for expressions
  std::vector<NamedScalar> scalars_;
  std::map<std::string, HostArray> arrays_;  ///< of a structured form, by its JSON name
  bool causal_ = false, strict_ = false;
};

}  // namespace flashspan::tool
