// service_fixture.hpp -- specs, and a server over a back end that compiles nothing.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "flashspan/mask.hpp"
#include "runtime/api/states.hpp"
#include "runtime/attention/choose_spec.hpp"
#include "runtime/service/compile_server.hpp"
#include "tests/runtime/fake_backend.hpp"

namespace flashspan::testing {

inline const std::string& expression() {
  static const std::string text = "k <= q and the_users_own";
  return text;
}

/// Specs of CUDA kernels that differ in their mask: "k <= q + number".
inline kernel::KernelSpec spec_of(int number) {
  const auto mask = Mask::parse("k <= q + " + std::to_string(number));
  attention::SpecChoice choice;
  choice.target = {DeviceKind::cuda, {80, 0}};
  choice.dtype = DType::bf16;
  choice.head_dim_qk = choice.head_dim_v = 64;
  return *attention::choose_spec(choice, mask->state(), nullptr);
}

/// A server over a cache in memory. Its parts can be changed until it is first used.
class FakeService {
 public:
  FakeService() {
    backend->emitted = kernel::Language::cuda;
    parts.cache = std::make_shared<cache::KernelCache>(std::nullopt, 1 << 24, log_);
    parts.open_provider = [this](const kernel::Target& target) -> Result<std::shared_ptr<attention::KernelProvider>> {
      if (target.kind != DeviceKind::cuda) return Error{ErrorCode::unsupported, "target", "cpu", "CUDA", ""};
      attention::ProviderOptions options{{}, log_};
      options.metrics = parts.metrics;
      return std::make_shared<attention::KernelProvider>(backend, parts.cache, options);
    };
    parts.may_compile = [this](int running) { return running < threads; };
    parts.metrics = std::make_shared<attention::Metrics>();
  }

  service::CompileServer& server() {
    const std::scoped_lock lock(mutex_);
    if (server_ == nullptr) server_ = std::make_unique<service::CompileServer>(parts);
    return *server_;
  }

  [[nodiscard]] attention::RemoteRequest wanted(int number) const {
    attention::KernelProvider provider(backend, parts.cache, {{}, log_});
    const kernel::KernelSpec spec = spec_of(number);
    return {spec, provider.names_of(spec)->key, attention::OwnedText({&expression(), nullptr}), false};
  }

  network::HttpAnswer compile(const attention::RemoteRequest& wanted, double seconds = 60) {
    return server().answer({"POST", service::compile_path, to_text(service::CompileRequest{wanted, seconds})});
  }

  int threads = 2;
  std::shared_ptr<FakeBackend> backend = std::make_shared<FakeBackend>();
  service::ServerParts parts;

 private:
  LogSink log_ = [](LogLevel, std::string_view) {};
  std::mutex mutex_;
  std::unique_ptr<service::CompileServer> server_;
};

}  // namespace flashspan::testing
