// mask_file_test.cpp -- every form of JSON mask file, against rules written down here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "attend_case.hpp"
#include "numpy_files.hpp"
#include "oracle/random_numbers.hpp"

namespace {

using namespace cli_test;
using oracle::Format;
using oracle::Index;

using Integers = std::vector<std::int64_t>;

Integers random_integers(std::size_t count, std::int64_t low, std::int64_t high, std::uint64_t seed) {
  oracle::RandomNumbers random(seed);
  Integers values(count);
  for (std::int64_t& value : values) value = random.integer(low, high);
  return values;
}

std::int64_t at(const Integers& values, Index index) { return values.at(static_cast<std::size_t>(index)); }

TEST(MaskFile, ExpressionFindsItsArraysBesideIt) {
  const Folder folder;
  std::filesystem::create_directories(folder / "masks/data");
  const Integers doc{0, 0, 0, 1, 1, 1, 1, 2, 2, 2};
  write_text(folder / "masks/data/doc.npy", npy_i32({10}, doc));
  write_text(
      folder / "masks/m.json",
      R"json({"expr": "(doc[q] == doc[k]) & (q - k <= reach)", "tensors": {"doc": "data/doc.npy"}, "scalars": {"reach": 1}})json");
  auto problem = random_problem({1, 1, 1, 10, 10, 16, 16}, Format::f32, 1);
  problem.visible = [&](Index, Index, Index q, Index k) { return at(doc, q) == at(doc, k) && q - k <= 1; };
  EXPECT_TRUE(attend_agrees(problem, Format::f32, folder, {"--mask", folder / "masks/m.json"}));
}

/// Masked rows of key k by the table of arXiv 2410.01359, section 4.
bool flashmask_hides(const Integers& bounds, Index first, Index channels, bool causal, Index q) {
  const auto within = [&](Index from, Index to) { return at(bounds, first + from) <= q && q < at(bounds, first + to); };
  if (causal && channels == 1) return q >= at(bounds, first);
  if (causal) return within(0, 1);
  if (channels == 2) return q >= at(bounds, first) || q < at(bounds, first + 1);
  return within(0, 1) || within(2, 3);
}

TEST(MaskFile, FlashmaskInItsFourForms) {
  for (const auto& [channels, causal] : {std::pair{1, true}, {2, true}, {2, false}, {4, false}}) {
    const Folder folder;
    constexpr Index batch = 2, kv_heads = 2, length = 45;
    const Integers bounds = random_integers(static_cast<std::size_t>(batch * kv_heads * length * channels), 0,
                                            length + 1, 10 + static_cast<std::uint64_t>(channels));
    write_text(folder / "x.npy", npy_i32({batch, kv_heads, length, channels}, bounds));
    write_text(folder / "m.json", std::string(R"({"flashmask": "x.npy", "causal": )") + (causal ? "true}" : "false}"));
    auto problem = random_problem({batch, 4, kv_heads, length, length, 16, 16}, Format::f32, 20);
    problem.visible = [&, channels = channels, causal = causal](Index b, Index h, Index q, Index k) {
      const Index first = ((b * kv_heads + h / 2) * length + k) * channels;
      return !(causal && q < k) && !flashmask_hides(bounds, first, channels, causal, q);
    };
    EXPECT_TRUE(attend_agrees(problem, Format::f32, folder, {"--mask", folder / "m.json"}))
        << channels << (causal ? " causal" : "");
  }
}

TEST(MaskFile, KeyRangesAreAUnion) {
  const Folder folder;
  constexpr Index q_len = 33, kv_len = 50, ranges_per_row = 3;
  const Integers ranges = random_integers(q_len * ranges_per_row * 2, 0, kv_len, 30);  // some of them empty
  write_text(folder / "r.npy", npy_i64({1, 1, q_len, ranges_per_row, 2}, ranges));
  write_text(folder / "m.json", R"({"ranges": "r.npy"})");
  auto problem = random_problem({2, 2, 1, q_len, kv_len, 16, 16}, Format::f32, 31);
  problem.visible = [&](Index, Index, Index q, Index k) {
    for (Index range = 0; range < ranges_per_row; ++range) {
      const Index first = (q * ranges_per_row + range) * 2;
      if (at(ranges, first) <= k && k < at(ranges, first + 1)) return true;
    }
    return false;
  };
  EXPECT_TRUE(attend_agrees(problem, Format::f32, folder, {"--mask", folder / "m.json"}));
}

TEST(MaskFile, KeyRangesInCompressedRows) {
  const Folder folder;
  constexpr Index q_len = 20, kv_len = 30;
  Integers offsets{0}, ranges;
  oracle::RandomNumbers random(40);
  for (Index q = 0; q < q_len; ++q) {
    for (Index range = 0; range < q % 4; ++range) {
      const std::int64_t low = random.integer(0, kv_len);
      ranges.insert(ranges.end(), {low, random.integer(low, kv_len)});
    }
    offsets.push_back(static_cast<std::int64_t>(ranges.size() / 2));
  }
  write_text(folder / "o.npy", npy_i32({1, 1, q_len + 1}, offsets));
  write_text(folder / "r.npy", npy_i32({static_cast<std::int64_t>(ranges.size() / 2), 2}, ranges));
  write_text(folder / "m.json", R"({"ranges": "r.npy", "offsets": "o.npy"})");
  auto problem = random_problem({1, 2, 2, q_len, kv_len, 16, 16}, Format::f32, 41);
  problem.visible = [&](Index, Index, Index q, Index k) {
    for (Index range = at(offsets, q); range < at(offsets, q + 1); ++range) {
      if (at(ranges, 2 * range) <= k && k < at(ranges, 2 * range + 1)) return true;
    }
    return false;
  };
  EXPECT_TRUE(attend_agrees(problem, Format::f32, folder, {"--mask", folder / "m.json"}));
}

TEST(MaskFile, ScfaIndexAndHashStrictOrNot) {
  for (const bool hashed : {false, true}) {
    for (const bool strict : {false, true}) {
      const Folder folder;
      constexpr Index batch = 2, q_len = 29, kv_len = 41;
      const Integers q_idx = random_integers(batch * q_len, -1, 60, 50),
                     k_idx = random_integers(batch * kv_len, -1, 60, 51);
      const Integers q_hash = random_integers(batch * q_len, 0, 3, 52),
                     k_hash = random_integers(batch * kv_len, 0, 3, 53);
      write_text(folder / "qi.npy", npy_i32({batch, 1, q_len}, q_idx));
      write_text(folder / "ki.npy", npy_i32({batch, 1, kv_len}, k_idx));
      write_text(folder / "qh.npy", npy_i32({batch, 1, q_len}, q_hash));
      write_text(folder / "kh.npy", npy_i32({batch, 1, kv_len}, k_hash));
      std::string text = R"({"q_idx": "qi.npy", "k_idx": "ki.npy")";
      if (hashed) text += R"(, "q_hash": "qh.npy", "k_hash": "kh.npy")";
      if (strict) text += R"(, "strict": true)";
      write_text(folder / "m.json", text + "}");
      auto problem = random_problem({batch, 2, 1, q_len, kv_len, 16, 16}, Format::f32, 54);
      problem.visible = [&](Index b, Index, Index q, Index k) {
        const std::int64_t query = at(q_idx, b * q_len + q), key = at(k_idx, b * kv_len + k);
        if (query < 0 || key < 0 || (strict ? query <= key : query < key)) return false;
        return !hashed || at(q_hash, b * q_len + q) == at(k_hash, b * kv_len + k);
      };
      EXPECT_TRUE(attend_agrees(problem, Format::f32, folder, {"--mask", folder / "m.json"})) << text;
    }
  }
}

TEST(MaskFile, SlicesOfEveryType) {
  const Folder folder;
  struct Slice {
    Index q0, q1, k0, k1, type;
  };
  const std::vector<Slice> slices{
      {0, 10, 0, 7, 0}, {8, 30, 5, 35, 1}, {20, 40, 30, 60, 2}, {30, 50, 10, 44, 3}, {5, 5, 0, 9, 0}};
  Integers q_ranges, k_ranges, types;
  for (const Slice& slice : slices) {
    q_ranges.insert(q_ranges.end(), {slice.q0, slice.q1});
    k_ranges.insert(k_ranges.end(), {slice.k0, slice.k1});
    types.push_back(slice.type);
  }
  write_text(folder / "q_ranges.npy", npy_i32({5, 2}, q_ranges));
  write_text(folder / "k_ranges.npy", npy_i32({5, 2}, k_ranges));
  write_text(folder / "types.npy", npy_i32({5}, types));
  write_text(folder / "m.json", R"({"q_ranges": "q_ranges.npy", "k_ranges": "k_ranges.npy", "types": "types.npy"})");
  auto problem = random_problem({1, 1, 1, 50, 60, 16, 16}, Format::f32, 60);
  problem.visible = [&](Index, Index, Index q, Index k) {
    return std::any_of(slices.begin(), slices.end(), [&](const Slice& s) {
      if (q < s.q0 || q >= s.q1 || k < s.k0 || k >= s.k1) return false;
      const Index i = q - s.q0, j = k - s.k0, m = s.q1 - s.q0, n = s.k1 - s.k0;
      const bool causal = j - i <= n - m, inverse = j >= i;
      return ((s.type != 1 && s.type != 3) || causal) && ((s.type != 2 && s.type != 3) || inverse);
    });
  };
  EXPECT_TRUE(attend_agrees(problem, Format::f32, folder, {"--mask", folder / "m.json"}));
}

}  // namespace
