// reference.cpp -- binary64 attention and its gradients for one head, written from the definition and nothing else.
#include "examples/flashmask/reference.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <thread>

namespace flashspan::flashmask {
namespace {

using Index = std::int64_t;
constexpr double infinity = std::numeric_limits<double>::infinity();

double dot(const double* left, const double* right, Index count) {
  std::array<double, 8> sums{};  // independent chains, which the compiler turns into vector lanes
  Index index = 0;
  for (; index + 8 <= count; index += 8) {
    for (Index lane = 0; lane < 8; ++lane)
      sums[static_cast<std::size_t>(lane)] += left[index + lane] * right[index + lane];
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  for (; index < count; ++index) total += left[index] * right[index];
  return total;
}

void add_scaled(double* target, double factor, const double* source, Index count) {
  for (Index index = 0; index < count; ++index) target[index] += factor * source[index];
}

/// Calls `body(index)` for 0 <= index < count from all cores.
template <typename Body>
void parallel_for(Index count, const Body& body) {
  std::atomic<Index> next{0};
  std::vector<std::thread> threads;
  const unsigned workers = std::max(1U, std::thread::hardware_concurrency());
  threads.reserve(workers);
  for (unsigned worker = 0; worker < workers; ++worker) {
    threads.emplace_back([&] {
      for (Index index = next++; index < count; index = next++) body(index);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void record(Difference& difference, double got, double exact) {
  double error = got == exact ? 0 : std::abs(got - exact);  // equal infinities agree
  if (std::isnan(error)) error = infinity;
  difference.error = std::max(difference.error, error);
  if (std::isfinite(exact)) difference.magnitude = std::max(difference.magnitude, std::abs(exact));
}

void record(Difference& difference, const double* got, const double* exact, Index count) {
  for (Index index = 0; index < count; ++index) record(difference, got[index], exact[index]);
}

void merge(Difference& total, const Difference& part) {
  total.error = std::max(total.error, part.error);
  total.magnitude = std::max(total.magnitude, part.magnitude);
}

class Reference {
 public:
  Reference(const HeadTensors& tensors, const HeadResults& results, const Visible& visible)
      : tensors_(tensors),
        results_(results),
        visible_(visible),
        lse_(static_cast<std::size_t>(tensors.length)),
        delta_(static_cast<std::size_t>(tensors.length)) {}

  Differences compare(Index row_step, Index key_step) {
    parallel_for(tensors_.length, [&](Index q) { check_row(q, q % row_step == 0); });
    parallel_for((tensors_.length + key_step - 1) / key_step, [&](Index index) { check_key(index * key_step); });
    return differences_;
  }

 private:
  [[nodiscard]] const double* row(const std::vector<double>& tensor, Index index) const {
    return tensor.data() + index * tensors_.dim;
  }

  [[nodiscard]] double score(Index q, Index k) const {
    return tensors_.scale * dot(row(tensors_.query, q), row(tensors_.key, k), tensors_.dim);
  }

  void check_row(Index q, bool with_gradient) {
    const Index length = tensors_.length, dim = tensors_.dim;
    std::vector<Index> keys;
    std::vector<double> scores;
    double largest = -infinity;
    for (Index k = 0; k < length; ++k) {
      if (!visible_(q, k)) continue;
      keys.push_back(k);
      scores.push_back(score(q, k));
      largest = std::max(largest, scores.back());
    }
    double sum = 0;
    for (double& value : scores) sum += value = std::exp(value - largest);
    std::vector<double> out(static_cast<std::size_t>(dim), 0);
    for (std::size_t index = 0; index < keys.size(); ++index) {
      add_scaled(out.data(), scores[index] / sum, row(tensors_.value, keys[index]), dim);
    }
    const double lse = keys.empty() ? -infinity : largest + std::log(sum);
    const double delta = dot(out.data(), row(tensors_.out_gradient, q), dim);
    lse_[static_cast<std::size_t>(q)] = lse;
    delta_[static_cast<std::size_t>(q)] = delta;

    Differences found;
    record(found.out, row(results_.out, q), out.data(), dim);
    record(found.lse, results_.lse[static_cast<std::size_t>(q)], lse);
    if (with_gradient) {
      std::vector<double> gradient(static_cast<std::size_t>(dim), 0);
      for (std::size_t index = 0; index < keys.size(); ++index) {
        const double probability = scores[index] / sum;
        const double change = dot(row(tensors_.out_gradient, q), row(tensors_.value, keys[index]), dim) - delta;
        add_scaled(gradient.data(), tensors_.scale * probability * change, row(tensors_.key, keys[index]), dim);
      }
      record(found.query_gradient, row(results_.query_gradient, q), gradient.data(), dim);
    }
    merge(found);
  }

  void check_key(Index k) {
    const Index length = tensors_.length, dim = tensors_.dim;
    std::vector<double> key_gradient(static_cast<std::size_t>(dim), 0), value_gradient(key_gradient);
    for (Index q = 0; q < length; ++q) {
      if (!visible_(q, k)) continue;
      const double probability = std::exp(score(q, k) - lse_[static_cast<std::size_t>(q)]);
      const double* gradient = row(tensors_.out_gradient, q);
      const double change = dot(gradient, row(tensors_.value, k), dim) - delta_[static_cast<std::size_t>(q)];
      add_scaled(value_gradient.data(), probability, gradient, dim);
      add_scaled(key_gradient.data(), tensors_.scale * probability * change, row(tensors_.query, q), dim);
    }
    Differences found;
    record(found.key_gradient, row(results_.key_gradient, k), key_gradient.data(), dim);
    record(found.value_gradient, row(results_.value_gradient, k), value_gradient.data(), dim);
    merge(found);
  }

  void merge(const Differences& found) {
    const std::lock_guard lock(mutex_);
    flashmask::merge(differences_.out, found.out);
    flashmask::merge(differences_.lse, found.lse);
    flashmask::merge(differences_.query_gradient, found.query_gradient);
    flashmask::merge(differences_.key_gradient, found.key_gradient);
    flashmask::merge(differences_.value_gradient, found.value_gradient);
  }

  const HeadTensors& tensors_;
  const HeadResults& results_;
  const Visible& visible_;
  std::vector<double> lse_, delta_;
  std::mutex mutex_;
  Differences differences_;
};

}  // namespace

Differences compare_with_reference(const HeadTensors& tensors, const HeadResults& results, const Visible& visible,
                                   std::int64_t row_step, std::int64_t key_step) {
  return Reference(tensors, results, visible).compare(row_step, key_step);
}

}  // namespace flashspan::flashmask
