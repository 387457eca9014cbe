// kernel_provider.hpp -- from a KernelSpec to its kernel on the device: a map read when warm; otherwise text, key,
// cache, compiler and loader, once per spec however many threads ask. Of the loaded kernels it keeps a limited number.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cache/kernel_cache.hpp"
#include "codegen/kernel/kernel_spec.hpp"
#include "codegen/kernel/source_text.hpp"
#include "flashspan/core/compile_hooks.hpp"
#include "flashspan/core/error.hpp"
#include "flashspan/core/log.hpp"
#include "flashspan/core/miss_policy.hpp"
#include "runtime/attention/compile_dump.hpp"
#include "runtime/attention/kernel_metadata.hpp"
#include "runtime/attention/metrics.hpp"
#include "runtime/attention/remote_compiler.hpp"
#include "runtime/attention/user_text.hpp"
#include "runtime/backend/backend.hpp"

namespace flashspan::attention {

/// A binary from the cache or the compiler, and what is known about it.
struct BuiltKernel {
  kernel::KernelSpec spec;  ///< the one asked for, or what serves in its place (kernel::fallback_of)
  cache::KernelKey key;
  std::shared_ptr<const cache::Entry> entry;
  cache::Outcome outcome = cache::Outcome::built;
  KernelMetadata metadata;
};

/// A kernel on the device. Never changes once it is made.
struct ReadyKernel {
  std::shared_ptr<backend::LoadedKernel> kernel;
  kernel::KernelSpec spec;  ///< as in BuiltKernel; launches are by this one
  cache::KernelKey key;
  cache::Outcome outcome = cache::Outcome::built;
  KernelMetadata metadata;
};

/// The text of a kernel in the language of a back end.
[[nodiscard]] Result<kernel::SourceText> emit(kernel::Language language, const kernel::KernelSpec& spec);

/// A module takes about 100 KB of device memory.
inline constexpr std::size_t default_max_loaded_kernels = 1024;

struct ProviderOptions {
  /// Where the source of a kernel that does not compile is kept, first choice first.
  std::vector<std::filesystem::path> dump_directories;
  LogSink log;
  /// Past it, the kernel least recently used makes room for a new one. Kernels that somebody holds, or that their
  /// device cannot give up yet, stay; only they can make it more.
  std::size_t max_loaded = default_max_loaded_kernels;
  /// Whether entries of bundles serve that another version of the compiler made.
  bool accept_other_compilers = false;
  std::optional<std::filesystem::path> dump_all =
      std::nullopt;  ///< where source, spec, log and binary of every compile are kept
  CompileHooks hooks = {};
  std::shared_ptr<Metrics> metrics = std::make_shared<Metrics>();
  std::shared_ptr<RemoteCompiler> service = nullptr;  ///< asked before anything is compiled here; null: nobody is
};

/// A kernel that is wanted, and the text of whoever wants it.
struct WantedKernel {
  const kernel::KernelSpec* spec = nullptr;
  UserText text;
};

class KernelProvider {
 public:
  struct Provided {
    std::shared_ptr<const ReadyKernel> ready;
    bool warm = false;  ///< it was on the device already
  };

  KernelProvider(std::shared_ptr<backend::Backend> backend, std::shared_ptr<cache::KernelCache> cache,
                 ProviderOptions options)
      : backend_(std::move(backend)), cache_(std::move(cache)), options_(std::move(options)) {}

  /// The kernel if it is on the device, else null.
  [[nodiscard]] std::shared_ptr<const ReadyKernel> find(const kernel::KernelSpec& spec);
  /// Those on the device now.
  [[nodiscard]] std::vector<kernel::KernelSpec> loaded_specs();
  /// A failure is not remembered: the next call tries again. With MissPolicy::refuse nothing is compiled, nor is
  /// anybody's compile waited for.
  /// Error: compile_failed (with expression, spec, log and dump path), kernel_spills, missing_component, device_error,
  /// not_prepared.
  [[nodiscard]] Result<Provided> get(const kernel::KernelSpec& spec, const UserText& text,
                                     MissPolicy on_miss = MissPolicy::compile);

  /// Has a service compile those kernels that are neither on the device nor in the cache. Waits for none.
  void prefetch(const std::vector<WantedKernel>& kernels);
  /// Under which names a kernel is kept.
  struct Names {
    cache::KernelKey key;                   ///< of the spec's text and this back end's compiler
    std::optional<cache::KernelKey> alias;  ///< whatever compiler made it; nothing if that has no meaning
  };
  /// Error: as build(), for what is wrong before a compile.
  [[nodiscard]] Result<Names> names_of(const kernel::KernelSpec& spec);

  void warn(const std::string& line) const { options_.log(LogLevel::warning, line); }
  [[nodiscard]] Metrics& metrics() const { return *options_.metrics; }

  /// Steps before the device: text, key, cache or compiler. For compiling ahead of time. Of a kernel that does not fit
  /// its registers, a warning is logged and the fallback is built; the cache remembers which those are.
  [[nodiscard]] Result<BuiltKernel> build(const kernel::KernelSpec& spec, const UserText& text,
                                          MissPolicy on_miss = MissPolicy::compile);

 private:
  using Outcome = Result<std::shared_ptr<const ReadyKernel>>;

  /// Whether a kernel is to stay for good, or is followed so that it can be unloaded.
  enum class Stay { for_good, until_evicted };
  struct Entry {
    Entry(std::shared_ptr<const ReadyKernel> kernel, std::uint64_t now) : ready(std::move(kernel)), last_use(now) {}
    std::shared_ptr<const ReadyKernel> ready;
    std::atomic<std::uint64_t> last_use;  ///< the time of its last get(), as clock_ counts
  };
  /// A kernel in the making, by the thread that asked first.
  struct Flight {
    std::shared_future<Outcome> outcome;
    bool compiles = true;  ///< false: that thread refuses to
  };
  using Kernels = std::unordered_map<kernel::KernelSpec, Entry, kernel::KernelSpecHash>;

  /// Takes kernels out of the map, least recently used first, until one more fits the limit beside those in it and in
  /// flight. `mutex_` is held; the caller destroys them after releasing it, since unloading takes time.
  [[nodiscard]] std::vector<std::shared_ptr<const ReadyKernel>> evict();
  [[nodiscard]] Outcome make_without_exceptions(const kernel::KernelSpec& spec, const UserText& text,
                                                MissPolicy on_miss, Stay stay);
  [[nodiscard]] Outcome make(const kernel::KernelSpec& spec, const UserText& text, MissPolicy on_miss, Stay stay);
  [[nodiscard]] Result<BuiltKernel> build_with_fallback(const kernel::KernelSpec& spec, const UserText& text,
                                                        MissPolicy on_miss);
  /// What is compiled, and under which names it is kept.
  struct Recipe {
    kernel::SourceText source;
    std::string target;
    std::string compiler;  ///< empty: there is none here
    std::vector<std::string> options;
    std::optional<cache::KernelKey> alias;
    cache::KernelKey key;
  };
  /// Error: missing_component, with the alias alone in `recipe`, if there is no compiler.
  [[nodiscard]] Result<void> write_recipe(const kernel::KernelSpec& spec, Recipe& recipe);
  /// Whether the back end's compiler is still the one that the recipe's key is made of.
  [[nodiscard]] bool is_named_rightly(const Recipe& recipe) const;
  [[nodiscard]] Result<BuiltKernel> build_one(const kernel::KernelSpec& spec, const UserText& text, MissPolicy on_miss);
  /// An entry of any compiler: one that was fetched and kept by the alias, or one of a bundle. `key` becomes that
  /// entry's.
  [[nodiscard]] std::optional<cache::KernelCache::Found> find_alias(const cache::KernelKey& alias,
                                                                    cache::KernelKey& key);
  /// What is known of a binary that was found. Error: kernel_spills, for a note that there is none.
  [[nodiscard]] Result<BuiltKernel> finish(BuiltKernel built, const cache::KernelCache::Found& found) const;
  [[nodiscard]] Result<std::shared_ptr<backend::LoadedKernel>> load(const BuiltKernel& built);
  /// The entry from the service, if there is one and it serves.
  [[nodiscard]] std::optional<cache::Entry> fetch(const RemoteRequest& request);
  /// The same for an entry of any compiler, which is then kept by the alias. `key` becomes that.
  [[nodiscard]] std::optional<cache::KernelCache::Found> fetch_by_alias(const kernel::KernelSpec& spec,
                                                                        const UserText& text,
                                                                        const cache::KernelKey& alias,
                                                                        cache::KernelKey& key);
  [[nodiscard]] Result<cache::Entry> compile(const kernel::KernelSpec& spec, const Recipe& recipe);
  /// The back end's compile() between the hooks, counted and dumped.
  [[nodiscard]] Result<backend::Binary> compile_watched(const kernel::SourceText& source,
                                                        const kernel::KernelSpec& spec, const cache::KernelKey& key);
  void dump(const CompileDump& files, const cache::KernelKey& key);
  [[nodiscard]] Error explain_failure(Error error, const kernel::SourceText& source, const kernel::KernelSpec& spec,
                                      const cache::KernelKey& key, const UserText& text) const;
  void log_build(const BuiltKernel& built) const;

  std::shared_ptr<backend::Backend> backend_;
  std::shared_ptr<cache::KernelCache> cache_;
  ProviderOptions options_;
  std::atomic<bool> dump_warned_ = false;  ///< only once

  /// Counts kernels made. Uses between two of them are not told apart, so that a warm call has nothing to count up.
  std::atomic<std::uint64_t> clock_ = 0;
  std::shared_mutex mutex_;  // guards the two maps
  Kernels ready_;
  std::unordered_map<kernel::KernelSpec, Flight, kernel::KernelSpecHash> in_flight_;
};

}  // namespace flashspan::attention
