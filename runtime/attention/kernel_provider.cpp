// kernel_provider.cpp -- the cold path in five steps (text, key, cache, compile, load) behind one warm map.
#include "runtime/attention/kernel_provider.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>

#include "codegen/kernel/emit_cuda.hpp"
#include "codegen/kernel/emit_llvm.hpp"
#include "codegen/kernel/tile_config.hpp"

namespace flashspan::attention {

namespace {

/// Everything that decides the compiler's output, in a fixed order. Names of files are parts too, so that moving text
/// from one file to another is a different key.
cache::KernelKey key_of(const kernel::SourceText& source, const std::vector<std::string>& options,
                        const std::string& compiler, const std::string& target) {
  const std::string version = std::to_string(cache::entry_format_version);
  std::vector<std::string_view> parts{version, compiler, target, "options"};
  parts.insert(parts.end(), options.begin(), options.end());
  for (const kernel::ProgramText& program : source.programs) {
    parts.insert(parts.end(), {"program", program.main, "entry points"});
    parts.insert(parts.end(), program.entry_points.begin(), program.entry_points.end());
  }
  parts.emplace_back("files");
  for (const kernel::SourceFile& file : source.files) parts.insert(parts.end(), {file.name, file.text});
  return cache::KernelKey::of(parts);
}

/// In the place of a compiler in the alias of an entry.
constexpr const char* any_compiler = "any compiler";

std::int64_t unix_seconds_now() {
  using namespace std::chrono;
  return duration_cast<seconds>(system_clock::now().time_since_epoch()).count();
}

std::string expression_lines(const UserText& text) {
  return "expression: " + *text.mask + (text.score != nullptr ? "\nscore: " + *text.score : "");
}

/// Whether another kernel serves in place of one that failed so.
bool has_fallback(const Error& error, const kernel::KernelSpec& spec) {
  return error.code == ErrorCode::kernel_spills && kernel::fallback_of(spec);
}

Error not_prepared(const kernel::KernelSpec& spec, const UserText& text, const char* state) {
  return Error{ErrorCode::not_prepared, "kernel", spec.summary() + ", " + state,
               "a kernel that prepare() was called for, or that is in the cache: this Attention is frozen",
               expression_lines(text)};
}

/// Whether it is the binary that the device does not take: out of memory, say, it would take no other one either.
bool is_of_the_binary(const Error& of_load) { return of_load.code == ErrorCode::unsupported; }

Error load_error(Error error, const std::string& line) {
  error.code = ErrorCode::device_error;
  error.detail += (error.detail.empty() ? "" : "\n") + line;
  return error;
}

/// Of a compile whose result must not be kept under its key. Its user sees what comes of the next attempt.
Error compiler_changed(const std::string& expected) {
  return Error{ErrorCode::missing_component, "compiler", "another one", expected, ""};
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

std::string milliseconds_text(double milliseconds) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.1f", milliseconds);
  return buffer.data();
}

}  // namespace

Result<kernel::SourceText> emit(kernel::Language language, const kernel::KernelSpec& spec) {
  switch (language) {
    case kernel::Language::cuda:
      return kernel::emit_cuda(spec);
    case kernel::Language::llvm_ir:
      return kernel::emit_llvm(spec);
  }
  return Error{ErrorCode::unsupported, "language", "", "", ""};
}

std::shared_ptr<const ReadyKernel> KernelProvider::find(const kernel::KernelSpec& spec) {
  const std::shared_lock lock(mutex_);
  const auto found = ready_.find(spec);
  if (found == ready_.end()) return nullptr;
  // Written only when it changes, so that threads on their warm paths share the line.
  const std::uint64_t now = clock_.load(std::memory_order_relaxed);
  std::atomic<std::uint64_t>& last_use = found->second.last_use;
  if (last_use.load(std::memory_order_relaxed) != now) last_use.store(now, std::memory_order_relaxed);
  return found->second.ready;
}

std::vector<kernel::KernelSpec> KernelProvider::loaded_specs() {
  const std::shared_lock lock(mutex_);
  std::vector<kernel::KernelSpec> specs;
  specs.reserve(ready_.size());
  for (const auto& [spec, entry] : ready_) specs.push_back(spec);
  return specs;
}

Result<KernelProvider::Provided> KernelProvider::get(const kernel::KernelSpec& spec, const UserText& text,
                                                     MissPolicy on_miss) {
  if (auto warm = find(spec)) return Provided{std::move(warm), true};
  const bool compiles = on_miss != MissPolicy::refuse;
  std::promise<Outcome> promise;
  std::optional<Flight> someone_elses;
  std::vector<std::shared_ptr<const ReadyKernel>> evicted;
  Stay stay = Stay::for_good;
  {
    const std::unique_lock lock(mutex_);
    if (const auto found = ready_.find(spec); found != ready_.end()) return Provided{found->second.ready, true};
    if (const auto found = in_flight_.find(spec); found != in_flight_.end()) {
      someone_elses = found->second;
    } else {
      evicted = evict();
      in_flight_.emplace(spec, Flight{promise.get_future().share(), compiles});
      // To follow a kernel's launches costs each of them something. So only the second half of the limit is followed
      // and can be evicted: programs with few kernels, which is most, pay nothing.
      if (ready_.size() + in_flight_.size() > options_.max_loaded / 2) stay = Stay::until_evicted;
    }
  }
  if (someone_elses) {
    if (someone_elses->compiles && !compiles) return not_prepared(spec, text, "which another thread is compiling");
    const Outcome& made = someone_elses->outcome.get();
    if (!made && made.error().code == ErrorCode::not_prepared && compiles) return get(spec, text, on_miss);
    if (!made) return made.error();
    return Provided{*made, false};
  }
  for (const auto& unloaded : evicted) options_.log(LogLevel::debug, "unloaded " + unloaded->metadata.summary);
  metrics().unloaded.add(evicted.size());
  evicted.clear();
  Outcome made = make_without_exceptions(spec, text, on_miss, stay);
  {
    const std::unique_lock lock(mutex_);
    if (made) ready_.try_emplace(spec, *made, ++clock_);
    in_flight_.erase(spec);
  }
  promise.set_value(made);
  if (!made) return made.error();
  return Provided{*made, false};
}

std::vector<std::shared_ptr<const ReadyKernel>> KernelProvider::evict() {
  std::vector<std::shared_ptr<const ReadyKernel>> evicted;
  const std::size_t wanted = ready_.size() + in_flight_.size() + 1;
  if (wanted <= options_.max_loaded) return evicted;
  std::vector<Kernels::iterator> by_use;
  for (auto entry = ready_.begin(); entry != ready_.end(); ++entry) by_use.push_back(entry);
  std::ranges::sort(by_use, {}, [](const Kernels::iterator& entry) { return entry->second.last_use.load(); });
  for (const Kernels::iterator& entry : by_use) {
    if (wanted - evicted.size() <= options_.max_loaded) break;
    // Whoever holds a kernel may launch it. Nobody can come to hold it while we have the lock, and the launches of
    // those who have let go of it are known to may_unload().
    const std::shared_ptr<const ReadyKernel>& ready = entry->second.ready;
    if (ready.use_count() > 1 || !ready->kernel->may_unload()) continue;
    evicted.push_back(ready);
    ready_.erase(entry);
  }
  return evicted;
}

KernelProvider::Outcome KernelProvider::make_without_exceptions(const kernel::KernelSpec& spec, const UserText& text,
                                                                MissPolicy on_miss, Stay stay) {
  // An exception (out of memory, a failing compiler library) must not leave the threads that wait with no answer.
  try {
    return make(spec, text, on_miss, stay);
  } catch (const std::exception& failure) {
    return Error{ErrorCode::compile_failed, "kernel", failure.what(), "a build without exceptions",
                 "spec: " + spec.summary()};
  }
}

KernelProvider::Outcome KernelProvider::make(const kernel::KernelSpec& spec, const UserText& text, MissPolicy on_miss,
                                             Stay stay) {
  auto built = build(spec, text, on_miss);
  if (!built) return built.error();
  auto loaded = load(*built);
  if (!loaded && is_of_the_binary(loaded.error())) {
    // An entry that the device refuses is as bad as a damaged one: rebuilt once, and only once.
    const Error refusal = loaded.error();
    cache_->discard(built->key, refusal.message());
    built = build(spec, text, on_miss);
    if (!built && built.error().code == ErrorCode::compile_failed) return built.error();
    if (!built) return load_error(refusal, "not made again: " + built.error().message());
    loaded = load(*built);
  }
  if (!loaded) return load_error(loaded.error(), "spec: " + spec.summary());
  if (stay == Stay::until_evicted) (*loaded)->follow_launches();
  return std::make_shared<const ReadyKernel>(
      ReadyKernel{std::move(*loaded), std::move(built->spec), built->key, built->outcome, std::move(built->metadata)});
}

Result<std::shared_ptr<backend::LoadedKernel>> KernelProvider::load(const BuiltKernel& built) {
  const auto start = std::chrono::steady_clock::now();
  auto loaded = backend_->load(built.entry->artifact, built.spec);
  if (loaded) metrics().load_milliseconds.observe(milliseconds_since(start));
  return loaded;
}

Result<BuiltKernel> KernelProvider::build(const kernel::KernelSpec& spec, const UserText& text, MissPolicy on_miss) {
  const auto start = std::chrono::steady_clock::now();
  auto built = build_with_fallback(spec, text, on_miss);
  if (built) metrics().provide_milliseconds.observe(milliseconds_since(start));
  return built;
}

Result<BuiltKernel> KernelProvider::build_with_fallback(const kernel::KernelSpec& spec, const UserText& text,
                                                        MissPolicy on_miss) {
  auto built = build_one(spec, text, on_miss);
  if (built || !has_fallback(built.error(), spec)) return built;
  const kernel::KernelSpec fallback = *kernel::fallback_of(spec);
  options_.log(LogLevel::warning, spec.summary() + ": " + built.error().got + "; " + fallback.summary() +
                                      " serves in its place, slower: mask or score take too many registers");
  return build_with_fallback(fallback, text, on_miss);
}

Result<backend::Binary> KernelProvider::compile_watched(const kernel::SourceText& source,
                                                        const kernel::KernelSpec& spec, const cache::KernelKey& key) {
  CompileEvent event{spec.summary(), key.to_text(), 0, std::nullopt};
  if (options_.hooks.before) options_.hooks.before(event);
  const auto start = std::chrono::steady_clock::now();
  auto binary = [&]() -> Result<backend::Binary> {
    try {
      return backend_->compile(source, spec);
    } catch (const std::exception& failure) {
      return Error{ErrorCode::compile_failed, "compiler", failure.what(), "a compile without exceptions", ""};
    }
  }();
  event.milliseconds = milliseconds_since(start);
  if (!binary) event.error = binary.error();
  metrics().compile_milliseconds.observe(event.milliseconds);
  (binary || has_fallback(binary.error(), spec) ? metrics().compiles : metrics().failed_compiles).add();
  if (options_.hooks.after) options_.hooks.after(event);
  return binary;
}

void KernelProvider::dump(const CompileDump& files, const cache::KernelKey& key) {
  if (!options_.dump_all || dump_compile(files, key.to_text(), {*options_.dump_all})) return;
  if (!dump_warned_.exchange(true)) warn("FLASHSPAN_DUMP_DIR: cannot write to " + options_.dump_all->string());
}

Result<cache::Entry> KernelProvider::compile(const kernel::KernelSpec& spec, const Recipe& recipe) {
  KernelMetadata metadata{spec.to_text(),
                          spec.summary(),
                          recipe.target,
                          recipe.compiler,
                          recipe.options,
                          recipe.alias ? recipe.alias->to_text() : "",
                          {},
                          0,
                          {}};
  auto binary = compile_watched(recipe.source, spec, recipe.key);
  if (const auto compiler = backend_->compiler_description()) metadata.compiler = *compiler;
  metadata.created_unix_seconds = unix_seconds_now();
  if (!binary) {
    if (!has_fallback(binary.error(), spec)) return binary.error();
    dump({recipe.source, spec, binary.error().detail}, recipe.key);
    metadata.does_not_fit = binary.error().got;
    return cache::Entry{to_text(metadata), {}};
  }
  dump({recipe.source, spec, binary->report.log, binary->modules}, recipe.key);
  metadata.report = std::move(binary->report);
  return cache::Entry{to_text(metadata), binary->bytes()};
}

Result<void> KernelProvider::write_recipe(const kernel::KernelSpec& spec, Recipe& recipe) {
  auto source = emit(backend_->language(), spec);
  if (!source) return source.error();
  recipe.source = *std::move(source);
  recipe.target = kernel::to_string(spec.target);
  recipe.options = backend_->compile_options(spec);
  if (backend_->takes_binaries_of_other_compilers()) {
    recipe.alias = attention::key_of(recipe.source, recipe.options, any_compiler, recipe.target);
  }
  const auto compiler = backend_->compiler_identity();
  if (!compiler) return compiler.error();
  recipe.compiler = *compiler;
  recipe.key = attention::key_of(recipe.source, recipe.options, recipe.compiler, recipe.target);
  return {};
}

Result<KernelProvider::Names> KernelProvider::names_of(const kernel::KernelSpec& spec) {
  Recipe recipe;
  if (auto written = write_recipe(spec, recipe); !written) return written.error();
  return Names{recipe.key, recipe.alias};
}

Result<BuiltKernel> KernelProvider::build_one(const kernel::KernelSpec& spec, const UserText& text,
                                              MissPolicy on_miss) {
  Recipe recipe;
  const auto written = write_recipe(spec, recipe);
  BuiltKernel built;
  built.spec = spec;
  const bool any_compiler_serves = options_.accept_other_compilers && recipe.alias;
  if (!written) {
    // A machine without a compiler has what was shipped to it, and what a service compiles for it.
    if (!any_compiler_serves) return written.error();
    auto found = find_alias(*recipe.alias, built.key);
    if (!found && on_miss != MissPolicy::refuse) found = fetch_by_alias(spec, text, *recipe.alias, built.key);
    return found ? finish(std::move(built), *found) : written.error();
  }
  built.key = recipe.key;
  const auto fetcher = [&]() -> std::optional<cache::Entry> {
    if (on_miss == MissPolicy::warn) {
      options_.log(LogLevel::warning,
                   "frozen, but compiling inside a call: " + spec.summary() + "; " + expression_lines(text));
    }
    if (any_compiler_serves) return std::nullopt;  // was counted, and asked for, before
    metrics().misses.add();
    if (cache_->is_discarded(recipe.key)) return std::nullopt;  // it would be the same again
    return fetch({spec, recipe.key, OwnedText(text)});
  };
  const auto builder = [&]() -> Result<cache::Entry> {
    auto entry = compile(spec, recipe);
    if (!is_named_rightly(recipe)) return compiler_changed(recipe.compiler);
    if (!entry) return explain_failure(entry.error(), recipe.source, spec, recipe.key, text);
    return entry;
  };
  std::optional<cache::KernelCache::Found> found;
  if (any_compiler_serves || on_miss == MissPolicy::refuse) found = cache_->find(built.key);
  if (!found && any_compiler_serves) found = find_alias(*recipe.alias, built.key);
  if (!found && any_compiler_serves && on_miss != MissPolicy::refuse) {
    found = fetch_by_alias(spec, text, *recipe.alias, built.key);
  }
  if (found) return finish(std::move(built), *found);
  if (on_miss == MissPolicy::refuse) {
    metrics().misses.add();
    metrics().refused.add();
    options_.log(LogLevel::warning, "not prepared: " + spec.summary() + ", key " + built.key.to_text());
    return not_prepared(spec, text, "which is not compiled");
  }
  auto made = cache_->get(built.key, builder, fetcher);
  if (!made && !is_named_rightly(recipe)) return build_one(spec, text, on_miss);
  if (!made) {
    options_.log(LogLevel::error, "compile failed: " + spec.summary() + ", key " + built.key.to_text());
    return made.error();
  }
  return finish(std::move(built), *made);
}

bool KernelProvider::is_named_rightly(const Recipe& recipe) const {
  const auto compiler = backend_->compiler_identity();
  return !compiler || *compiler == recipe.compiler;
}

std::optional<cache::Entry> KernelProvider::fetch(const RemoteRequest& request) {
  if (options_.service == nullptr) return std::nullopt;
  auto entry = options_.service->fetch(request);
  (entry ? metrics().service_answers : metrics().service_failures).add();
  return entry;
}

std::optional<cache::KernelCache::Found> KernelProvider::fetch_by_alias(const kernel::KernelSpec& spec,
                                                                        const UserText& text,
                                                                        const cache::KernelKey& alias,
                                                                        cache::KernelKey& key) {
  metrics().misses.add();
  if (cache_->is_discarded(alias)) return std::nullopt;  // it would be the same again
  auto remote = fetch({spec, alias, OwnedText(text), /*by_alias=*/true});
  if (!remote) return std::nullopt;
  const auto not_needed = []() -> Result<cache::Entry> {
    return Error{ErrorCode::compile_failed, "kernel", "none", "the one that was fetched", ""};
  };
  // Kept by the alias, by which it is looked for when the service is gone: the other key nobody here can tell.
  auto kept = cache_->get(alias, not_needed, [&] { return std::move(remote); });
  if (!kept) return std::nullopt;
  key = alias;
  return *std::move(kept);
}

void KernelProvider::prefetch(const std::vector<WantedKernel>& kernels) {
  if (options_.service == nullptr) return;
  std::vector<RemoteRequest> requests;
  for (const WantedKernel& wanted : kernels) {
    if (find(*wanted.spec)) continue;
    Recipe recipe;
    const bool compiles = write_recipe(*wanted.spec, recipe).has_value();
    const bool by_alias = options_.accept_other_compilers && recipe.alias;
    if (!compiles && !by_alias) continue;
    if (compiles && cache_->find(recipe.key)) continue;
    cache::KernelKey other;
    if (by_alias && find_alias(*recipe.alias, other)) continue;
    requests.push_back({*wanted.spec, by_alias ? *recipe.alias : recipe.key, OwnedText(wanted.text), by_alias});
  }
  if (!requests.empty()) options_.service->prefetch(requests);
}

std::optional<cache::KernelCache::Found> KernelProvider::find_alias(const cache::KernelKey& alias,
                                                                    cache::KernelKey& key) {
  if (auto fetched = cache_->find(alias)) {
    key = alias;
    return fetched;
  }
  auto other = cache_->find_alias(alias);
  if (!other) return std::nullopt;
  key = other->first;
  return std::move(other->second);
}

Result<BuiltKernel> KernelProvider::finish(BuiltKernel built, const cache::KernelCache::Found& found) const {
  built.entry = found.entry;
  built.outcome = found.outcome;
  metrics().kernels[found.outcome].add();
  metrics().kernel_bytes[found.outcome].add(found.entry->metadata.size() + found.entry->artifact.size());
  if (auto metadata = metadata_from_text(built.entry->metadata)) built.metadata = std::move(*metadata);
  if (!built.metadata.does_not_fit.empty()) {
    return Error{ErrorCode::kernel_spills, "kernel", built.metadata.does_not_fit, "", "spec: " + built.spec.summary()};
  }
  built.metadata.summary = built.spec.summary();
  log_build(built);
  return built;
}

Error KernelProvider::explain_failure(Error error, const kernel::SourceText& source, const kernel::KernelSpec& spec,
                                      const cache::KernelKey& key, const UserText& text) const {
  const auto dumped = dump_compile({source, spec, error.detail}, key.to_text(), options_.dump_directories);
  std::string context = expression_lines(text) + "\nspec: " + spec.summary();
  if (dumped) {
    context += "\nsource: " + dumped->source.string();
    context += "\nto repeat it: flashspan compile --spec '" + dumped->spec.string() + "'";
  } else {
    context += "\nsource: not kept, no directory could be written to";
  }
  error.detail = context + (error.detail.empty() ? "" : "\n" + error.detail);
  return error;
}

void KernelProvider::log_build(const BuiltKernel& built) const {
  int registers = 0;
  std::int64_t spill_bytes = 0;
  for (const backend::EntryReport& entry : built.metadata.report.entries) {
    registers = std::max(registers, entry.registers);
    spill_bytes += entry.spill_bytes;
  }
  const LogLevel level = built.outcome == cache::Outcome::built ? LogLevel::info : LogLevel::debug;
  options_.log(level, built.metadata.summary + ", key " + built.key.to_text() + ", " + cache::to_string(built.outcome) +
                          ", " + milliseconds_text(built.metadata.report.milliseconds) + " ms, " +
                          std::to_string(registers) + " registers, " + std::to_string(spill_bytes) + " spill bytes");
}

}  // namespace flashspan::attention
