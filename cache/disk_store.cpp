// disk_store.cpp -- publish by rename, check every read, and tell a content error (set aside) from an I/O error
// (leave alone).
#include "cache/disk_store.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <system_error>
#include <tuple>

#include "cache/whole_file.hpp"

namespace flashspan::cache {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view entry_suffix = ".fse";
constexpr std::string_view temporary_prefix = ".tmp-";
constexpr const char* damaged_folder = "damaged";
constexpr const char* building_folder = "building";
constexpr std::int64_t stamp_after_seconds = 3600;
constexpr std::int64_t temporary_lifetime_seconds = 3600;
constexpr std::int64_t failed_lifetime_seconds = 7 * 24 * 3600;
constexpr std::size_t shard_digits = 2;

/// The file is not there, or a network file system is changing it under us: nothing worth a word.
bool is_plain_miss(int error) { return error == ENOENT || error == ENOTDIR || error == ESTALE || error == EBUSY; }

/// Errors that will not go away in the life of a process.
bool is_read_only(int error) { return error == EACCES || error == EPERM || error == EROFS; }

/// The key that a path <shard>/<rest>.fse stands for.
std::optional<KernelKey> key_of(const fs::path& path) {
  if (path.extension() != entry_suffix) return std::nullopt;
  return KernelKey::from_text(path.parent_path().filename().string() + path.stem().string());
}

bool is_shard(const fs::directory_entry& item) {
  const std::string name = item.path().filename().string();
  return name.size() == shard_digits && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// Calls `visit` with the path of every item of a directory; what vanishes meanwhile is passed over.
template <typename Visit>
void for_each_item(const fs::path& directory, const Visit& visit) {
  std::error_code error;
  fs::directory_iterator items(directory, fs::directory_options::skip_permission_denied, error);
  for (; !error && items != fs::directory_iterator(); items.increment(error)) visit(*items);
}

template <typename Visit>
void for_each_file_in_shards(const fs::path& directory, const Visit& visit) {
  for_each_item(directory, [&visit](const fs::directory_entry& shard) {
    if (!is_shard(shard)) return;
    for_each_item(shard.path(), [&visit](const fs::directory_entry& file) { visit(file.path()); });
  });
}

/// The entries to remove under `limits`: the old ones, then the least recently used ones.
std::vector<StoredEntry> choose_victims(std::vector<StoredEntry> entries, const DiskStore::PruneLimits& limits) {
  std::sort(entries.begin(), entries.end(), [](const StoredEntry& a, const StoredEntry& b) {
    return std::tie(a.modified_unix_seconds, a.key) < std::tie(b.modified_unix_seconds, b.key);
  });
  std::int64_t total = 0;
  for (const StoredEntry& entry : entries) total += entry.bytes;
  std::vector<StoredEntry> victims;
  for (StoredEntry& entry : entries) {
    const bool old = limits.older_than_unix_seconds && entry.modified_unix_seconds < *limits.older_than_unix_seconds;
    const bool over = limits.max_bytes && total > *limits.max_bytes;
    if (!old && !over) break;  // both conditions only weaken along the order
    total -= entry.bytes;
    victims.push_back(std::move(entry));
  }
  return victims;
}

}  // namespace

fs::path entry_path(const fs::path& directory, const KernelKey& key) {
  const std::string text = key.to_text();
  return directory / text.substr(0, shard_digits) / text.substr(shard_digits).append(entry_suffix);
}

struct DiskStore::Latches {
  std::atomic<bool> writable{true};
  std::atomic<bool> last_write_failed{false};
  std::atomic<bool> warned_of_read_error{false};
};

DiskStore::DiskStore(fs::path directory, LogSink log, std::chrono::milliseconds longest_turn)
    : directory_(std::move(directory)),
      log_(std::move(log)),
      longest_turn_(longest_turn),
      latches_(std::make_unique<Latches>()) {}
DiskStore::DiskStore(DiskStore&& other) noexcept = default;
DiskStore& DiskStore::operator=(DiskStore&& other) noexcept = default;
DiskStore::~DiskStore() = default;

fs::path DiskStore::shard_of(const KernelKey& key) const { return directory_ / key.to_text().substr(0, shard_digits); }

void DiskStore::warn(const std::string& line) const {
  if (log_) log_(LogLevel::warning, line);
}

std::optional<Entry> DiskStore::read(const KernelKey& key) {
  const fs::path path = path_of(key);
  FileContents file;
  const int error = read_file(path, largest_entry_bytes, stamp_after_seconds, file);
  if (error != 0 && error != EFBIG) {
    // Says nothing about the contents, so it must not cost anyone the file.
    if (!is_plain_miss(error) && !latches_->warned_of_read_error.exchange(true)) {
      warn("cache: cannot read " + path.string() + ": " + error_text(error));
    }
    return std::nullopt;
  }
  std::string why = "larger than any entry";
  std::optional<Entry> entry;
  if (error == 0) entry = decode(key, file.bytes, &why);
  if (!entry) {
    // Another process may have published a sound file since we opened this one.
    struct stat now{};
    const bool same = ::stat(path.c_str(), &now) == 0 && now.st_ino == file.status.st_ino &&
                      now.st_dev == file.status.st_dev && now.st_mtime == file.status.st_mtime;
    if (same) set_aside(key, why);
  }
  return entry;
}

void DiskStore::set_aside(const KernelKey& key, const std::string& reason) {
  const fs::path path = path_of(key);
  const fs::path folder = directory_ / damaged_folder;
  const fs::path target = folder / key.to_text().append(entry_suffix);
  int error = create_directory_like(folder, directory_);
  if (error == 0 && std::rename(path.c_str(), target.c_str()) != 0) error = errno;
  if (is_plain_miss(error)) return;
  warn("cache: " + path.string() + ": " + reason +
       (error == 0 ? "; moved to " + target.string() : "; cannot move it aside: " + error_text(error)));
}

/// One attempt: 0 or errno. Leaves no temporary file behind.
int DiskStore::publish(const KernelKey& key, std::span<const std::byte> bytes) const {
  const fs::path shard = shard_of(key);
  if (const int error = create_private_directories(directory_); error != 0) return error;
  if (const int error = create_directory_like(shard, directory_); error != 0) return error;
  return publish_file(path_of(key), bytes, Permissions::of_directory);
}

Result<void> DiskStore::write(const KernelKey& key, const Entry& entry) {
  const auto failure = [this](const std::string& got, std::string detail) {
    return Error{ErrorCode::io_error, "cache directory", directory_.string() + ": " + got,
                 "a writable folder with free space", std::move(detail)};
  };
  if (!latches_->writable) return failure("not writable", {});
  const std::vector<std::byte> bytes = encode(key, entry);
  if (static_cast<std::int64_t>(bytes.size()) > largest_entry_bytes) {
    return failure("entry of " + std::to_string(bytes.size()) + " bytes", "larger than any entry may be");
  }
  constexpr int attempts = 3;  // the directory may be deleted while we write into it
  int error = ENOENT;
  for (int attempt = 0; attempt < attempts && error == ENOENT; ++attempt) error = publish(key, bytes);
  latches_->last_write_failed = error != 0;
  if (error == 0) return {};
  if (is_read_only(error)) latches_->writable = false;
  return failure(error_text(error), {});
}

std::unique_ptr<BuildTurn> DiskStore::take_turn(const KernelKey& key) {
  if (!latches_->writable || latches_->last_write_failed) return nullptr;
  const fs::path folder = directory_ / building_folder;
  if (create_private_directories(directory_) != 0 || create_directory_like(folder, directory_) != 0) return nullptr;
  auto turn = std::make_unique<BuildTurn>(folder / key.to_text(), longest_turn_);
  if (turn->wait() == BuildTurn::Wait::too_long) {
    warn("cache: another process is still building " + key.to_text() + ", building it here too");
  }
  return turn;
}

std::vector<StoredEntry> DiskStore::list() {
  std::vector<StoredEntry> entries;
  for_each_file_in_shards(directory_, [&entries](const fs::path& path) {
    const std::optional<KernelKey> key = key_of(path);
    if (!key) return;
    FileContents file;
    const int error = read_file(path, largest_entry_bytes, -1, file);
    if (is_plain_miss(error)) return;
    StoredEntry listed{*key, file.status.st_size, file.status.st_mtime, {}, false, {}};
    std::optional<Entry> entry;
    if (error == 0) entry = decode(*key, file.bytes, &listed.damage);
    if (error != 0) listed.damage = error_text(error);
    listed.valid = entry.has_value();
    if (entry) listed.metadata = std::move(entry->metadata);
    entries.push_back(std::move(listed));
  });
  std::sort(entries.begin(), entries.end(), [](const StoredEntry& a, const StoredEntry& b) { return a.key < b.key; });
  return entries;
}

std::vector<StoredEntry> DiskStore::prune(const PruneLimits& limits) {
  sweep();
  std::vector<StoredEntry> victims = choose_victims(list(), limits);
  std::erase_if(victims, [this](const StoredEntry& entry) { return ::unlink(path_of(entry.key).c_str()) != 0; });
  return victims;
}

void DiskStore::sweep() const {
  const std::int64_t now = std::time(nullptr);
  const auto remove_if_older = [now](const fs::path& path, std::int64_t seconds) {
    struct stat status{};
    if (::lstat(path.c_str(), &status) == 0 && now - status.st_mtime > seconds) ::unlink(path.c_str());
  };
  for_each_file_in_shards(directory_, [&](const fs::path& path) {
    if (path.filename().string().starts_with(temporary_prefix)) remove_if_older(path, temporary_lifetime_seconds);
  });
  for_each_item(directory_ / failed_folder,
                [&](const fs::directory_entry& item) { remove_if_older(item.path(), failed_lifetime_seconds); });
  remove_old_turns(directory_ / building_folder);
  for_each_item(directory_ / damaged_folder, [](const fs::directory_entry& item) { ::unlink(item.path().c_str()); });
}

}  // namespace flashspan::cache
