// What Metrics counts, and the text it gives to Prometheus.
#include "runtime/attention/metrics.hpp"

#include <gmock/gmock.h>

#include <regex>
#include <set>
#include <sstream>

namespace flashspan::testing {
namespace {

using attention::DurationHistogram;
using attention::Metrics;
using ::testing::HasSubstr;

TEST(Histogram, CountsEachDurationUpToItsBoundAndAllOthersAbove) {
  DurationHistogram histogram;
  for (const double milliseconds : {0.25, 0.5, 0.75, 9999.0, 10001.0}) histogram.observe(milliseconds);
  EXPECT_EQ(histogram.count_up_to(0), 2U) << "a bound is part of its bucket";
  EXPECT_EQ(histogram.count_up_to(1), 3U);
  EXPECT_EQ(histogram.count_up_to(DurationHistogram::bounds.size() - 1), 4U);
  EXPECT_EQ(histogram.count(), 5U);
  EXPECT_DOUBLE_EQ(histogram.sum_milliseconds(), 20001.5);
}

TEST(PrometheusText, EverySampleHasAValidNameAndStandsBelowItsType) {
  std::istringstream lines(to_prometheus_text(Metrics()));
  const std::regex sample(R"((flashspan_[a-z_]+)(\{[a-z]+="[^"]+"\})? [0-9.]+)");
  const std::regex type(R"(# TYPE (flashspan_[a-z_]+) (counter|histogram))");
  std::set<std::string> samples;
  std::string name;
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (line.starts_with("# HELP ")) continue;
    if (std::regex_match(line, match, type)) {
      name = match[1];
      continue;
    }
    ASSERT_TRUE(std::regex_match(line, match, sample)) << line;
    EXPECT_TRUE(match[1].str().starts_with(name)) << line << " below " << name;
    EXPECT_TRUE(samples.insert(line.substr(0, line.rfind(' '))).second) << line << " twice";
  }
  EXPECT_GT(samples.size(), 30U);
}

TEST(PrometheusText, ShowsCountsByTheirLabelsAndHistogramsCumulatively) {
  Metrics metrics;
  metrics.compiles.add(3);
  metrics.kernels[cache::Outcome::layer].add(2);
  metrics.launches[Direction::backward].add(7);
  metrics.compile_milliseconds.observe(80);
  metrics.compile_milliseconds.observe(400);
  const std::string text = to_prometheus_text(metrics);
  EXPECT_THAT(text, HasSubstr("# TYPE flashspan_compiles_total counter\nflashspan_compiles_total{result=\"ok\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("flashspan_kernels_total{source=\"layer\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("flashspan_launches_total{direction=\"forward\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("flashspan_launches_total{direction=\"backward\"} 7\n"));
  EXPECT_THAT(text, HasSubstr("flashspan_compile_milliseconds_bucket{le=\"100\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("flashspan_compile_milliseconds_bucket{le=\"500\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("flashspan_compile_milliseconds_bucket{le=\"+Inf\"} 2\n"
                              "flashspan_compile_milliseconds_sum 480\nflashspan_compile_milliseconds_count 2\n"));
}

}  // namespace
}  // namespace flashspan::testing
