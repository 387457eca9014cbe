#include "runtime/api/network_plugin.hpp"

#include <cstdint>
#include <utility>
#include <vector>

#include "cache/whole_file.hpp"
#include "network/plugin.h"
#include "network/shown_address.hpp"
#include "runtime/api/plugin_file.hpp"
#include "runtime/service/compile_client.hpp"

namespace flashspan::api {
namespace {

constexpr Plugin plugin{
    "network plug-in",
    "libflashspan_network.so",
    FLASHSPAN_NETWORK_PLUGIN_ENTRY,
    FLASHSPAN_NETWORK_PLUGIN_ABI,
    "",
    "build Flashspan with FLASHSPAN_BUILD_NETWORK=ON (apt-get install libcurl4-openssl-dev libmicrohttpd-dev "
    "libhiredis-dev libssl-dev), or set FLASHSPAN_NETWORK_PLUGIN to the file"};
constexpr std::size_t fewest_secret_bytes = 16;
constexpr std::int64_t most_secret_bytes = std::int64_t{1} << 20;

/// What was chosen, else what the environment says; empty: nothing.
std::string either(const std::optional<std::string>& chosen, const std::optional<std::string>& environment) {
  return chosen ? *chosen : environment.value_or("");
}

Result<std::vector<std::byte>> read_secret(const std::string& path) {
  cache::FileContents file;
  constexpr std::int64_t never = -1;
  if (const int error = cache::read_file(path, most_secret_bytes, never, file); error != 0) {
    return Error{ErrorCode::io_error, "signing key file", path + ": " + cache::error_text(error),
                 "a file that can be read", ""};
  }
  if (file.bytes.size() >= fewest_secret_bytes) return std::move(file.bytes);
  return Error{ErrorCode::bad_argument, "signing key file",
               path + ", of " + std::to_string(file.bytes.size()) + " bytes",
               "a secret of at least 16 random bytes, for example of: openssl rand -hex 32", ""};
}

/// The network, or null after a warning.
std::shared_ptr<network::Network> network_or_warning(const Settings& settings, const std::string& wanted,
                                                     const LogSink& log) {
  auto network = open_network(settings);
  if (network) return *std::move(network);
  if (log) log(LogLevel::warning, wanted + " is not used: " + network.error().message());
  return nullptr;
}

}  // namespace

Result<std::shared_ptr<network::Network>> open_network(const Settings& settings) {
  const auto made = make_from_plugin(plugin, settings.network_plugin);
  if (!made) return made.error();
  return std::shared_ptr<network::Network>(static_cast<network::Network*>(*made));
}

Result<cache::Signer> open_signer(const RemoteChoice& choice, const Settings& settings) {
  const std::string path = either(choice.signing_key_file, settings.signing_key_file);
  if (path.empty()) return cache::Signer();
  const auto secret = read_secret(path);
  if (!secret) return secret.error();
  const auto network = open_network(settings);
  if (!network) return network.error();
  return (*network)->signer(*secret);
}

Result<std::shared_ptr<attention::RemoteCompiler>> open_service(const RemoteChoice& choice, const Settings& settings,
                                                                DeviceKind kind, const LogSink& log) {
  const auto nobody = std::shared_ptr<attention::RemoteCompiler>();
  const std::string address = either(choice.service, settings.service);
  if (address.empty() || kind != DeviceKind::cuda) return nobody;
  service::ClientOptions options;
  options.log = log;
  const auto seconds = service_timeout_seconds(settings, options.time_out_seconds);
  if (!seconds) return seconds.error();
  options.time_out_seconds = *seconds;
  const auto network = network_or_warning(settings, "the compile service at " + network::shown_address(address), log);
  if (network == nullptr) return nobody;
  auto signer = open_signer(choice, settings);
  if (!signer) return signer.error();
  options.signer = *std::move(signer);
  auto http = network->open_client(address, either(choice.service_token, settings.service_token));
  if (!http) return http.error();
  return std::shared_ptr<attention::RemoteCompiler>(
      std::make_shared<service::CompileClient>(*std::move(http), std::move(options)));
}

Result<std::unique_ptr<cache::SharedStore>> open_shared_store(const RemoteChoice& choice, const Settings& settings,
                                                              const LogSink& log) {
  const std::string url = either(choice.shared_store, settings.shared_store);
  if (url.empty()) return std::unique_ptr<cache::SharedStore>();
  const auto network = network_or_warning(settings, "the shared store", log);
  if (network == nullptr) return std::unique_ptr<cache::SharedStore>();
  auto signer = open_signer(choice, settings);
  if (!signer) return signer.error();
  auto blobs = network->open_store(url);
  if (!blobs) return blobs.error();
  return std::make_unique<cache::SharedStore>(*std::move(blobs), *std::move(signer), log);
}

}  // namespace flashspan::api
