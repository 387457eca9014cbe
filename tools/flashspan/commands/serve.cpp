// serve.cpp -- `flashspan serve`: compiles kernels for other processes until it is told to stop.
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "flashspan/service.hpp"
#include "tools/flashspan/commands/commands.hpp"
#include "tools/flashspan/commands/options.hpp"
#include "tools/flashspan/files.hpp"

namespace flashspan::tool {
namespace {

struct ServeOptions {
  ServiceOptions service;
  std::string token_file;
};

/// The file without the end of its line.
Result<std::string> read_token(const std::string& path) {
  const auto bytes = read_file(path, "--token-file");
  if (!bytes) return bytes.error();
  std::string token(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  while (token.ends_with('\n') || token.ends_with('\r')) token.pop_back();
  if (!token.empty() && token.find('\n') == std::string::npos) return token;
  return Error{ErrorCode::bad_argument, "--token-file", path, "a file of one line", ""};
}

/// The signals that end the command, held back in this thread and in those that it starts.
sigset_t hold_back_ending_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

ExitCode run_serve(ServeOptions options) {
  if (!options.token_file.empty()) {
    auto token = read_token(options.token_file);
    if (!token) return report_error(token.error(), false);
    options.service.token = *std::move(token);
  }
  const sigset_t signals = hold_back_ending_signals();
  const auto service = CompileService::start(options.service);
  if (!service) return report_error(service.error(), false);
  std::printf("listening at %s\n", service->address().c_str());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&signals, &signal);
  std::printf("stopping\n");
  return ExitCode::ok;
}

}  // namespace

void add_serve(CLI::App& application, ChosenCommand& chosen) {
  CLI::App* command =
      application.add_subcommand("serve", "Compile kernels for other processes (FLASHSPAN_SERVICE); no GPU needed");
  auto options = std::make_shared<ServeOptions>();
  ServiceOptions& service = options->service;
  command->add_option("--listen", service.address, "unix:/path (for this user alone) or http://host:port")
      ->required()
      ->type_name("ADDRESS");
  command
      ->add_option("--token-file", options->token_file,
                   "What clients must know, for http://; default: FLASHSPAN_SERVICE_TOKEN")
      ->type_name("FILE");
  command->add_option("--threads", service.compile_threads, "Kernels compiled at a time (default: one a core)")
      ->check(CLI::Range(1, 1024));
  command->add_option("--connections", service.connections, "Clients at a time; others wait")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command->add_option("--shared-store", service.shared_store, "Store of many machines; default: FLASHSPAN_SHARED_STORE")
      ->type_name("URL");
  command
      ->add_option("--signing-key-file", service.signing_key_file,
                   "Secret that answers are signed with; default: FLASHSPAN_SIGNING_KEY_FILE")
      ->type_name("FILE");
  add_cache_dir_option(*command, service.cache_dir);
  command->callback([options, &chosen] { chosen = [options] { return run_serve(*options); }; });
}

}  // namespace flashspan::tool
