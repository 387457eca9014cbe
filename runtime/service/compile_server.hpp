// compile_server.hpp -- CompileServer: answers requests for kernels, whatever carries them.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "cache/kernel_cache.hpp"
#include "cache/signed_entry.hpp"
#include "network/network.hpp"
#include "runtime/attention/kernel_provider.hpp"
#include "runtime/attention/metrics.hpp"
#include "runtime/service/compile_jobs.hpp"
#include "runtime/service/service_request.hpp"

namespace flashspan::service {

struct ServerParts {
  std::shared_ptr<cache::KernelCache> cache;
  /// A provider over this cache that compiles for the target. Called once for each. Error: unsupported.
  std::function<Result<std::shared_ptr<attention::KernelProvider>>(const kernel::Target&)> open_provider;
  std::function<bool(int running)> may_compile;  ///< as CompileQueue
  std::chrono::seconds longest_compile{300};     ///< past it, a compile gives its place in the queue away
  std::size_t most_jobs = 10000;
  cache::Signer signer;  ///< of answers; empty: they are not signed
  std::shared_ptr<attention::Metrics> metrics;
};

/// Thread-safe. Paths: service_request.hpp.
///   POST compile    a CompileRequest; 200 and the entry, as encode_signed() gives it; else a line that says why:
///                   400 a request that does not read, or of a spec that no call has; 409 this server makes another
///                   binary of that spec (another version of the library or compiler); 422 it does not compile;
///                   503 too many jobs, or stopping; 504 not done within its time: the compile goes on
///   POST prefetch   202 and a line: how many were taken
///   GET  status     what runs and what waits, as JSON
///   GET  metrics    in the text format of Prometheus
class CompileServer {
 public:
  explicit CompileServer(ServerParts parts);
  [[nodiscard]] network::HttpAnswer answer(const network::HttpRequest& request);
  /// Ends what waits for compiles; those that run go on until the server is destroyed.
  void stop() { jobs_.stop(); }

 private:
  [[nodiscard]] network::HttpAnswer route(const network::HttpRequest& request);
  [[nodiscard]] network::HttpAnswer compile(const std::string& body);
  [[nodiscard]] network::HttpAnswer prefetch(const std::string& body);
  [[nodiscard]] network::HttpAnswer status();
  /// Who makes a kernel, and the key that it gives it.
  struct Maker {
    std::shared_ptr<attention::KernelProvider> provider;
    cache::KernelKey key;
  };
  /// Error: unsupported, for a target that is not served; bad_argument, for a name that it would not give.
  [[nodiscard]] Result<Maker> maker_of(const attention::RemoteRequest& wanted);

  ServerParts parts_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::mutex mutex_;                                                                       // guards providers_
  std::unordered_map<std::string, std::shared_ptr<attention::KernelProvider>> providers_;  // by target
  CompileJobs jobs_;
};

}  // namespace flashspan::service
