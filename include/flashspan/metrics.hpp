// metrics.hpp -- what this process has compiled, found in caches and launched, for whoever watches it.
#pragma once

#include <string>

#pragma GCC visibility push(default)
namespace flashspan {

/// Counters and histograms of everything in this process since its start, in the text format of Prometheus (version
/// 0.0.4, to be served as "text/plain; version=0.0.4"). Names begin with "flashspan_". docs/serving.md lists them.
[[nodiscard]] std::string metrics_text();

}  // namespace flashspan
#pragma GCC visibility pop
