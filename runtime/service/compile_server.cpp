#include "runtime/service/compile_server.hpp"

#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/service/http_status.hpp"

namespace flashspan::service {
namespace {

using network::HttpAnswer;

HttpAnswer line(int status, const std::string& text) { return {status, "text/plain; charset=utf-8", text + "\n"}; }

HttpAnswer entry_answer(const cache::KernelKey& key, const cache::Entry& entry, const cache::Signer& signer) {
  const std::vector<std::byte> bytes = cache::encode_signed(key, entry, signer);
  return {ok, "application/octet-stream", {reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
}

CompileJobs::Work build_of(std::shared_ptr<attention::KernelProvider> provider, const attention::RemoteRequest& wanted,
                           std::shared_ptr<std::optional<Error>> failure) {
  return [provider = std::move(provider), wanted, failure = std::move(failure)] {
    try {
      const auto built = provider->build(wanted.spec, wanted.text.view());
      if (!built) *failure = built.error();
    } catch (const std::exception& thrown) {
      *failure = Error{ErrorCode::compile_failed, "kernel", thrown.what(), "a build without exceptions", ""};
    }
  };
}

}  // namespace

CompileServer::CompileServer(ServerParts parts)
    : parts_(std::move(parts)), jobs_(parts_.may_compile, parts_.longest_compile, parts_.most_jobs) {}

HttpAnswer CompileServer::answer(const network::HttpRequest& request) {
  try {
    return route(request);
  } catch (const std::exception& failure) {  // out of memory
    return line(broken, failure.what());
  }
}

HttpAnswer CompileServer::route(const network::HttpRequest& request) {
  const bool posts = request.path == compile_path || request.path == prefetch_path;
  const bool gets = request.path == status_path || request.path == metrics_path;
  if (!posts && !gets) return line(not_found, "no such path: " + request.path);
  if (request.method != (posts ? "POST" : "GET")) return line(wrong_method, posts ? "takes POST" : "takes GET");
  if (request.path == compile_path) return compile(request.body);
  if (request.path == prefetch_path) return prefetch(request.body);
  if (request.path == status_path) return status();
  return {ok, "text/plain; version=0.0.4; charset=utf-8", to_prometheus_text(*parts_.metrics)};
}

Result<CompileServer::Maker> CompileServer::maker_of(const attention::RemoteRequest& wanted) {
  std::shared_ptr<attention::KernelProvider> provider;
  {
    const std::scoped_lock lock(mutex_);
    std::shared_ptr<attention::KernelProvider>& known = providers_[kernel::to_string(wanted.spec.target)];
    if (known == nullptr) {
      auto opened = parts_.open_provider(wanted.spec.target);
      if (!opened) return opened.error();
      known = *std::move(opened);
    }
    provider = known;
  }
  const auto names = provider->names_of(wanted.spec);
  if (!names) return names.error();
  const std::optional<cache::KernelKey> name = wanted.by_alias ? names->alias : names->key;
  if (name != wanted.key) {
    return Error{ErrorCode::bad_argument, wanted.by_alias ? "alias" : "key", wanted.key.to_text(),
                 (name ? name->to_text() : "none") + ", that of this server's library and compiler", ""};
  }
  return Maker{std::move(provider), names->key};
}

HttpAnswer CompileServer::compile(const std::string& body) {
  const auto request = compile_request_from_text(body);
  if (!request) return line(bad_request, request.error().message());
  const attention::RemoteRequest& wanted = request->wanted;
  const auto maker = maker_of(wanted);
  if (!maker) return line(conflict, maker.error().message());
  if (const auto found = parts_.cache->find(maker->key)) {
    return entry_answer(maker->key, *found->entry, parts_.signer);
  }
  const auto deadline = CompileJobs::Clock::now() + std::chrono::duration_cast<CompileJobs::Clock::duration>(
                                                        std::chrono::duration<double>(request->time_out_seconds));
  const auto failure = std::make_shared<std::optional<Error>>();
  switch (jobs_.run(wanted.spec, build_of(maker->provider, wanted, failure), deadline)) {
    case CompileJobs::Ended::timed_out:
      return line(too_slow, "still compiling, or waiting for others; the compile goes on");
    case CompileJobs::Ended::full:
      return line(unavailable, "too many kernels wait");
    case CompileJobs::Ended::stopped:
      return line(unavailable, "stopping");
    case CompileJobs::Ended::done:
      break;
  }
  // Also a note that the kernel does not fit its registers, which is an answer like any other.
  if (const auto made = parts_.cache->find(maker->key)) return entry_answer(maker->key, *made->entry, parts_.signer);
  return line(does_not_compile, *failure ? (*failure)->message() : "it did not compile for another client");
}

HttpAnswer CompileServer::prefetch(const std::string& body) {
  const auto requests = prefetch_from_text(body);
  if (!requests) return line(bad_request, requests.error().message());
  std::size_t taken = 0;
  for (const Result<attention::RemoteRequest>& wanted : *requests) {
    if (!wanted) continue;
    const auto maker = maker_of(*wanted);
    if (!maker) continue;
    if (parts_.cache->find(maker->key) ||
        jobs_.run_ahead(wanted->spec, build_of(maker->provider, *wanted, std::make_shared<std::optional<Error>>()))) {
      ++taken;
    }
  }
  return line(accepted, std::to_string(taken) + " of " + std::to_string(requests->size()) + " taken");
}

HttpAnswer CompileServer::status() {
  const CompileJobs::Status jobs = jobs_.status();
  nlohmann::json running = nlohmann::json::array();
  for (const CompileJobs::Running& job : jobs.running) {
    running.push_back({{"spec", job.spec}, {"seconds", job.seconds}, {"clients", job.waiting}});
  }
  const double uptime = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  const nlohmann::json status{{"uptime_seconds", uptime},
                              {"running", std::move(running)},
                              {"queued", jobs.queued},
                              {"queued_ahead", jobs.queued_ahead},
                              {"done", jobs.done}};
  return {ok, "application/json", status.dump() + "\n"};
}

}  // namespace flashspan::service
