// compile_client.hpp -- CompileClient: a RemoteCompiler that asks a compile service.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>

#include "cache/signed_entry.hpp"
#include "flashspan/core/log.hpp"
#include "network/network.hpp"
#include "runtime/attention/remote_compiler.hpp"

namespace flashspan::service {

struct ClientOptions {
  double time_out_seconds = 60;  ///< that a kernel is waited for
  cache::Signer signer;          ///< empty: answers need not be signed
  LogSink log;
  std::chrono::milliseconds pause_after_failure = std::chrono::seconds(30);
};

/// A service that is absent, hangs or answers what it should not is told of in one line, and left alone for a while.
/// One that says that it is busy, or that a kernel does not compile, is not.
class CompileClient final : public attention::RemoteCompiler {
 public:
  CompileClient(std::unique_ptr<network::HttpClient> http, ClientOptions options)
      : http_(std::move(http)), options_(std::move(options)) {}

  [[nodiscard]] std::optional<cache::Entry> fetch(const attention::RemoteRequest& request) override;
  void prefetch(const std::vector<attention::RemoteRequest>& requests) override;

 private:
  [[nodiscard]] bool is_paused();
  /// Tells of the first of several failures.
  void note_failure(const std::string& what);
  void note_success();

  std::unique_ptr<network::HttpClient> http_;
  ClientOptions options_;
  std::mutex mutex_;  // guards what follows
  std::optional<std::chrono::steady_clock::time_point> paused_until_;
};

}  // namespace flashspan::service
