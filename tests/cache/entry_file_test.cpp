// An entry's bytes are accepted whole and undamaged under their own key, and never otherwise.
#include "cache/entry_file.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cache/sample_entries.hpp"

namespace flashspan::cache {
namespace {

/// A checked refusal: nothing, with a reason.
void expect_refused(const KernelKey& key, const std::vector<std::byte>& bytes, const std::string& what) {
  std::string why;
  EXPECT_FALSE(decode(key, bytes, &why).has_value()) << what;
  EXPECT_FALSE(why.empty()) << what;
}

TEST(EntryFile, SurvivesARoundTrip) {
  for (std::uint64_t number = 0; number < 20; ++number) {
    const Entry entry = sample_entry(number);
    EXPECT_EQ(decode(sample_key(number), encode(sample_key(number), entry), nullptr), entry);
  }
  EXPECT_EQ(decode(sample_key(0), encode(sample_key(0), Entry{}), nullptr), Entry{});
}

TEST(EntryFile, IsRefusedAtEveryShorterLength) {
  const std::vector<std::byte> whole = encode(sample_key(5), sample_entry(5, 300));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    expect_refused(sample_key(5), {whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)},
                   std::to_string(length) + " bytes");
  }
}

TEST(EntryFile, IsRefusedWithBytesAppended) {
  std::vector<std::byte> bytes = encode(sample_key(5), sample_entry(5, 300));
  bytes.push_back(std::byte{0});
  expect_refused(sample_key(5), bytes, "one more byte");
}

TEST(EntryFile, IsRefusedWithAnyBitFlipped) {
  std::vector<std::byte> bytes = encode(sample_key(6), sample_entry(6, 200));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      bytes[i] ^= static_cast<std::byte>(1 << bit);
      expect_refused(sample_key(6), bytes, "byte " + std::to_string(i) + " bit " + std::to_string(bit));
      bytes[i] ^= static_cast<std::byte>(1 << bit);
    }
  }
}

TEST(EntryFile, IsRefusedWithItsTailZeroed) {
  // What a file system may leave after a crash: full length, blocks never written.
  const std::vector<std::byte> whole = encode(sample_key(7), sample_entry(7, 1000));
  for (std::size_t from = 0; from < whole.size(); from += 37) {
    std::vector<std::byte> bytes = whole;
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(from), bytes.end(), std::byte{0});
    if (bytes == whole) continue;
    expect_refused(sample_key(7), bytes, "zero from byte " + std::to_string(from));
  }
}

// Field case F075: metadata and binary are one file, which carries its key.
TEST(EntryFile, IsRefusedUnderAnotherKeyAndNamesItsOwn) {
  const std::vector<std::byte> bytes = encode(sample_key(1), sample_entry(1));
  std::string why;
  EXPECT_FALSE(decode(sample_key(2), bytes, &why).has_value());
  EXPECT_NE(why.find(sample_key(1).to_text()), std::string::npos) << why;
}

TEST(EntryFile, LengthsThatOverflowAreRefused) {
  std::vector<std::byte> bytes = encode(sample_key(8), sample_entry(8, 100));
  for (std::size_t i = 32; i < 40; ++i) bytes[i] = std::byte{0xff};  // metadata length 2^64 - 1
  expect_refused(sample_key(8), bytes, "metadata length");
  // Two lengths whose sum wraps around to the right one.
  const std::uint64_t artifact = bytes.size() - 64 + 1;
  for (std::size_t i = 0; i < 8; ++i) bytes[40 + i] = static_cast<std::byte>(artifact >> (8 * i) & 0xff);
  expect_refused(sample_key(8), bytes, "sum of lengths");
}

TEST(EntryFile, FormatIsPinned) {
  // A change here needs a new entry_format_version.
  const std::vector<std::byte> bytes = encode(sample_key(1), Entry{"{}", {std::byte{1}, std::byte{2}}});
  ASSERT_EQ(bytes.size(), 68U);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  using namespace std::string_view_literals;
  EXPECT_EQ(text.substr(0, 16), "flashspn\x01\0\0\0\0\0\0\0"sv);
  EXPECT_EQ(text.substr(32, 16), "\x02\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0"sv);
  EXPECT_EQ(text.substr(64), "{}\x01\x02"sv);
  KernelKey checksum;
  std::copy_n(text.data() + 48, 16, checksum.bytes.begin());
  EXPECT_EQ(checksum.to_text(), "8f621c627fdb86fe86ef76ac8319ee76");
}

}  // namespace
}  // namespace flashspan::cache
