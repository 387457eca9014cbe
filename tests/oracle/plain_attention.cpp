// plain_attention.cpp -- a plain dense attention in the tested element type: the yardstick of the pass rule.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "attention.hpp"

namespace oracle {
namespace {

using FloatRows = std::vector<float>;

FloatRows to_floats(const Tensor& tensor) { return FloatRows(tensor.values.begin(), tensor.values.end()); }

Tensor rounded(const Tensor& shape, const FloatRows& values, Format format) {
  Tensor tensor(shape.batch, shape.heads, shape.rows, shape.columns);
  for (std::size_t i = 0; i < values.size(); ++i) tensor.values[i] = round_to(format, values[i]);
  return tensor;
}

/// Rounds the rows of one head.
void round_head(Tensor& rounded, const FloatRows& values, Format format, Index b, Index h) {
  const auto count = static_cast<std::size_t>(rounded.rows * rounded.columns);
  const auto first = static_cast<std::size_t>(b * rounded.heads + h) * count;
  for (std::size_t i = first; i < first + count; ++i) rounded.values[i] = round_to(format, values[i]);
}

/// Sums for the tensors that the score reads, and what rounding may leave in them.
struct LookedUp {
  explicit LookedUp(const std::vector<Index>& elements) {
    for (const Index count : elements) {
      sums.emplace_back(count);
      squared_roundings.emplace_back(count);
    }
  }
  std::vector<FloatRows> sums;
  std::vector<std::vector<double>> squared_roundings;
};

/// The score matrix of one (batch, query head), and the products made from it.
class DenseHead {
 public:
  DenseHead(const Problem& problem, Format format, Index b, Index h)
      : problem_(problem), format_(format), b_(b), h_(h), kv_head_(h / (problem.query.heads / problem.key.heads)) {
    const auto pairs = static_cast<std::size_t>(problem.query.rows * problem.key.rows);
    score_.resize(pairs);
    weight_.resize(pairs);
    sink_weight_.resize(static_cast<std::size_t>(problem.query.rows));
  }

  /// Fills `out` and `lse` rows of this head.
  void forward(FloatRows& out, FloatRows& lse) {
    for (Index q = 0; q < problem_.query.rows; ++q) softmax_row(q, lse);
    const Index columns = problem_.value.columns;
    for (Index q = 0; q < problem_.query.rows; ++q) {
      float* row = out.data() + (query_row(q))*columns;
      for (Index k = 0; k < problem_.key.rows; ++k) {
        if (weight_at(q, k) == 0) continue;
        const float weight = round_to(format_, weight_at(q, k));
        const double* value = problem_.value.row(b_, kv_head_, k);
        for (Index d = 0; d < columns; ++d) row[d] += weight * static_cast<float>(value[d]);
      }
    }
  }

  /// Adds this head's share of the gradients; `out` holds rounded rows.
  void backward(const Tensor& out, FloatRows& query_gradient, FloatRows& key_gradient, FloatRows& value_gradient,
                float& sink_gradient, LookedUp& looked_up) {
    for (Index q = 0; q < problem_.query.rows; ++q) {
      const double* incoming = problem_.out_gradient->row(b_, h_, q);
      float delta = 0;
      for (Index d = 0; d < out.columns; ++d) {
        delta += static_cast<float>(incoming[d]) * static_cast<float>(out.at(b_, h_, q, d));
      }
      if (problem_.lse_gradient) delta -= static_cast<float>(problem_.lse_gradient->at(b_, h_, q));
      for (Index k = 0; k < problem_.key.rows; ++k) {
        if (sees(q, k)) backward_pair(q, k, delta, query_gradient, key_gradient, value_gradient);
      }
      if (!problem_.score_tensors.empty()) backward_lookups(q, delta, out, looked_up);
      sink_gradient -= sink_weight_[static_cast<std::size_t>(q)] * delta;
    }
  }

  /// Squared roundings of this head's terms of the sink's gradient: of the elements of `out`, and of the weight by lse.
  [[nodiscard]] double squared_sink_roundings(const Tensor& out, const FloatRows& lse) const {
    double squares = 0;
    for (Index q = 0; q < problem_.query.rows; ++q) {
      const double* incoming = problem_.out_gradient->row(b_, h_, q);
      const double weight = sink_weight_[static_cast<std::size_t>(q)];
      const double lse_rounding = unit_roundoff(Format::f32) *
                                  (1 + std::fabs(static_cast<double>(lse[static_cast<std::size_t>(query_row(q))])));
      double delta = problem_.lse_gradient ? -problem_.lse_gradient->at(b_, h_, q) : 0.0;
      for (Index d = 0; d < out.columns; ++d) {
        const double product = incoming[d] * out.at(b_, h_, q, d);
        delta += product;
        squares += std::pow(unit_roundoff(format_) * weight * product, 2);
      }
      squares += std::pow(lse_rounding * weight * delta, 2);
    }
    return squares;
  }

 private:
  [[nodiscard]] Index query_row(Index q) const { return (b_ * problem_.query.heads + h_) * problem_.query.rows + q; }
  [[nodiscard]] Index key_row(Index k) const { return (b_ * problem_.key.heads + kv_head_) * problem_.key.rows + k; }
  float& weight_at(Index q, Index k) { return weight_[static_cast<std::size_t>(q * problem_.key.rows + k)]; }
  float& score_at(Index q, Index k) { return score_[static_cast<std::size_t>(q * problem_.key.rows + k)]; }
  [[nodiscard]] bool sees(Index q, Index k) const { return !problem_.visible || problem_.visible(b_, h_, q, k); }

  void softmax_row(Index q, FloatRows& lse) {
    const auto scale = static_cast<float>(problem_.scale);
    std::vector<Index> keys;
    float largest = -std::numeric_limits<float>::infinity();
    for (Index k = 0; k < problem_.key.rows; ++k) {
      if (!sees(q, k)) continue;
      float product = 0;
      const double* query = problem_.query.row(b_, h_, q);
      const double* key = problem_.key.row(b_, kv_head_, k);
      for (Index d = 0; d < problem_.query.columns; ++d) {
        product += static_cast<float>(query[d]) * static_cast<float>(key[d]);
      }
      score_at(q, k) = scale * product;
      float logit = score_at(q, k);
      if (problem_.score) logit = static_cast<float>(problem_.score->value(logit, b_, h_, q, k));
      weight_at(q, k) = logit;
      keys.push_back(k);
      largest = std::fmax(largest, logit);
    }
    const float sink = problem_.sink ? static_cast<float>(problem_.sink->at(0, h_, 0)) : -HUGE_VALF;
    largest = std::fmax(largest, sink);
    float sum = sink == -HUGE_VALF ? 0 : std::exp(sink - largest);
    float& sink_weight = sink_weight_[static_cast<std::size_t>(q)] = sum;
    for (Index k : keys) sum += (weight_at(q, k) = std::exp(weight_at(q, k) - largest));
    for (Index k : keys) weight_at(q, k) /= sum;
    if (sink_weight != 0) sink_weight /= sum;
    lse[static_cast<std::size_t>(query_row(q))] = keys.empty() ? largest : largest + std::log(sum);
  }

  void backward_pair(Index q, Index k, float delta, FloatRows& query_gradient, FloatRows& key_gradient,
                     FloatRows& value_gradient) {
    const double* incoming = problem_.out_gradient->row(b_, h_, q);
    const double* value = problem_.value.row(b_, kv_head_, k);
    const Index value_columns = problem_.value.columns;
    const Index columns = problem_.query.columns;
    const float weight = round_to(format_, weight_at(q, k));
    float weight_gradient = 0;
    float* value_row = value_gradient.data() + key_row(k) * value_columns;
    for (Index d = 0; d < value_columns; ++d) {
      weight_gradient += static_cast<float>(incoming[d]) * static_cast<float>(value[d]);
      value_row[d] += weight * static_cast<float>(incoming[d]);
    }
    float score_gradient = weight_at(q, k) * (weight_gradient - delta);
    if (problem_.score) {
      score_gradient *= static_cast<float>(problem_.score->derivative(score_at(q, k), b_, h_, q, k));
    }
    score_gradient = round_to(format_, score_gradient);
    const float product_gradient = score_gradient * static_cast<float>(problem_.scale);
    const double* query = problem_.query.row(b_, h_, q);
    const double* key = problem_.key.row(b_, kv_head_, k);
    float* query_row_gradient = query_gradient.data() + query_row(q) * columns;
    float* key_row_gradient = key_gradient.data() + key_row(k) * columns;
    for (Index d = 0; d < columns; ++d) {
      query_row_gradient[d] += product_gradient * static_cast<float>(key[d]);
      key_row_gradient[d] += product_gradient * static_cast<float>(query[d]);
    }
  }

  /// Adds a row's share of what the score reads. The rounding of `out` is in delta, and so in every term of the row;
  /// that of dO v, and of the weight by a score of lse's size, in each term alone.
  void backward_lookups(Index q, float delta, const Tensor& out, LookedUp& looked_up) {
    const double* incoming = problem_.out_gradient->row(b_, h_, q);
    const auto root_of_squares = [&](const double* other) {
      double squares = 0;
      for (Index d = 0; d < out.columns; ++d) squares += std::pow(incoming[d] * other[d], 2);
      return std::sqrt(squares);
    };
    const double binary32 = unit_roundoff(Format::f32);
    const double of_delta = (unit_roundoff(format_) + binary32) * root_of_squares(out.row(b_, h_, q));
    std::map<std::pair<std::size_t, Index>, double> of_row;  // sum of weight * slope
    for (Index k = 0; k < problem_.key.rows; ++k) {
      if (!sees(q, k)) continue;
      const double* value = problem_.value.row(b_, kv_head_, k);
      float weight_gradient = 0;
      for (Index d = 0; d < out.columns; ++d) {
        weight_gradient += static_cast<float>(incoming[d]) * static_cast<float>(value[d]);
      }
      const float gradient = weight_at(q, k) * (weight_gradient - delta);
      const double of_term = binary32 * (2 * static_cast<double>(weight_at(q, k)) * root_of_squares(value) +
                                         std::fabs(gradient) * (1 + std::fabs(static_cast<double>(score_at(q, k)))));
      problem_.score->slopes(score_at(q, k), b_, h_, q, k, [&](std::size_t tensor, Index element, double slope) {
        const auto at = static_cast<std::size_t>(element);
        looked_up.sums[tensor][at] += gradient * static_cast<float>(slope);
        looked_up.squared_roundings[tensor][at] += std::pow(of_term * slope, 2);
        of_row[{tensor, element}] += static_cast<double>(weight_at(q, k)) * slope;
      });
    }
    for (const auto& [place, sum] : of_row) {
      looked_up.squared_roundings[place.first][static_cast<std::size_t>(place.second)] += std::pow(of_delta * sum, 2);
    }
  }

  const Problem& problem_;
  Format format_;
  Index b_, h_, kv_head_;
  FloatRows score_;        // [Sq, Sk] before the score function
  FloatRows weight_;       // [Sq, Sk] softmax
  FloatRows sink_weight_;  // [Sq]
};

double largest_magnitude(const Tensor& tensor) {
  double largest = 0;
  for (const double value : tensor.values) {
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

/// Rounding errors of n terms grow as sqrt(n): in dO v over the columns of v, in a key's gradient over the queries.
void note_cancellation(const Problem& problem, Answer& answer) {
  const auto root = [](Index count) { return std::sqrt(static_cast<double>(count)); };
  const double of_weight_gradient = unit_roundoff(Format::f32) * root(problem.value.columns) *
                                    largest_magnitude(*problem.out_gradient) * largest_magnitude(problem.value) *
                                    std::fabs(problem.scale);
  answer.query_gradient_rounding = of_weight_gradient * largest_magnitude(problem.key);
  answer.key_gradient_rounding = of_weight_gradient * largest_magnitude(problem.query) *
                                 root(problem.query.rows * problem.query.heads / problem.key.heads);
}

void add_looked_up(const LookedUp& looked_up, Answer& answer) {
  for (std::size_t tensor = 0; tensor < looked_up.sums.size(); ++tensor) {
    const auto elements = static_cast<Index>(looked_up.sums[tensor].size());
    answer.score_gradients.push_back(rounded(Tensor(1, 1, 1, elements), looked_up.sums[tensor], Format::f32));
    double largest = 0;
    for (const double squares : looked_up.squared_roundings[tensor]) largest = std::max(largest, squares);
    answer.score_gradient_roundings.push_back(std::sqrt(largest));
  }
}

}  // namespace

Answer plain_attention(const Problem& problem, Format format) {
  const Tensor& query = problem.query;
  const Tensor out_shape(query.batch, query.heads, query.rows, problem.value.columns);
  const Tensor lse_shape(query.batch, query.heads, query.rows, 1);
  FloatRows out = to_floats(out_shape);
  FloatRows lse = to_floats(lse_shape);
  Tensor rounded_out = out_shape;
  FloatRows query_gradient(query.values.size());
  FloatRows key_gradient(problem.key.values.size());
  FloatRows value_gradient(problem.value.values.size());
  FloatRows sink_gradient(static_cast<std::size_t>(query.heads));
  std::vector<double> sink_squares(sink_gradient.size());
  LookedUp looked_up(problem.score_tensors);
  for (Index b = 0; b < query.batch; ++b) {
    for (Index h = 0; h < query.heads; ++h) {
      DenseHead head(problem, format, b, h);
      head.forward(out, lse);
      if (problem.out_gradient) {
        round_head(rounded_out, out, format, b, h);
        const auto head_index = static_cast<std::size_t>(h);
        head.backward(rounded_out, query_gradient, key_gradient, value_gradient, sink_gradient[head_index], looked_up);
        sink_squares[head_index] += head.squared_sink_roundings(rounded_out, lse);
      }
    }
  }
  Answer answer;
  answer.out = rounded(out_shape, out, format);
  answer.lse = rounded(lse_shape, lse, Format::f32);
  if (problem.out_gradient) {
    answer.query_gradient = rounded(query, query_gradient, format);
    answer.key_gradient = rounded(problem.key, key_gradient, format);
    answer.value_gradient = rounded(problem.value, value_gradient, format);
    note_cancellation(problem, answer);
    add_looked_up(looked_up, answer);
    if (!problem.sink) return answer;
    answer.sink_gradient = rounded(Tensor(1, query.heads, 1, 1), sink_gradient, Format::f32);
    for (const double squares : sink_squares) {
      answer.sink_gradient_rounding = std::max(answer.sink_gradient_rounding, std::sqrt(squares));
    }
  }
  return answer;
}

}  // namespace oracle
