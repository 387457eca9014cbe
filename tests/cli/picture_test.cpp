// picture_test.cpp -- `flashspan picture`: the PNG's size and pixels, the text blocks, the counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>

#include <algorithm>
#include <array>

#include "attend_case.hpp"
#include "numpy_files.hpp"
#include "process.hpp"

namespace {

using namespace cli_test;
using testing::HasSubstr;

using Pixel = std::array<int, 3>;
constexpr Pixel empty_pixel{236, 239, 241}, full_pixel{21, 101, 192}, partial_pixel{255, 179, 0},
    partial_masked_pixel{255, 236, 179};

struct Decoded {
  unsigned width = 0, height = 0;
  std::vector<unsigned char> bytes;
  [[nodiscard]] Pixel at(unsigned x, unsigned y) const {
    const std::size_t first = (static_cast<std::size_t>(y) * width + x) * 3;
    return {bytes.at(first), bytes.at(first + 1), bytes.at(first + 2)};
  }
};

Decoded decode(const std::string& path) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  Decoded decoded;
  if (png_image_begin_read_from_file(&image, path.c_str()) == 0) return decoded;
  image.format = PNG_FORMAT_RGB;
  decoded.bytes.resize(PNG_IMAGE_SIZE(image));
  if (png_image_finish_read(&image, nullptr, decoded.bytes.data(), 0, nullptr) == 0) return decoded;
  decoded.width = image.width;
  decoded.height = image.height;
  return decoded;
}

TEST(Picture, TilesOfALongCausalMaskAreSquaresOfSixteenPixels) {
  const Folder folder;
  const Outcome outcome =
      flashspan_command({"picture", "--mask", "causal", "--q-len", "8192", "--out", folder / "m.png", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto report = outcome.json();
  EXPECT_EQ(report["rows"], 64);
  EXPECT_EQ(report["columns"], 64);
  EXPECT_EQ(report["empty"], 64 * 63 / 2);
  EXPECT_EQ(report["full"], 64 * 63 / 2);
  EXPECT_EQ(report["partial"], 64);
  EXPECT_EQ(report["visible_pairs"], 8192LL * 8193 / 2);
  const Decoded png = decode(folder / "m.png");
  ASSERT_EQ(png.width, 64U * 16);
  EXPECT_GT(png.height, 64U * 16);  // the legend
  EXPECT_LT(png.height, 64U * 16 + 64);
  EXPECT_EQ(png.at(10 * 16 + 8, 3 * 16 + 8), empty_pixel);
  EXPECT_EQ(png.at(3 * 16 + 8, 10 * 16 + 8), full_pixel);
  EXPECT_EQ(png.at(10 * 16 + 8, 10 * 16 + 8), partial_pixel);
}

TEST(Picture, ShortMasksAreDrawnPairByPair) {
  const Folder folder;
  const Outcome outcome = flashspan_command({"picture", "--mask", "q >= k", "--q-len", "64", "--kv-len", "64", "--tile",
                                             "32", "--out", folder / "m.png", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Decoded png = decode(folder / "m.png");
  ASSERT_EQ(png.width, 64U * 16);
  const auto pair = [&](unsigned q, unsigned k) { return png.at(k * 16 + 8, q * 16 + 8); };
  for (unsigned q = 0; q < 64; ++q) {
    for (unsigned k = 0; k < 64; ++k) {
      const bool diagonal_tile = q / 32 == k / 32;
      const Pixel visible = diagonal_tile ? partial_pixel : full_pixel;
      const Pixel hidden = diagonal_tile ? partial_masked_pixel : empty_pixel;
      ASSERT_EQ(pair(q, k), q >= k ? visible : hidden) << q << " " << k;
    }
  }
}

TEST(Picture, HeadsAndBatchElementsAreChosen) {
  const Folder folder;
  constexpr std::size_t length = 256;
  std::vector<std::int64_t> bounds(4 * length, length);
  std::fill_n(bounds.begin() + 3 * length, 128, 128);  // the first 128 keys of batch element 1, head 1
  write_text(folder / "x.npy", npy_i32({2, 2, 256, 1}, bounds));
  write_text(folder / "m.json", R"({"flashmask": "x.npy", "causal": true})");
  const auto counts = [&](const char* batch, const char* head) {
    return flashspan_command(
               {"picture", "--mask", folder / "m.json", "--batch-index", batch, "--head-index", head, "--json"})
        .json();
  };
  EXPECT_EQ(counts("0", "1")["full"], 1);
  EXPECT_EQ(counts("1", "0")["full"], 1);
  EXPECT_EQ(counts("1", "1")["full"], 0);
  EXPECT_EQ(counts("1", "1")["empty"], 2);
  EXPECT_EQ(flashspan_command({"picture", "--mask", folder / "m.json", "--head-index", "2"}).exit_code, 2);
}

TEST(Picture, AsciiBlocksShowTheTiles) {
  const Outcome outcome = flashspan_command({"picture", "--mask", "causal", "--q-len", "512", "--ascii"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("++......\n##++....\n####++..\n######++\n"));
  EXPECT_THAT(outcome.out, HasSubstr("6 empty, 6 full, 4 partial tiles of 128 x 128"));
}

TEST(Picture, ShadedBlocksAreTheDefaultInAPipe) {
  const Outcome outcome = flashspan_command({"picture", "--mask", "causal", "--q-len", "256"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("▒▒··\n██▒▒\n"));
  EXPECT_EQ(outcome.out.find('\033'), std::string::npos);
}

TEST(Picture, LinesAreNoLongerThanAsked) {
  const Outcome outcome =
      flashspan_command({"picture", "--mask", "causal", "--q-len", "8192", "--ascii", "--columns", "32"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.find('\n'), 32U);
  EXPECT_EQ(outcome.out.substr(std::size_t{33} * 15, 33), "##############################++\n");
}

TEST(Picture, BadTilesAreRefused) {
  for (const char* tile : {"0", "-1", "12y", "128x", "x", "128x0"}) {
    const Outcome outcome = flashspan_command({"picture", "--mask", "causal", "--tile", tile});
    EXPECT_EQ(outcome.exit_code, 2) << tile;
    EXPECT_EQ(outcome.error_lines().size(), 1U) << outcome.err;
  }
}

}  // namespace
