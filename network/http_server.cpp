#include "network/http_server.hpp"

#include <microhttpd.h>
#include <openssl/crypto.h>

#include <cstring>
#include <string_view>
#include <utility>

#include "network/address.hpp"
#include "network/listening_socket.hpp"

namespace flashspan::network {
namespace {

constexpr unsigned idle_seconds = 30;  // of a connection whose client sends or takes nothing

struct DaemonDeleter {
  void operator()(MHD_Daemon* daemon) const {
    MHD_quiesce_daemon(daemon);  // else it would close the socket, which is not its own
    MHD_stop_daemon(daemon);
  }
};

class MicroServer final : public HttpServer {
 public:
  MicroServer(ListeningSocket socket, ListenOptions options, HttpHandler handler)
      : socket_(std::move(socket)), options_(std::move(options)), handler_(std::move(handler)) {}

  [[nodiscard]] const std::string& address() const override { return socket_.address(); }

  [[nodiscard]] Result<void> start() {
    daemon_.reset(MHD_start_daemon(MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION, 0,
                                   nullptr, nullptr, on_request, this, MHD_OPTION_LISTEN_SOCKET, socket_.descriptor(),
                                   MHD_OPTION_CONNECTION_LIMIT, options_.connections, MHD_OPTION_CONNECTION_TIMEOUT,
                                   idle_seconds, MHD_OPTION_NOTIFY_COMPLETED, on_completed, nullptr, MHD_OPTION_END));
    if (daemon_ != nullptr) return {};
    return Error{ErrorCode::io_error, "address to listen at", address() + ": libmicrohttpd does not start",
                 "threads and descriptors for " + std::to_string(options_.connections) + " connections", ""};
  }

 private:
  /// The part of a request that has come, or the status that it was refused with.
  struct Incoming {
    HttpRequest request;
    int refused = 0;
  };

  static MHD_Result on_request(void* self, MHD_Connection* connection, const char* path, const char* method,
                               const char* /*version*/, const char* upload, std::size_t* upload_bytes, void** state) {
    return static_cast<MicroServer*>(self)->receive(connection, path, method, {upload, *upload_bytes}, upload_bytes,
                                                    state);
  }

  static void on_completed(void* /*unused*/, MHD_Connection* /*connection*/, void** state,
                           MHD_RequestTerminationCode /*how*/) {
    delete static_cast<Incoming*>(*state);
    *state = nullptr;
  }

  /// Called with the header, then with each part of the body, then with nothing.
  MHD_Result receive(MHD_Connection* connection, const char* path, const char* method, std::string_view part,
                     std::size_t* part_bytes, void** state) {
    auto* incoming = static_cast<Incoming*>(*state);
    if (incoming == nullptr) {
      incoming = new Incoming{{method, path, ""}, may_ask(connection) ? 0 : MHD_HTTP_UNAUTHORIZED};
      *state = incoming;
      // Refused before its body is taken.
      return incoming->refused == 0 ? MHD_YES : refuse(connection, incoming->refused);
    }
    if (!part.empty()) {
      *part_bytes = 0;
      if (incoming->request.body.size() + part.size() > options_.largest_body) {
        incoming->refused = MHD_HTTP_CONTENT_TOO_LARGE;
        incoming->request.body.clear();
      }
      if (incoming->refused == 0) incoming->request.body.append(part);
      return MHD_YES;
    }
    if (incoming->refused != 0) return refuse(connection, incoming->refused);
    // An answer may take as long as a compile, in which the connection is idle and well.
    MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, 0U);
    const HttpAnswer answer = handler_(incoming->request);
    MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, idle_seconds);
    return send(connection, answer);
  }

  [[nodiscard]] bool may_ask(MHD_Connection* connection) const {
    if (options_.token.empty()) return true;
    const char* const given = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    const std::string expected = "Bearer " + options_.token;
    return given != nullptr && std::strlen(given) == expected.size() &&
           CRYPTO_memcmp(given, expected.data(), expected.size()) == 0;
  }

  static MHD_Result refuse(MHD_Connection* connection, int status) {
    const std::string_view why =
        status == MHD_HTTP_UNAUTHORIZED ? "no token, or another one\n" : "too large a request\n";
    return send(connection, {status, "text/plain; charset=utf-8", std::string(why)});
  }

  static MHD_Result send(MHD_Connection* connection, const HttpAnswer& answer) {
    const std::unique_ptr<MHD_Response, void (*)(MHD_Response*)> response(
        MHD_create_response_from_buffer(answer.body.size(), const_cast<char*>(answer.body.data()),
                                        MHD_RESPMEM_MUST_COPY),
        MHD_destroy_response);
    if (response == nullptr) return MHD_NO;
    MHD_add_response_header(response.get(), MHD_HTTP_HEADER_CONTENT_TYPE, answer.type.c_str());
    return MHD_queue_response(connection, static_cast<unsigned>(answer.status), response.get());
  }

  ListeningSocket socket_;
  ListenOptions options_;
  HttpHandler handler_;
  std::unique_ptr<MHD_Daemon, DaemonDeleter> daemon_;  // stops before the others go
};

}  // namespace

Result<std::unique_ptr<HttpServer>> open_http_server(const ListenOptions& options, HttpHandler handler) {
  const auto address = parse_http_address("address to listen at", options.address);
  if (!address) return address.error();
  if (address->scheme != "http" || !address->path.empty() || !address->login.empty()) {
    return Error{ErrorCode::bad_argument, "address to listen at", options.address, "unix:/path or http://host:port",
                 ""};
  }
  if (address->socket.empty() && options.token.empty()) {
    return Error{ErrorCode::bad_argument, "token", "none", "a secret, for an address that other users can reach", ""};
  }
  auto socket = ListeningSocket::open(*address);
  if (!socket) return socket.error();
  auto server = std::make_unique<MicroServer>(*std::move(socket), options, std::move(handler));
  if (auto started = server->start(); !started) return started.error();
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace flashspan::network
