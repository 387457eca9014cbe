#include "runtime/service/compile_client.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "runtime/attention/kernel_metadata.hpp"
#include "runtime/service/http_status.hpp"
#include "runtime/service/service_request.hpp"

namespace flashspan::service {
namespace {

constexpr double prefetch_seconds = 5;
/// By which the server's time ends before the connection's, so that it can say so.
constexpr double margin_seconds = 5;

/// Its first line.
std::string line_of(const network::HttpAnswer& answer) {
  return "status " + std::to_string(answer.status) + ", " + answer.body.substr(0, answer.body.find('\n'));
}

/// The entry of an answer, if it is one of the request.
std::optional<cache::Entry> entry_in(const network::HttpAnswer& answer, const attention::RemoteRequest& request,
                                     const cache::Signer& signer, std::string& why) {
  const auto bytes = std::as_bytes(std::span(answer.body));
  const auto key = request.by_alias ? cache::stored_key(bytes) : request.key;
  auto entry = cache::decode_signed(key.value_or(request.key), bytes, signer, &why);
  if (!entry) return std::nullopt;
  if (request.by_alias) {
    const auto metadata = attention::metadata_from_text(entry->metadata);
    if (!metadata || metadata->alias != request.key.to_text()) {
      why = "of another kernel";
      return std::nullopt;
    }
  }
  return entry;
}

}  // namespace

std::optional<cache::Entry> CompileClient::fetch(const attention::RemoteRequest& request) {
  if (is_paused()) return std::nullopt;
  const auto answer = http_->send({"POST", compile_path, to_text(CompileRequest{request, options_.time_out_seconds})},
                                  options_.time_out_seconds + margin_seconds);
  if (!answer) {
    note_failure(answer.error().message());
    return std::nullopt;
  }
  if (answer->status == ok) {
    std::string why;
    auto entry = entry_in(*answer, request, options_.signer, why);
    if (entry) {
      note_success();
    } else {
      note_failure("the entry of " + request.key.to_text() + ": " + why);
    }
    return entry;
  }
  if (answer->status == does_not_compile) {
    note_success();  // of the service; compiling here shows its user why
  } else if (answer->status == unavailable || answer->status == too_slow) {
    note_success();
    options_.log(LogLevel::info,
                 "compile service " + http_->address() + " is busy, compiling here: " + request.spec.summary());
  } else {
    note_failure(line_of(*answer));
  }
  return std::nullopt;
}

void CompileClient::prefetch(const std::vector<attention::RemoteRequest>& requests) {
  for (std::size_t start = 0; start < requests.size(); start += most_prefetched) {
    if (is_paused()) return;
    const std::size_t end = std::min(requests.size(), start + most_prefetched);
    const std::vector<attention::RemoteRequest> part(requests.begin() + static_cast<std::ptrdiff_t>(start),
                                                     requests.begin() + static_cast<std::ptrdiff_t>(end));
    const auto answer = http_->send({"POST", prefetch_path, to_text(part)}, prefetch_seconds);
    if (!answer) {
      note_failure(answer.error().message());
    } else if (answer->status != accepted) {
      note_failure(line_of(*answer));
    }
  }
}

bool CompileClient::is_paused() {
  const std::scoped_lock lock(mutex_);
  return paused_until_ && std::chrono::steady_clock::now() < *paused_until_;
}

void CompileClient::note_failure(const std::string& what) {
  {
    const std::scoped_lock lock(mutex_);
    const bool first = !paused_until_;
    paused_until_ = std::chrono::steady_clock::now() + options_.pause_after_failure;
    if (!first) return;
  }
  options_.log(LogLevel::warning, "compile service " + http_->address() + " does not serve, compiling here: " + what);
}

void CompileClient::note_success() {
  {
    const std::scoped_lock lock(mutex_);
    if (!std::exchange(paused_until_, std::nullopt)) return;
  }
  options_.log(LogLevel::info, "compile service " + http_->address() + " serves again");
}

}  // namespace flashspan::service
