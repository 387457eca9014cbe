#include "cache/shared_store.hpp"

#include <utility>

namespace flashspan::cache {

std::string blob_name(const KernelKey& key) {
  const std::string text = key.to_text();
  return text + std::string(text.size(), '0');
}

SharedStore::SharedStore(std::unique_ptr<BlobStore> blobs, Signer signer, LogSink log,
                         std::chrono::milliseconds pause_after_failure)
    : blobs_(std::move(blobs)), signer_(std::move(signer)), log_(std::move(log)), pause_(pause_after_failure) {}

std::optional<Entry> SharedStore::read(const KernelKey& key) {
  if (is_paused()) return std::nullopt;
  const auto found = blobs_->get(blob_name(key));
  note(found ? Result<void>() : found.error());
  if (!found || !*found) return std::nullopt;
  std::string why;
  auto entry = decode_signed(key, **found, signer_, &why);
  if (!entry) log(LogLevel::warning, blobs_->address() + ", key " + key.to_text() + ": refused, " + why);
  return entry;
}

void SharedStore::write(const KernelKey& key, const Entry& entry) {
  if (is_paused()) return;
  note(blobs_->put(blob_name(key), encode_signed(key, entry, signer_)));
}

bool SharedStore::is_paused() {
  const std::scoped_lock lock(mutex_);
  return paused_until_ && std::chrono::steady_clock::now() < *paused_until_;
}

void SharedStore::note(const Result<void>& outcome) {
  bool was_down = false;
  {
    const std::scoped_lock lock(mutex_);
    was_down = paused_until_.has_value();
    paused_until_.reset();
    if (!outcome) paused_until_ = std::chrono::steady_clock::now() + pause_;
  }
  if (!outcome && !was_down) {
    log(LogLevel::warning, blobs_->address() + " does not serve, going on without it: " + outcome.error().message());
  }
  if (outcome && was_down) log(LogLevel::info, blobs_->address() + " serves again");
}

void SharedStore::log(LogLevel level, const std::string& line) const {
  if (log_) log_(level, "shared store: " + line);
}

}  // namespace flashspan::cache
