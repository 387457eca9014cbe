// http_client.cpp -- a request is a handle of its own, so that threads share nothing. No variable of the environment
// counts (libcurl would read those of proxies), and no redirection is followed: an address is where the user said.
#include "network/http_client.hpp"

#include <curl/curl.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "cache/entry_file.hpp"
#include "network/address.hpp"

namespace flashspan::network {
namespace {

constexpr double longest_connect_seconds = 2;
constexpr double milliseconds_per_second = 1000;

struct HandleDeleter {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
using Handle = std::unique_ptr<CURL, HandleDeleter>;

class Headers {
 public:
  Headers() = default;
  Headers(const Headers&) = delete;
  Headers& operator=(const Headers&) = delete;
  ~Headers() { curl_slist_free_all(list_); }
  void add(const std::string& line) { list_ = curl_slist_append(list_, line.c_str()); }
  [[nodiscard]] curl_slist* get() const { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

std::size_t receive(char* bytes, std::size_t size, std::size_t count, void* to) {
  auto& body = *static_cast<std::string*>(to);
  constexpr auto largest = static_cast<std::size_t>(cache::largest_entry_bytes);
  if (size * count > largest - std::min(body.size(), largest)) return 0;  // ends the transfer
  body.append(bytes, size * count);
  return size * count;
}

struct Upload {
  const std::string* body;
  std::size_t sent = 0;
};

std::size_t send_part(char* to, std::size_t size, std::size_t count, void* from) {
  auto& upload = *static_cast<Upload*>(from);
  const std::size_t part = std::min(size * count, upload.body->size() - upload.sent);
  std::memcpy(to, upload.body->data() + upload.sent, part);
  upload.sent += part;
  return part;
}

class CurlClient final : public HttpClient {
 public:
  CurlClient(HttpAddress address, std::string token)
      : shown_(address.shown()), address_(std::move(address)), token_(std::move(token)) {}

  [[nodiscard]] const std::string& address() const override { return shown_; }

  [[nodiscard]] Result<HttpAnswer> send(const HttpRequest& request, double time_out_seconds) override {
    const Handle handle(curl_easy_init());
    if (handle == nullptr) return failure("libcurl gives no handle");
    HttpAnswer answer;
    Headers headers;
    Upload upload{&request.body};
    describe(handle.get(), request, time_out_seconds, headers, upload);
    curl_easy_setopt(handle.get(), CURLOPT_WRITEFUNCTION, receive);
    curl_easy_setopt(handle.get(), CURLOPT_WRITEDATA, &answer.body);
    const CURLcode code = curl_easy_perform(handle.get());
    if (code == CURLE_OPERATION_TIMEDOUT) {
      return Error{ErrorCode::timed_out, shown_, "no answer in " + std::to_string(time_out_seconds) + " seconds",
                   "a server that answers in time", ""};
    }
    if (code != CURLE_OK) return failure(curl_easy_strerror(code));
    long status = 0;
    curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &status);
    answer.status = static_cast<int>(status);
    const char* type = nullptr;
    curl_easy_getinfo(handle.get(), CURLINFO_CONTENT_TYPE, &type);
    answer.type = type != nullptr ? type : "";
    return answer;
  }

 private:
  [[nodiscard]] Error failure(const std::string& got) const {
    return {ErrorCode::io_error, shown_, got, "a server that answers", ""};
  }

  void describe(CURL* handle, const HttpRequest& request, double time_out_seconds, Headers& headers,
                Upload& upload) const {
    const std::string url = address_.base() + request.path;
    curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
    if (!address_.socket.empty()) curl_easy_setopt(handle, CURLOPT_UNIX_SOCKET_PATH, address_.socket.c_str());
    curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(handle, CURLOPT_PROXY, "");
    curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(time_out_seconds * milliseconds_per_second));
    curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS,
                     static_cast<long>(std::min(time_out_seconds, longest_connect_seconds) * milliseconds_per_second));
    headers.add("Expect:");  // libcurl would wait a second for servers that do not say to go on
    headers.add("Content-Type: application/octet-stream");
    if (!address_.login.empty()) curl_easy_setopt(handle, CURLOPT_USERPWD, address_.login.c_str());
    if (!token_.empty()) headers.add("Authorization: Bearer " + token_);
    curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers.get());
    if (request.method == "GET") return;
    curl_easy_setopt(handle, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, request.method.c_str());
    curl_easy_setopt(handle, CURLOPT_READFUNCTION, send_part);
    curl_easy_setopt(handle, CURLOPT_READDATA, &upload);
    curl_easy_setopt(handle, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  }

  std::string shown_;
  HttpAddress address_;
  std::string token_;
};

}  // namespace

Result<std::unique_ptr<HttpClient>> open_http_client(const std::string& address, const std::string& token) {
  auto parsed = parse_http_address("address", address);
  if (!parsed) return parsed.error();
  if (token.find_first_of("\r\n") != std::string::npos) {
    return Error{ErrorCode::bad_argument, "token", "a text of several lines", "one line", ""};
  }
  return std::unique_ptr<HttpClient>(std::make_unique<CurlClient>(*std::move(parsed), token));
}

}  // namespace flashspan::network
