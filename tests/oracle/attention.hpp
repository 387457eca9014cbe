// attention.hpp -- the independent answer: attention by direct double loops in fp64, and a plain dense attention
// in the tested element type whose error is the yardstick. Neither shares a line with the library.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "tensor.hpp"

namespace oracle {

/// True iff query q of query head h sees key k.
using Visible = std::function<bool(Index b, Index h, Index q, Index k)>;

/// Takes d score / d value of one value that a score reads: an element of one of Problem::score_tensors.
using TakeSlope = std::function<void(std::size_t tensor, Index element, double slope)>;

/// A modified score and its derivative with respect to `score`.
struct ScoreFunction {
  std::function<double(double score, Index b, Index h, Index q, Index k)> value;
  std::function<double(double score, Index b, Index h, Index q, Index k)> derivative;
  /// Calls `take` for every value that the score reads of the tensors to be differentiated by.
  // NOLINTNEXTLINE(readability-redundant-member-init): may be left out of a list
  std::function<void(double score, Index b, Index h, Index q, Index k, const TakeSlope& take)> slopes = {};
};

struct Problem {
  Tensor query;  ///< [B, Hq, Sq, D]
  Tensor key;    ///< [B, Hkv, Sk, D]
  Tensor value;  ///< [B, Hkv, Sk, Dv]
  double scale = 1;
  Visible visible;                     ///< empty: all
  std::optional<ScoreFunction> score;  ///< nothing: scores are used as they are
  std::vector<Index> score_tensors;    ///< element counts of the tensors that the score is to be differentiated by
  std::optional<Tensor> sink;          ///< [1, Hq, 1, 1], a logit of every row without a value; nothing: none
  std::optional<Tensor> out_gradient;  ///< [B, Hq, Sq, Dv]; nothing: no gradients are computed
  std::optional<Tensor> lse_gradient;  ///< [B, Hq, Sq, 1]; nothing: zero
};

struct Answer {
  Tensor out;  ///< [B, Hq, Sq, Dv]
  Tensor lse;  ///< [B, Hq, Sq, 1], natural log; -inf where nothing is visible and there is no sink
  Tensor query_gradient, key_gradient, value_gradient;
  Tensor sink_gradient;                 ///< [1, Hq, 1, 1]; empty without a sink
  std::vector<Tensor> score_gradients;  ///< [1, 1, 1, elements] of each of Problem::score_tensors
  /// Of plain_attention(): what binary32 may leave, absolutely, where dO v and sum(P dO v) cancel. A row with one
  /// visible key has no query gradient, but the two are sums of the same products in whatever order a method takes.
  double query_gradient_rounding = 0, key_gradient_rounding = 0;
  /// Of plain_attention(): what rounding out and lse may leave in the sink's gradient, a sum whose terms cancel.
  double sink_gradient_rounding = 0;
  /// Of plain_attention(): the same of each of score_gradients.
  std::vector<double> score_gradient_roundings;
};

/// fp64. With P = softmax over visible keys of f(scale q.k), and over the sink, whose value is 0:
///   out = P v;  dS = P (dO v - sum(P dO v) + dLSE);  dq, dk carry scale f';  dk, dv are summed over the group, dS of
///   the sink over batch and rows. The gradient of what f reads is the sum of dS df / d value.
[[nodiscard]] Answer reference_attention(const Problem& problem);

/// What a plain dense implementation gives in `format`: products accumulated in binary32, P and dS rounded to
/// `format` before their products, results rounded to `format` (LSE stays binary32).
[[nodiscard]] Answer plain_attention(const Problem& problem, Format format);

}  // namespace oracle
