#include "cache/layers.hpp"

#include <cstdint>
#include <string>
#include <system_error>

#include "cache/bundle_file.hpp"
#include "cache/disk_store.hpp"
#include "cache/whole_file.hpp"

namespace flashspan::cache {
namespace {

void warn(const LogSink& log, const std::string& line) {
  if (log) log(LogLevel::warning, "cache: " + line);
}

class FolderLayer final : public Layer {
 public:
  FolderLayer(std::filesystem::path folder, LogSink log) : folder_(std::move(folder)), log_(std::move(log)) {}

  [[nodiscard]] std::optional<Entry> read(const KernelKey& key) override {
    constexpr std::int64_t never = -1;
    const std::filesystem::path path = entry_path(folder_, key);
    FileContents file;
    if (read_file(path, largest_entry_bytes, never, file) != 0) return std::nullopt;
    std::string why;
    auto entry = decode(key, file.bytes, &why);
    if (!entry) warn(log_, path.string() + ": " + why);
    return entry;
  }

 private:
  std::filesystem::path folder_;
  LogSink log_;
};

class BundleLayer final : public Layer {
 public:
  BundleLayer(BundleFile bundle, std::string name, LogSink log)
      : bundle_(std::move(bundle)), name_(std::move(name)), log_(std::move(log)) {}

  [[nodiscard]] std::optional<Entry> read(const KernelKey& key) override {
    const BundleFile::Item* const item = bundle_.find(key);
    return item == nullptr ? std::nullopt : read(*item);
  }

  [[nodiscard]] std::optional<std::pair<KernelKey, Entry>> read_alias(const KernelKey& alias,
                                                                      const KeyTest& is_barred) override {
    for (const BundleFile::Item* const item : bundle_.find_alias(alias)) {
      if (is_barred(item->key)) continue;
      if (auto entry = read(*item)) return std::pair{item->key, *std::move(entry)};
    }
    return std::nullopt;
  }

 private:
  [[nodiscard]] std::optional<Entry> read(const BundleFile::Item& item) {
    std::string why;
    auto entry = bundle_.read(item, &why);
    if (!entry) warn(log_, name_ + ", key " + item.key.to_text() + ": " + why);
    return entry;
  }

  BundleFile bundle_;
  std::string name_;
  LogSink log_;
};

}  // namespace

std::vector<std::unique_ptr<Layer>> open_layers(const std::vector<std::filesystem::path>& paths, const LogSink& log) {
  std::vector<std::unique_ptr<Layer>> layers;
  for (const std::filesystem::path& path : paths) {
    std::error_code failed;
    if (std::filesystem::is_directory(path, failed)) {
      layers.push_back(std::make_unique<FolderLayer>(path, log));
      continue;
    }
    auto bundle = BundleFile::open(path);
    if (!bundle) {
      warn(log, bundle.error().message());
      continue;
    }
    layers.push_back(std::make_unique<BundleLayer>(*std::move(bundle), path.string(), log));
  }
  return layers;
}

}  // namespace flashspan::cache
