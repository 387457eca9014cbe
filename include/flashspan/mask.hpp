// mask.hpp -- Mask: which keys each query may see, as a program with its data. Score: how a score is modified.
//
// A builder that takes an AttentionShape checks its tensors against it at once, and the mask can then only be
// used with calls of that batch, head counts and lengths. Tensors are borrowed, not copied: their memory must
// outlive the mask, and their values may change between calls without anything being compiled again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "flashspan/core/error.hpp"
#include "flashspan/core/lowering.hpp"
#include "flashspan/core/tensor.hpp"
#include "flashspan/core/types.hpp"

#pragma GCC visibility push(default)
namespace flashspan {

/// A tensor under the name that an expression looks it up by. dtype i32 gives integers, f32/f16/bf16 reals;
/// rank 1 to 5; any strides, 0 included (broadcast).
struct NamedTensor {
  std::string name;
  TensorView view;
};

/// A number under the name that an expression uses it by. An integer stays one; a real is used as binary32.
struct NamedScalar {
  std::string name;
  std::variant<std::int64_t, double> value;
};

/// Kinds of slice, by the pairs (i, j) they keep of an m x n rectangle, i and j counted from its top-left.
enum class SliceType : std::int32_t {
  full = 0,            ///< all
  causal = 1,          ///< j - i <= n - m (aligned to the bottom-right corner)
  inverse_causal = 2,  ///< j >= i (aligned to the top-left corner)
  bi_causal = 3,       ///< both of the above
};

/// Defined in runtime/api: the program with its bindings.
struct MaskState;
struct ScoreState;

class Mask {
 public:
  /// A name of the catalogue (`causal`, `window(left=1023, right=0)`, `document` with tensor doc, ...; see
  /// named_mask_help()) or an expression of docs/mask-language.md.
  /// An axis that the text indexes by bare b, h, q or k (`doc[b, q]`) must be at least as long as the call's batch,
  /// heads or length, or the call is refused; for a named mask it must be just as long. Any other index outside its
  /// tensor gives 0.
  /// Error: bad_expression with a caret under the column; bad_argument for a tensor or scalar that is missing, that
  /// the text does not use, or that cannot be bound.
  static Result<Mask> parse(const std::string& text, const std::vector<NamedTensor>& tensors = {},
                            const std::vector<NamedScalar>& scalars = {});

  static Mask full();
  /// Causal; when q_len != kv_len the last query sees the last key, unless `top_left`.
  static Mask causal(bool top_left = false);
  /// Query i sees keys j with i' - left <= j <= i' + right, i' = i + kv_len - q_len; nothing: unbounded.
  /// Error: bad_argument for a negative bound.
  static Result<Mask> window(std::optional<std::int64_t> left, std::optional<std::int64_t> right);

  /// FlashMask column intervals. `startend_row_indices` is i32 [B | 1, 1 | Hkv | Hq, Sk, n]; n = 1 or 2 with
  /// `causal`, 2 or 4 without. Rows in the intervals are *masked*; start-inclusive, end-exclusive, applied to
  /// the whole column. (arXiv 2410.01359, section 4)
  static Result<Mask> flashmask(const AttentionShape& shape, const TensorView& startend_row_indices, bool causal);
  /// Key ranges per query: i32 [B | 1, Hq | Hkv | 1, Sq, R, 2], half-open [lo, hi); a row sees the union. Ranges
  /// may overlap and may be empty (lo >= hi). Values in host memory are checked; on a device, what lies outside the
  /// keys shows nothing. The same holds for the forms below.
  static Result<Mask> key_ranges(const AttentionShape& shape, const TensorView& ranges);
  /// The same in CSR form: row r = (b * heads + h) * Sq + q has ranges[offsets[r]] .. ranges[offsets[r + 1] - 1].
  /// `offsets` is i32 [B | 1, Hq | Hkv | 1, Sq + 1] with absolute positions into `ranges`, i32 [N, 2].
  static Result<Mask> key_ranges_csr(const AttentionShape& shape, const TensorView& offsets, const TensorView& ranges);
  /// Slices: i32 q_ranges [N, 2], k_ranges [N, 2], types [N] of SliceType; a pair is visible if any slice keeps
  /// it. Half-open ranges, overlap allowed.
  static Result<Mask> slices(const AttentionShape& shape, const TensorView& q_ranges, const TensorView& k_ranges,
                             const TensorView& types);
  /// SCFA's QK-sparse form: original positions of the kept queries and keys, i32 [B | 1, Hq | Hkv | 1, Sq] and
  /// [.., Sk]. Visible iff q_idx >= k_idx (`strict`: >). Negative q_idx and k_idx mark padding, which sees
  /// and shows nothing. No order is assumed. (arXiv 2306.01160)
  static Result<Mask> scfa_index(const AttentionShape& shape, const TensorView& q_idx, const TensorView& k_idx,
                                 bool strict = false);
  /// SCFA's hash-sparse form: additionally the buckets must be equal.
  static Result<Mask> scfa_hash(const AttentionShape& shape, const TensorView& q_idx, const TensorView& k_idx,
                                const TensorView& q_hash, const TensorView& k_hash, bool strict = false);
  /// Block lists (FlexAttention's form): per block row, counts i32 [B | 1, H | 1, ceil(Sq / block_q)] and key-block
  /// indices i32 [.., N]; entries past the count or outside [0, ceil(Sk / block_k)) are ignored. A block that is listed
  /// twice in a row is refused; where the lists are on a device, which is not read, a row sees the union of its list.
  /// If `predicate` is given it is applied inside every listed block.
  static Result<Mask> block_list(const AttentionShape& shape, const TensorView& counts, const TensorView& indices,
                                 std::int64_t block_q, std::int64_t block_k, const Mask* predicate = nullptr);

  /// Pairs visible in both / in either / not visible. Tensors of equal name are kept apart.
  [[nodiscard]] Mask operator&(const Mask& other) const;
  [[nodiscard]] Mask operator|(const Mask& other) const;
  [[nodiscard]] Mask operator~() const;

  /// The same mask, applied in one direction by the lowering that is asked for rather than chosen: for tests and
  /// measurements, as results are the same. A mask that is made from it by & | ~ is chosen for anew.
  /// Error: unsupported, with what stands in the way, if the lowering cannot give this mask.
  [[nodiscard]] Result<Mask> with_lowering(Direction direction, LoweringKind kind) const;

  /// The same mask with its tensors copied to `device` (synchronously); the copies belong to the new mask.
  [[nodiscard]] Result<Mask> to(Device device) const;
  /// Where the tensors live; nothing if there are none.
  [[nodiscard]] std::optional<Device> device() const;
  /// Canonical text of the simplified program.
  [[nodiscard]] std::string text() const;

  [[nodiscard]] const MaskState& state() const { return *state_; }
  explicit Mask(std::shared_ptr<const MaskState> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<const MaskState> state_;
};

/// A real expression that may use `score` (scale * q.k, natural units): softcap, ALiBi, relative bias.
class Score {
 public:
  static Result<Score> parse(const std::string& text, const std::vector<NamedTensor>& tensors = {},
                             const std::vector<NamedScalar>& scalars = {});
  [[nodiscard]] Result<Score> to(Device device) const;
  [[nodiscard]] std::optional<Device> device() const;
  [[nodiscard]] std::string text() const;

  [[nodiscard]] const ScoreState& state() const { return *state_; }
  explicit Score(std::shared_ptr<const ScoreState> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<const ScoreState> state_;
};

/// Names that `text` of a mask or score takes tensors or scalars for, each once: what a named mask asks for, else the
/// expression's names that are not the language's own. Error: bad_expression.
[[nodiscard]] Result<std::vector<std::string>> names_in(const std::string& text);

/// One line per named mask: name, arguments with defaults, tensors, meaning.
[[nodiscard]] std::string named_mask_help();

}  // namespace flashspan
#pragma GCC visibility pop
