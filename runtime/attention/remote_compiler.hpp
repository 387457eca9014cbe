// remote_compiler.hpp -- RemoteCompiler: somebody else who may have a kernel, or compiles it.
#pragma once

#include <optional>
#include <vector>

#include "cache/entry_file.hpp"
#include "cache/kernel_key.hpp"
#include "codegen/kernel/kernel_spec.hpp"
#include "runtime/attention/user_text.hpp"

namespace flashspan::attention {

/// A kernel that is wanted. No source: whoever compiles makes it from the spec.
struct RemoteRequest {
  kernel::KernelSpec spec;
  cache::KernelKey key;  ///< that the entry must have
  OwnedText text;        ///< the user's, for messages
  /// `key` is an alias (KernelMetadata::alias): another version of the compiler serves too.
  bool by_alias = false;
};

/// Thread-safe. No failure is an error: whoever asks compiles for itself then, and the log has said why.
class RemoteCompiler {
 public:
  RemoteCompiler() = default;
  RemoteCompiler(const RemoteCompiler&) = delete;
  RemoteCompiler& operator=(const RemoteCompiler&) = delete;
  virtual ~RemoteCompiler() = default;

  /// The entry, checked. Waits for a compile.
  [[nodiscard]] virtual std::optional<cache::Entry> fetch(const RemoteRequest& request) = 0;
  /// Has kernels compiled that fetch() will be called for. Waits for none of them.
  virtual void prefetch(const std::vector<RemoteRequest>& requests) = 0;
};

}  // namespace flashspan::attention
