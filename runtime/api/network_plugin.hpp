// network_plugin.hpp -- the network, once something asks for it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cache/shared_store.hpp"
#include "flashspan/core/error.hpp"
#include "flashspan/core/log.hpp"
#include "flashspan/core/types.hpp"
#include "network/network.hpp"
#include "runtime/api/settings.hpp"
#include "runtime/attention/remote_compiler.hpp"

namespace flashspan::api {

/// The plug-in, opened. Error: missing_component, with every file tried and the command that installs it.
[[nodiscard]] Result<std::shared_ptr<network::Network>> open_network(const Settings& settings);

/// What a process may ask of others: what was chosen, else what the environment says; "": nobody.
struct RemoteChoice {
  std::optional<std::string> service, service_token, shared_store, signing_key_file;
};

/// Signs with the secret in the file that the choice or the environment names; empty if they name none.
/// Error: io_error; bad_argument, for a secret of less than 16 bytes; missing_component; unsupported, where libcrypto
/// refuses to sign.
[[nodiscard]] Result<cache::Signer> open_signer(const RemoteChoice& choice, const Settings& settings);
/// For kernels of this kind of device. Null if no service is asked for, and for the CPU, whose kernels depend on the
/// machine that compiles them; and, after a warning, if the plug-in is missing: a service is there for speed. Error:
/// bad_argument for an address that does not read, and as open_signer().
[[nodiscard]] Result<std::shared_ptr<attention::RemoteCompiler>> open_service(const RemoteChoice& choice,
                                                                              const Settings& settings, DeviceKind kind,
                                                                              const LogSink& log);
/// Null if none is asked for, and, after a warning, if the plug-in is missing. Error: as open_service().
[[nodiscard]] Result<std::unique_ptr<cache::SharedStore>> open_shared_store(const RemoteChoice& choice,
                                                                            const Settings& settings,
                                                                            const LogSink& log);

}  // namespace flashspan::api
