// metrics.cpp -- one function per kind of metric, and the list of all of them.
#include "runtime/attention/metrics.hpp"

#include <algorithm>
#include <cstdio>
#include <string_view>

namespace flashspan::attention {

namespace {

constexpr double microseconds_per_millisecond = 1000;

std::string number_text(double value) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.10g", value);
  return buffer.data();
}

/// Text in the exposition format.
class Exposition {
 public:
  void begin(std::string_view name, std::string_view type, std::string_view help) {
    name_ = "flashspan_" + std::string(name);
    text_ += "# HELP " + name_ + " " + std::string(help) + "\n# TYPE " + name_ + " " + std::string(type) + "\n";
  }

  void sample(std::string_view suffix, std::string_view labels, const std::string& value) {
    text_ += name_ + std::string(suffix);
    if (!labels.empty()) text_ += "{" + std::string(labels) + "}";
    text_ += " " + value + "\n";
  }

  void counter(std::string_view name, std::string_view help, const Counter& counter) {
    begin(name, "counter", help);
    sample("", "", std::to_string(counter.value()));
  }

  void by_direction(std::string_view name, std::string_view help, const CounterOf<Direction, 2>& counters) {
    begin(name, "counter", help);
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      sample("", std::string("direction=\"") + to_string(direction) + "\"",
             std::to_string(counters[direction].value()));
    }
  }

  void by_source(std::string_view name, std::string_view help,
                 const CounterOf<cache::Outcome, cache::outcome_count>& counters) {
    begin(name, "counter", help);
    for (std::size_t i = 0; i < cache::outcome_count; ++i) {
      const auto source = static_cast<cache::Outcome>(i);
      sample("", std::string("source=\"") + cache::to_string(source) + "\"", std::to_string(counters[source].value()));
    }
  }

  void histogram(std::string_view name, std::string_view help, const DurationHistogram& histogram) {
    begin(name, "histogram", help);
    for (std::size_t bound = 0; bound < DurationHistogram::bounds.size(); ++bound) {
      sample("_bucket", "le=\"" + number_text(DurationHistogram::bounds[bound]) + "\"",
             std::to_string(histogram.count_up_to(bound)));
    }
    const std::string count = std::to_string(histogram.count());
    sample("_bucket", "le=\"+Inf\"", count);
    sample("_sum", "", number_text(histogram.sum_milliseconds()));
    sample("_count", "", count);
  }

  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string name_;
  std::string text_;
};

}  // namespace

void DurationHistogram::observe(double milliseconds) {
  const auto bound = std::ranges::lower_bound(bounds, milliseconds);
  buckets_[static_cast<std::size_t>(bound - bounds.begin())].add();
  microseconds_.add(static_cast<std::uint64_t>(std::max(milliseconds, 0.0) * microseconds_per_millisecond));
}

std::uint64_t DurationHistogram::count_up_to(std::size_t bound) const {
  std::uint64_t count = 0;
  for (std::size_t bucket = 0; bucket <= bound; ++bucket) count += buckets_[bucket].value();
  return count;
}

std::uint64_t DurationHistogram::count() const { return count_up_to(bounds.size()); }

double DurationHistogram::sum_milliseconds() const {
  return static_cast<double>(microseconds_.value()) / microseconds_per_millisecond;
}

std::string to_prometheus_text(const Metrics& metrics) {
  Exposition text;
  text.begin("compiles_total", "counter", "Compiles in this process.");
  text.sample("", "result=\"ok\"", std::to_string(metrics.compiles.value()));
  text.sample("", "result=\"failed\"", std::to_string(metrics.failed_compiles.value()));
  text.histogram("compile_milliseconds", "Time of a compile.", metrics.compile_milliseconds);
  text.by_source("kernels_total", "Kernels that were not on their device, by where they were found or made.",
                 metrics.kernels);
  text.by_source("kernel_bytes_total", "Bytes of these kernels.", metrics.kernel_bytes);
  text.counter("cache_misses_total", "Kernels that neither memory nor any store had.", metrics.misses);
  text.counter("refused_total", "Misses of frozen calls, which compiled nothing.", metrics.refused);
  text.histogram("provide_milliseconds", "Time to find or make a kernel that was not on its device.",
                 metrics.provide_milliseconds);
  text.histogram("load_milliseconds", "Time to load a kernel onto its device.", metrics.load_milliseconds);
  text.counter("unloaded_total", "Kernels unloaded to make room for others.", metrics.unloaded);
  text.by_direction("launches_total", "Calls queued on a device.", metrics.launches);
  text.by_direction("plans_total", "Calls that planned their tiles.", metrics.plans);
  text.by_direction("plan_reuses_total", "Calls that took the tile plan of an earlier one.", metrics.reuses);
  text.counter("stand_in_launches_total", "Calls served by a kernel that interprets their masks.",
               metrics.stand_in_launches);
  text.begin("service_requests_total", "counter", "Kernels that a compile service was asked for.");
  text.sample("", "result=\"ok\"", std::to_string(metrics.service_answers.value()));
  text.sample("", "result=\"failed\"", std::to_string(metrics.service_failures.value()));
  return text.take();
}

}  // namespace flashspan::attention
