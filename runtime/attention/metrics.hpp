// metrics.hpp -- Metrics: what a process counts, and its text in the exposition format of Prometheus.
//
// Our own rather than prometheus-cpp's registry: what is counted is known when this is compiled, counting sits in the
// path of every launch (one relaxed addition, no lock, no look-up, no allocation), and whoever links libflashspan
// would have to link that library too. The format is a page of text:
// https://prometheus.io/docs/instrumenting/exposition_formats/
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "cache/kernel_cache.hpp"
#include "flashspan/core/types.hpp"

namespace flashspan::attention {

/// Only grows. Thread-safe.
class Counter {
 public:
  void add(std::uint64_t more = 1) { value_.fetch_add(more, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_ = 0;
};

/// How many durations were at most as long as each of some bounds. Thread-safe.
class DurationHistogram {
 public:
  /// Milliseconds: from what a read of a file takes to what the slowest of our kernels takes to compile.
  static constexpr std::array<double, 13> bounds{0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 10000};

  void observe(double milliseconds);
  [[nodiscard]] std::uint64_t count() const;
  [[nodiscard]] double sum_milliseconds() const;
  /// Durations up to bounds[bound]; all of them for bounds.size().
  [[nodiscard]] std::uint64_t count_up_to(std::size_t bound) const;

 private:
  std::array<Counter, bounds.size() + 1> buckets_;  // each without those before it
  Counter microseconds_;
};

/// Counters for each value of an enumeration that counts from 0.
template <typename Enumeration, std::size_t count>
class CounterOf {
 public:
  Counter& operator[](Enumeration value) { return counters_[static_cast<std::size_t>(value)]; }
  const Counter& operator[](Enumeration value) const { return counters_[static_cast<std::size_t>(value)]; }

 private:
  std::array<Counter, count> counters_;
};

/// Thread-safe; reading is not one instant for all of them.
struct Metrics {
  Counter compiles;         ///< that gave a binary, or a note that the kernel does not fit
  Counter failed_compiles;  ///< the others
  DurationHistogram compile_milliseconds;
  /// Kernels that were not on their device and were found or made, by where they came from, and the bytes of those.
  CounterOf<cache::Outcome, cache::outcome_count> kernels, kernel_bytes;
  Counter misses;                          ///< kernels that neither memory nor any store had
  Counter refused;                         ///< of these, those of frozen calls
  DurationHistogram provide_milliseconds;  ///< from a request for a kernel to its entry, whatever it came from
  DurationHistogram load_milliseconds;     ///< from its entry to the device
  Counter unloaded;
  CounterOf<Direction, 2> launches;
  CounterOf<Direction, 2> plans;              ///< launches that planned their tiles
  CounterOf<Direction, 2> reuses;             ///< launches with the plan of an earlier one
  Counter stand_in_launches;                  ///< of the general kernels, for calls whose own are not there
  Counter service_answers, service_failures;  ///< of a compile service that this process asked
};

[[nodiscard]] std::string to_prometheus_text(const Metrics& metrics);

}  // namespace flashspan::attention
