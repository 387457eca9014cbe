// plugin.cpp -- the entry of the shared object.
#include "network/plugin.h"

#include <curl/curl.h>

#include <mutex>

#include "network/hmac.hpp"
#include "network/http_client.hpp"
#include "network/http_server.hpp"
#include "network/http_store.hpp"
#include "network/network.hpp"
#include "network/redis_store.hpp"

namespace flashspan::network {
namespace {

class NetworkOfThisMachine final : public Network {
 public:
  [[nodiscard]] Result<std::unique_ptr<HttpClient>> open_client(const std::string& address,
                                                                const std::string& token) override {
    return open_http_client(address, token);
  }
  [[nodiscard]] Result<std::unique_ptr<HttpServer>> listen(const ListenOptions& options, HttpHandler handler) override {
    return open_http_server(options, std::move(handler));
  }
  [[nodiscard]] Result<std::unique_ptr<cache::BlobStore>> open_store(const std::string& url) override {
    return url.starts_with("redis") ? open_redis_store(url) : open_http_store(url);
  }
  [[nodiscard]] Result<cache::Signer> signer(std::span<const std::byte> secret) override { return hmac_signer(secret); }
};

}  // namespace
}  // namespace flashspan::network

extern "C" __attribute__((visibility("default"))) void* flashspan_network(int abi) {
  if (abi != FLASHSPAN_NETWORK_PLUGIN_ABI) return nullptr;
  static std::once_flag initialised;
  std::call_once(initialised, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  return new flashspan::network::NetworkOfThisMachine;
}
