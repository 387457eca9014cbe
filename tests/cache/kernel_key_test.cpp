// The key is XXH3-128 over the parts with their lengths, the same on every machine and in every release.
#include "cache/kernel_key.hpp"

#include <gtest/gtest.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace flashspan::cache {
namespace {

KernelKey key_of(const std::vector<std::string_view>& parts) { return KernelKey::of(parts); }

TEST(KernelKey, EqualsTheOneShotHashOfLengthsAndParts) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> parts(random() % 5);
    std::string flat;
    for (std::string& part : parts) {
      part.resize(random() % 700);
      for (char& letter : part) letter = static_cast<char>(random());
      for (int shift = 0; shift < 64; shift += 8) flat += static_cast<char>(part.size() >> shift & 0xff);
      flat += part;
    }
    const XXH128_hash_t hash = XXH3_128bits(flat.data(), flat.size());
    char text[33];
    std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                  static_cast<unsigned long long>(hash.low64));
    EXPECT_EQ(key_of({parts.begin(), parts.end()}).to_text(), text);
  }
}

TEST(KernelKey, IsPinnedAcrossReleases) {
  // If this fails, every cache in the world turns cold: raise entry_format_version and say so in the notes.
  EXPECT_EQ(key_of({}).to_text(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(key_of({"__global__ void kernel() {}", "-arch=sm_90a", "nvrtc 13.0.88"}).to_text(),
            "be20c7839ffce25219415b6338001833");
}

TEST(KernelKey, PartsDoNotRunTogether) {
  const std::set<KernelKey> keys{key_of({"ab", "c"}), key_of({"a", "bc"}), key_of({"abc"}),
                                 key_of({"abc", ""}), key_of({"", "abc"}), key_of({""}),
                                 key_of({"", ""}),    key_of({}),          key_of({"ab", "c", ""})};
  EXPECT_EQ(keys.size(), 9U);
}

TEST(KernelKey, EveryBitOfAPartCounts) {
  std::string source(333, 'x');
  std::set<KernelKey> keys{key_of({source, "options"})};
  for (std::size_t i = 0; i < source.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      source[i] = static_cast<char>(source[i] ^ 1 << bit);
      keys.insert(key_of({source, "options"}));
      source[i] = static_cast<char>(source[i] ^ 1 << bit);
    }
  }
  EXPECT_EQ(keys.size(), 333U * 8 + 1);
}

TEST(KernelKey, TextSurvivesARoundTrip) {
  for (int i = 0; i < 50; ++i) {
    const std::string seed = std::to_string(i);
    const KernelKey key = key_of({seed});
    ASSERT_EQ(key.to_text().size(), 32U);
    EXPECT_EQ(KernelKey::from_text(key.to_text()), key);
  }
}

TEST(KernelKey, OtherTextIsNoKey) {
  const std::string good(32, 'a');
  ASSERT_TRUE(KernelKey::from_text(good).has_value());
  for (const std::string& text :
       {std::string(), std::string(31, 'a'), std::string(33, 'a'), std::string(32, 'A'), std::string(32, 'g'),
        std::string("../../../../../../../../../etc/pw"), std::string(31, 'a') + '\0'}) {
    EXPECT_FALSE(KernelKey::from_text(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace flashspan::cache
