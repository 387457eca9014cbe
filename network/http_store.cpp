#include "network/http_store.hpp"

#include <utility>

#include "network/address.hpp"
#include "network/http_client.hpp"

namespace flashspan::network {
namespace {

constexpr double time_out_seconds = 5;
constexpr int ok = 200;
constexpr int first_that_is_no_success = 300;
constexpr int not_found = 404;

class HttpStore final : public cache::BlobStore {
 public:
  explicit HttpStore(std::unique_ptr<HttpClient> client) : client_(std::move(client)) {}

  [[nodiscard]] std::string address() const override { return client_->address(); }

  [[nodiscard]] Result<std::optional<std::vector<std::byte>>> get(const std::string& name) override {
    const auto answer = client_->send({"GET", "/" + name, ""}, time_out_seconds);
    if (!answer) return answer.error();
    if (answer->status == not_found) return std::optional<std::vector<std::byte>>();
    if (answer->status != ok) return refused("GET", answer->status);
    const auto bytes = std::as_bytes(std::span(answer->body));
    return std::optional(std::vector<std::byte>(bytes.begin(), bytes.end()));
  }

  [[nodiscard]] Result<void> put(const std::string& name, std::span<const std::byte> bytes) override {
    const std::string body(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const auto answer = client_->send({"PUT", "/" + name, body}, time_out_seconds);
    if (!answer) return answer.error();
    if (answer->status < ok || answer->status >= first_that_is_no_success) return refused("PUT", answer->status);
    return {};
  }

 private:
  [[nodiscard]] Error refused(const std::string& method, int status) const {
    return {ErrorCode::io_error, client_->address(), "status " + std::to_string(status) + " for a " + method,
            "200, or 404 for what is not there", ""};
  }

  std::unique_ptr<HttpClient> client_;
};

}  // namespace

Result<std::unique_ptr<cache::BlobStore>> open_http_store(const std::string& url) {
  const auto parsed = parse_http_address("shared store", url);
  if (!parsed || !parsed->socket.empty()) {
    return Error{ErrorCode::bad_argument, "shared store", parsed ? url : parsed.error().got,
                 "http://host[:port][/path], https://..., redis://host[:port] or redis+unix:///path", ""};
  }
  auto client = open_http_client(url, "");
  if (!client) return client.error();
  return std::unique_ptr<cache::BlobStore>(std::make_unique<HttpStore>(*std::move(client)));
}

}  // namespace flashspan::network
