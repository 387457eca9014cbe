// mask_picture.hpp -- a tile map as an image with a legend, and as text blocks for a terminal.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "flashspan/core/error.hpp"
#include "flashspan/inspect.hpp"

namespace flashspan::tool {

using Colour = std::array<std::uint8_t, 3>;

/// Colours of tiles and, where elements are drawn, of the pairs inside partial tiles.
inline constexpr Colour empty_colour{236, 239, 241}, full_colour{21, 101, 192}, partial_colour{255, 179, 0},
    partial_masked_colour{255, 236, 179}, grid_colour{144, 164, 174}, paper_colour{255, 255, 255},
    ink_colour{33, 33, 33};

/// 8-bit RGB, row-major from the top-left.
struct Image {
  std::int64_t width = 0, height = 0;
  std::vector<std::uint8_t> pixels;

  Image(std::int64_t width, std::int64_t height, Colour colour);
  void fill(std::int64_t x, std::int64_t y, std::int64_t columns, std::int64_t rows, Colour colour);
};

/// Queries run downwards, keys to the right. One square a tile; with `elements` (a map of 1 x 1 tiles of the same mask)
/// one square a pair instead. A grid where tiles are wide enough, and a legend with counts below.
[[nodiscard]] Image draw_tiles(const TileMap& tiles, const TileMap* elements);

/// Error: io_error.
[[nodiscard]] Result<void> write_png(const std::string& path, const std::string& argument, const Image& image);

enum class TextStyle { colour_blocks, shade_blocks, ascii };

/// At most `columns` characters a line; tiles are merged as far as that takes (several kinds merge to partial).
[[nodiscard]] std::string text_blocks(const TileMap& tiles, std::int64_t columns, TextStyle style);

}  // namespace flashspan::tool
