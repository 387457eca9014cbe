// reference_attention.cpp -- the fp64 answer, one query row at a time, straight from the definition.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention.hpp"

namespace oracle {
namespace {

double dot(const double* left, const double* right, Index count) {
  double sum = 0;
  for (Index i = 0; i < count; ++i) sum += left[i] * right[i];
  return sum;
}

/// One query row and what it sees.
struct Row {
  Index b, h, kv_head, q;
  std::vector<Index> keys;     // that it sees
  std::vector<double> score;   // before the score function
  std::vector<double> weight;  // of each key; with the sink's, sum 1
  double sink_weight = 0;
  double lse = 0;
};

double modified(const Problem& problem, const Row& row, double score, Index k) {
  return problem.score ? problem.score->value(score, row.b, row.h, row.q, k) : score;
}

double derivative(const Problem& problem, const Row& row, double score, Index k) {
  return problem.score ? problem.score->derivative(score, row.b, row.h, row.q, k) : 1.0;
}

Row solve_row(const Problem& problem, Index b, Index h, Index q) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Row row{b, h, h / (problem.query.heads / problem.key.heads), q, {}, {}, {}, 0, 0};
  std::vector<double> logits;
  const double sink = problem.sink ? problem.sink->at(0, h, 0) : -infinity;
  double largest = sink > -infinity ? sink : -infinity;
  bool poisoned = std::isnan(sink);
  for (Index k = 0; k < problem.key.rows; ++k) {
    if (problem.visible && !problem.visible(b, h, q, k)) continue;
    const double score =
        problem.scale * dot(problem.query.row(b, h, q), problem.key.row(b, row.kv_head, k), problem.query.columns);
    const double logit = modified(problem, row, score, k);
    row.keys.push_back(k);
    row.score.push_back(score);
    logits.push_back(logit);
    poisoned = poisoned || std::isnan(logit);
    if (logit > largest) largest = logit;
  }
  // An infinite sink takes all the weight.
  row.sink_weight = sink == infinity ? 1 : sink == -infinity ? 0 : std::exp(sink - largest);
  double sum = row.sink_weight;
  for (double logit : logits) {
    row.weight.push_back(sink == infinity ? 0 : std::exp(logit - largest));
    sum += row.weight.back();
  }
  for (double& weight : row.weight) weight = poisoned ? std::nan("") : weight / sum;
  row.sink_weight = poisoned ? std::nan("") : sum == 0 ? 0 : row.sink_weight / sum;
  row.lse = poisoned ? std::nan("") : sum == 0 ? -infinity : largest + std::log(sum);
  return row;
}

void add_out(const Problem& problem, const Row& row, Answer& answer) {
  double* out = answer.out.row(row.b, row.h, row.q);
  if (std::isnan(row.sink_weight)) std::fill_n(out, problem.value.columns, row.sink_weight);  // of any number of keys
  for (std::size_t i = 0; i < row.keys.size(); ++i) {
    const double* value = problem.value.row(row.b, row.kv_head, row.keys[i]);
    for (Index d = 0; d < problem.value.columns; ++d) out[d] += row.weight[i] * value[d];
  }
}

void add_gradients(const Problem& problem, const Row& row, Answer& answer) {
  const double* out_gradient = problem.out_gradient->row(row.b, row.h, row.q);
  const double lse_gradient = problem.lse_gradient ? problem.lse_gradient->at(row.b, row.h, row.q) : 0.0;
  std::vector<double> weight_gradient;
  double mean = 0;
  for (std::size_t i = 0; i < row.keys.size(); ++i) {
    weight_gradient.push_back(
        dot(out_gradient, problem.value.row(row.b, row.kv_head, row.keys[i]), problem.value.columns));
    mean += row.weight[i] * weight_gradient[i];
  }
  const double* query = problem.query.row(row.b, row.h, row.q);
  double* query_gradient = answer.query_gradient.row(row.b, row.h, row.q);
  for (std::size_t i = 0; i < row.keys.size(); ++i) {
    const Index k = row.keys[i];
    const double logit_gradient = row.weight[i] * (weight_gradient[i] - mean + lse_gradient);
    if (!problem.score_tensors.empty()) {
      problem.score->slopes(row.score[i], row.b, row.h, row.q, k, [&](std::size_t tensor, Index element, double slope) {
        answer.score_gradients[tensor].values[static_cast<std::size_t>(element)] += logit_gradient * slope;
      });
    }
    const double product_gradient = problem.scale * logit_gradient * derivative(problem, row, row.score[i], k);
    const double* key = problem.key.row(row.b, row.kv_head, k);
    double* key_gradient = answer.key_gradient.row(row.b, row.kv_head, k);
    for (Index d = 0; d < problem.query.columns; ++d) {
      query_gradient[d] += product_gradient * key[d];
      key_gradient[d] += product_gradient * query[d];
    }
    double* value_gradient = answer.value_gradient.row(row.b, row.kv_head, k);
    for (Index d = 0; d < problem.value.columns; ++d) value_gradient[d] += row.weight[i] * out_gradient[d];
  }
  if (problem.sink) answer.sink_gradient.at(0, row.h, 0) += row.sink_weight * (0 - mean + lse_gradient);
}

}  // namespace

Answer reference_attention(const Problem& problem) {
  const Tensor& query = problem.query;
  const Tensor& key = problem.key;
  const Index value_columns = problem.value.columns;
  Answer answer;
  answer.out = Tensor(query.batch, query.heads, query.rows, value_columns);
  answer.lse = Tensor(query.batch, query.heads, query.rows, 1);
  if (problem.out_gradient) {
    answer.query_gradient = Tensor(query.batch, query.heads, query.rows, query.columns);
    answer.key_gradient = Tensor(key.batch, key.heads, key.rows, key.columns);
    answer.value_gradient = Tensor(key.batch, key.heads, key.rows, value_columns);
    if (problem.sink) answer.sink_gradient = Tensor(1, query.heads, 1, 1);
    for (const Index elements : problem.score_tensors) answer.score_gradients.emplace_back(1, 1, 1, elements);
  }
  for (Index b = 0; b < query.batch; ++b) {
    for (Index h = 0; h < query.heads; ++h) {
      for (Index q = 0; q < query.rows; ++q) {
        const Row row = solve_row(problem, b, h, q);
        answer.lse.at(b, h, q) = row.lse;
        add_out(problem, row, answer);
        if (problem.out_gradient) add_gradients(problem, row, answer);
      }
    }
  }
  return answer;
}

}  // namespace oracle
