// service.hpp -- the compile service: a process that compiles kernels for many others (AttentionOptions::service,
// FLASHSPAN_SERVICE). Clients send specs, never code. docs/serving.md says what goes over the wire.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "flashspan/core/error.hpp"
#include "flashspan/core/log.hpp"

#pragma GCC visibility push(default)
namespace flashspan {

struct ServiceOptions {
  /// "unix:/path", a socket that its owner alone may use, or "http://host:port", port 0 for any that is free.
  std::string address;
  /// What clients must send as "Authorization: Bearer <token>"; needed for TCP. Default: FLASHSPAN_SERVICE_TOKEN.
  std::optional<std::string> token;
  LogSink log;                                       ///< as in AttentionOptions, as are those that follow
  std::optional<std::string> cache_dir, cache_path;  ///< where kernels are kept
  std::optional<std::string> shared_store, signing_key_file;
  int compile_threads = 0;     ///< compiles at a time; 0: one a core. Fewer, but one at least, where memory is short
  unsigned connections = 256;  ///< at a time; each takes a thread. Others wait
};

/// Serves until it is destroyed, which ends the requests that wait, and waits for the compiles that run; what was
/// compiled is in the cache.
class CompileService {
 public:
  /// Error: missing_component (NVRTC, or the network plug-in), bad_argument, io_error (the address is taken).
  static Result<CompileService> start(const ServiceOptions& options);
  CompileService(CompileService&&) noexcept;
  CompileService& operator=(CompileService&&) noexcept;
  ~CompileService();

  /// As clients take it; with the port that was taken.
  [[nodiscard]] const std::string& address() const;

 private:
  struct State;
  explicit CompileService(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace flashspan
#pragma GCC visibility pop
