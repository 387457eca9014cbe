#include "runtime/api/process_metrics.hpp"

#include "flashspan/metrics.hpp"

namespace flashspan {

namespace api {

const std::shared_ptr<attention::Metrics>& process_metrics() {
  static const auto metrics = std::make_shared<attention::Metrics>();
  return metrics;
}

}  // namespace api

std::string metrics_text() { return attention::to_prometheus_text(*api::process_metrics()); }

}  // namespace flashspan
