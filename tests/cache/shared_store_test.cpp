// Entries that travel: signed, checked on arrival, and a store whose absence is one line.
#include "cache/shared_store.hpp"

#include <gmock/gmock.h>

#include <map>

#include "cache/kernel_cache.hpp"
#include "tests/cache/sample_entries.hpp"
#include "tests/cache/temporary_directory.hpp"

namespace flashspan::cache {
namespace {

using ::testing::HasSubstr;

/// A store in memory that can be down.
struct Blobs {
  std::map<std::string, std::vector<std::byte>> kept;
  bool down = false;
  int calls = 0;
};

class FakeBlobStore final : public BlobStore {
 public:
  explicit FakeBlobStore(Blobs& blobs) : blobs_(blobs) {}
  [[nodiscard]] std::string address() const override { return "fake://store"; }
  [[nodiscard]] Result<std::optional<std::vector<std::byte>>> get(const std::string& name) override {
    if (auto up = call(); !up) return up.error();
    const auto found = blobs_.kept.find(name);
    if (found == blobs_.kept.end()) return std::optional<std::vector<std::byte>>();
    return std::optional(found->second);
  }
  [[nodiscard]] Result<void> put(const std::string& name, std::span<const std::byte> bytes) override {
    if (auto up = call(); !up) return up;
    blobs_.kept[name] = {bytes.begin(), bytes.end()};
    return {};
  }

 private:
  Result<void> call() {
    ++blobs_.calls;
    if (blobs_.down) return Error{ErrorCode::io_error, "fake://store", "Connection refused", "a server", ""};
    return {};
  }
  Blobs& blobs_;
};

/// Not HMAC, but of its form: depends on every byte and on the secret.
Signer signer_of(std::byte secret) {
  return [secret](std::span<const std::byte> bytes) {
    AuthenticationCode code{};
    for (std::size_t i = 0; i < bytes.size(); ++i) code[i % code.size()] ^= bytes[i] ^ secret;
    return code;
  };
}

class Shared : public ::testing::Test {
 protected:
  SharedStore store(Signer signer = {}, std::chrono::milliseconds pause = std::chrono::hours(1)) {
    return SharedStore(std::make_unique<FakeBlobStore>(blobs_), std::move(signer), log_, pause);
  }
  std::vector<std::byte>& bytes_of(std::uint64_t number) { return blobs_.kept.at(blob_name(sample_key(number))); }

  Blobs blobs_;
  std::vector<std::string> lines_;
  LogSink log_ = [this](LogLevel, std::string_view line) { lines_.emplace_back(line); };
};

TEST_F(Shared, ANameHasTheLengthThatBazelRemoteTakes) {
  const std::string name = blob_name(sample_key(7));
  EXPECT_EQ(name.size(), 64U);
  EXPECT_TRUE(name.starts_with(sample_key(7).to_text()));
  EXPECT_EQ(name.find_first_not_of("0123456789abcdef"), std::string::npos);
}

TEST_F(Shared, GivesBackWhatWasWrittenSignedOrNot) {
  for (const Signer& signer : {Signer(), signer_of(std::byte{7})}) {
    SharedStore shared = store(signer);
    EXPECT_FALSE(shared.read(sample_key(2)).has_value());
    shared.write(sample_key(1), sample_entry(1));
    EXPECT_EQ(shared.read(sample_key(1)), sample_entry(1));
  }
  EXPECT_EQ(store().read(sample_key(1)), sample_entry(1)) << "without a secret, signed entries serve too";
  EXPECT_TRUE(lines_.empty());
}

TEST_F(Shared, AnUnsignedEntryIsTheFileThatACacheKeeps) {
  SharedStore shared = store();
  shared.write(sample_key(1), sample_entry(1));
  EXPECT_EQ(bytes_of(1), encode(sample_key(1), sample_entry(1)));
}

TEST_F(Shared, WithASecretPlantedEntriesAreRefused) {
  SharedStore strict = store(signer_of(std::byte{7}));
  store().write(sample_key(1), sample_entry(1));
  EXPECT_FALSE(strict.read(sample_key(1)).has_value());
  EXPECT_THAT(lines_.back(), HasSubstr("refused, not signed"));
  store(signer_of(std::byte{8})).write(sample_key(1), sample_entry(1));
  EXPECT_FALSE(strict.read(sample_key(1)).has_value());
  EXPECT_THAT(lines_.back(), HasSubstr("refused, signed with another secret, or changed since"));
  strict.write(sample_key(1), sample_entry(1));
  EXPECT_EQ(strict.read(sample_key(1)), sample_entry(1)) << "what this machine writes takes its place";
}

TEST_F(Shared, ASignatureIsOfOneKey) {
  SharedStore strict = store(signer_of(std::byte{7}));
  strict.write(sample_key(1), sample_entry(1));
  strict.write(sample_key(2), sample_entry(2));
  std::swap(bytes_of(1), bytes_of(2));
  EXPECT_FALSE(strict.read(sample_key(1)).has_value());
  EXPECT_THAT(lines_.back(), HasSubstr("holds the entry of another key"));
}

TEST_F(Shared, EveryFlippedBitAndEveryCutIsRefused) {
  const Entry entry = sample_entry(1, 300);
  for (const Signer& signer : {Signer(), signer_of(std::byte{7})}) {
    SharedStore shared = store(signer);
    shared.write(sample_key(1), entry);
    const std::vector<std::byte> sound = bytes_of(1);
    for (std::size_t i = 0; i < sound.size(); ++i) {
      bytes_of(1) = sound;
      bytes_of(1)[i] ^= std::byte{1};
      EXPECT_FALSE(shared.read(sample_key(1)).has_value()) << "byte " << i;
      bytes_of(1).assign(sound.begin(), sound.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_FALSE(shared.read(sample_key(1)).has_value()) << "cut at " << i;
    }
    bytes_of(1) = sound;
    EXPECT_EQ(shared.read(sample_key(1)), entry);
  }
}

TEST_F(Shared, AStoreThatIsDownCostsOneLineAndIsLeftAloneForAWhile) {
  blobs_.down = true;
  SharedStore shared = store();
  for (std::uint64_t number = 0; number < 10; ++number) {
    EXPECT_FALSE(shared.read(sample_key(number)).has_value());
    shared.write(sample_key(number), sample_entry(number));
  }
  ASSERT_EQ(lines_.size(), 1U);
  EXPECT_THAT(lines_.front(), HasSubstr("fake://store does not serve, going on without it"));
  EXPECT_THAT(lines_.front(), HasSubstr("Connection refused"));
  EXPECT_EQ(blobs_.calls, 1);
}

TEST_F(Shared, AStoreThatComesBackServesAgain) {
  blobs_.down = true;
  SharedStore shared = store({}, std::chrono::milliseconds(0));
  shared.write(sample_key(1), sample_entry(1));
  shared.write(sample_key(1), sample_entry(1));
  EXPECT_EQ(lines_.size(), 1U) << "a longer outage is one line too";
  blobs_.down = false;
  shared.write(sample_key(1), sample_entry(1));
  EXPECT_EQ(shared.read(sample_key(1)), sample_entry(1));
  ASSERT_EQ(lines_.size(), 2U);
  EXPECT_THAT(lines_.back(), HasSubstr("serves again"));
}

class CacheOverShared : public Shared {
 protected:
  KernelCache cache() {
    return KernelCache(DiskStore(directory_.path(), log_), 1 << 20, log_, {},
                       std::make_unique<SharedStore>(std::make_unique<FakeBlobStore>(blobs_), Signer(), log_));
  }
  static Result<Entry> must_not_build() {
    ADD_FAILURE() << "built, though a store has it";
    return sample_entry(1);
  }
  TemporaryDirectory directory_;
};

TEST_F(CacheOverShared, WhatOneMachineBuildsTheNextOneFindsAndKeepsOnItsDisk) {
  EXPECT_EQ(cache().get(sample_key(1), [] { return Result<Entry>(sample_entry(1)); })->outcome, Outcome::built);
  TemporaryDirectory other;
  const auto elsewhere = [&] {
    return KernelCache(DiskStore(other.path(), log_), 1 << 20, log_, {},
                       std::make_unique<SharedStore>(std::make_unique<FakeBlobStore>(blobs_), Signer(), log_));
  };
  const auto found = elsewhere().get(sample_key(1), must_not_build);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->outcome, Outcome::shared);
  EXPECT_EQ(*found->entry, sample_entry(1));
  blobs_.down = true;
  EXPECT_EQ(elsewhere().get(sample_key(1), must_not_build)->outcome, Outcome::disk);
}

TEST_F(CacheOverShared, FindAsksNoOtherMachine) {
  store().write(sample_key(1), sample_entry(1));
  blobs_.calls = 0;
  KernelCache local = cache();
  EXPECT_FALSE(local.find(sample_key(1)).has_value());
  EXPECT_EQ(blobs_.calls, 0);
}

TEST_F(CacheOverShared, AnEntryThatADeviceRefusedIsBuiltAndPutInPlaceOfTheOldOne) {
  store().write(sample_key(1), sample_entry(1));
  KernelCache local = cache();
  ASSERT_EQ(local.get(sample_key(1), must_not_build)->outcome, Outcome::shared);
  local.discard(sample_key(1), "refused by the device");
  EXPECT_EQ(local.get(sample_key(1), [] { return Result<Entry>(sample_entry(5)); })->outcome, Outcome::built);
  EXPECT_EQ(store().read(sample_key(1)), sample_entry(5));
}

TEST_F(CacheOverShared, AStoreThatIsDownFailsNothing) {
  blobs_.down = true;
  EXPECT_EQ(cache().get(sample_key(1), [] { return Result<Entry>(sample_entry(1)); })->outcome, Outcome::built);
  EXPECT_EQ(lines_.size(), 1U);
}

}  // namespace
}  // namespace flashspan::cache
