// service.cpp -- the compile service put together: cache, providers, server, network.
#include "flashspan/service.hpp"

#include <algorithm>
#include <utility>

#include "runtime/api/backends.hpp"
#include "runtime/api/kernel_stores.hpp"
#include "runtime/api/log_sink.hpp"
#include "runtime/api/network_plugin.hpp"
#include "runtime/api/process_metrics.hpp"
#include "runtime/api/provider_options.hpp"
#include "runtime/api/settings.hpp"
#include "runtime/attention/compile_limits.hpp"
#include "runtime/cuda/cuda_backend.hpp"
#include "runtime/service/compile_server.hpp"

namespace flashspan {

struct CompileService::State {
  State(service::ServerParts parts) : server(std::move(parts)) {}
  ~State() { server.stop(); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  service::CompileServer server;
  std::unique_ptr<network::HttpServer> http;  // ends before the server that its threads use
};

CompileService::CompileService(std::unique_ptr<State> state) : state_(std::move(state)) {}
CompileService::CompileService(CompileService&&) noexcept = default;
CompileService& CompileService::operator=(CompileService&&) noexcept = default;
CompileService::~CompileService() = default;

const std::string& CompileService::address() const { return state_->http->address(); }

Result<CompileService> CompileService::start(const ServiceOptions& options) {
  const api::Settings& settings = api::settings();
  const auto nvrtc = cuda::open_nvrtc(api::nvrtc_search(settings));
  if (!nvrtc) return nvrtc.error();
  const auto network = api::open_network(settings);
  if (!network) return network.error();
  const LogSink log = options.log ? options.log : api::standard_log(settings.log);
  const auto folder = api::cache_folder(settings, options.cache_dir);
  const api::RemoteChoice remote{std::nullopt, std::nullopt, options.shared_store, options.signing_key_file};
  auto shared = api::open_shared_store(remote, settings, log);
  if (!shared) return shared.error();
  auto signer = api::open_signer(remote, settings);
  if (!signer) return signer.error();

  service::ServerParts parts;
  parts.cache =
      api::open_kernel_cache(folder, api::cache_layers(settings, options.cache_path), log, *std::move(shared));
  // Providers are kept: only as many as there are architectures, whatever clients ask for.
  parts.open_provider = [cache = parts.cache, folder, log, &settings, archs = nvrtc->archs](
                            const kernel::Target& target) -> Result<std::shared_ptr<attention::KernelProvider>> {
    if (target.kind != DeviceKind::cuda || !std::ranges::binary_search(archs, target.arch.number)) {
      return Error{ErrorCode::unsupported, "target", to_string(target),
                   "an architecture that this server's NVRTC compiles for", ""};
    }
    return std::make_shared<attention::KernelProvider>(
        cuda::make_compile_only_backend(target.arch, api::nvrtc_search(settings)), cache,
        api::provider_options(settings, folder, log));
  };
  parts.may_compile = [threads = options.compile_threads](int running) {
    return attention::may_compile(attention::machine_resources(), threads, running);
  };
  parts.signer = *std::move(signer);
  parts.metrics = api::process_metrics();

  auto state = std::make_unique<State>(std::move(parts));
  network::ListenOptions listening;
  listening.address = options.address;
  listening.token = options.token ? *options.token : settings.service_token.value_or("");
  listening.connections = options.connections;
  // A list of prefetched kernels, each of which takes a few hundred bytes and the user's expression.
  listening.largest_body = std::size_t{16} << 20;
  auto http = (*network)->listen(
      listening, [server = &state->server](const network::HttpRequest& request) { return server->answer(request); });
  if (!http) return http.error();
  state->http = *std::move(http);
  log(LogLevel::info, "compile service: listening at " + state->http->address());
  return CompileService(std::move(state));
}

}  // namespace flashspan
