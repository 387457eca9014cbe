// mask_picture.cpp -- draws tile maps: squares, grid, a legend in a 3 x 5 font, PNG by libpng, text blocks.
#include "tools/flashspan/mask_picture.hpp"

#include <png.h>

#include <algorithm>
#include <string_view>

#include "tools/flashspan/files.hpp"

namespace flashspan::tool {
namespace {

constexpr std::int64_t preferred_side = 1024;  // pixels; squares grow until the longer side reaches it
constexpr std::int64_t largest_square = 16;
constexpr std::int64_t smallest_grid_tile = 8;  // pixels; finer grids hide what they divide
constexpr std::int64_t font_scale = 2, glyph_columns = 3, glyph_rows = 5, glyph_advance = 4 * font_scale;
constexpr std::int64_t legend_margin = 6, legend_height = glyph_rows * font_scale + 2 * legend_margin;

/// Rows of a 3 x 5 glyph, top to bottom; '#' is ink.
struct Glyph {
  char letter;
  std::string_view rows;
};
constexpr std::array<Glyph, 21> glyphs{{
    {'A', ".#.#.#####.##.#"}, {'E', "####..##.#..###"}, {'F', "####..##.#..#.."}, {'I', "###.#..#..#.###"},
    {'L', "#..#..#..#..###"}, {'M', "#.########.##.#"}, {'P', "####.#####..#.."}, {'R', "##.#.###.#.##.#"},
    {'T', "###.#..#..#..#."}, {'U', "#.##.##.##.####"}, {'Y', "#.##.#.#..#..#."}, {'0', "####.##.##.####"},
    {'1', ".#.##..#..#.###"}, {'2', "###..#####..###"}, {'3', "###..####..####"}, {'4', "#.##.####..#..#"},
    {'5', "####..###..####"}, {'6', "####..####.####"}, {'7', "###..#..#..#..#"}, {'8', "####.#####.####"},
    {'9', "####.####..####"},
}};

void draw_text(Image& image, std::int64_t x, std::int64_t y, const std::string& text) {
  for (const char letter : text) {
    const auto* glyph = std::find_if(glyphs.begin(), glyphs.end(), [&](const Glyph& g) { return g.letter == letter; });
    for (std::size_t bit = 0; glyph != glyphs.end() && bit < glyph->rows.size(); ++bit) {
      if (glyph->rows[bit] != '#') continue;
      const auto column = static_cast<std::int64_t>(bit) % glyph_columns;
      const auto row = static_cast<std::int64_t>(bit) / glyph_columns;
      image.fill(x + column * font_scale, y + row * font_scale, font_scale, font_scale, ink_colour);
    }
    x += glyph_advance;
  }
}

/// One swatch with its text.
struct LegendEntry {
  Colour colour;
  std::string text;
};

std::int64_t entry_width(const LegendEntry& entry) {
  return legend_height + static_cast<std::int64_t>(entry.text.size()) * glyph_advance;
}

Colour colour_of(TileKind kind) {
  switch (kind) {
    case TileKind::empty:
      return empty_colour;
    case TileKind::full:
      return full_colour;
    case TileKind::partial:
      return partial_colour;
  }
  return paper_colour;
}

TileKind kind_at(const TileMap& tiles, std::int64_t row, std::int64_t column) {
  return tiles.kinds[static_cast<std::size_t>(row * tiles.columns + column)];
}

/// Kind of a rectangle of tiles taken as one.
TileKind merged_kind(const TileMap& tiles, std::int64_t row, std::int64_t column, std::int64_t step) {
  const TileKind first = kind_at(tiles, row, column);
  for (std::int64_t r = row; r < std::min(row + step, tiles.rows); ++r) {
    for (std::int64_t c = column; c < std::min(column + step, tiles.columns); ++c) {
      if (kind_at(tiles, r, c) != first) return TileKind::partial;
    }
  }
  return first;
}

void draw_squares(Image& image, const TileMap& tiles, const TileMap* elements, std::int64_t square) {
  const TileMap& drawn = elements != nullptr ? *elements : tiles;
  for (std::int64_t row = 0; row < drawn.rows; ++row) {
    for (std::int64_t column = 0; column < drawn.columns; ++column) {
      Colour colour = colour_of(kind_at(drawn, row, column));
      if (elements != nullptr && kind_at(tiles, row / tiles.block_m, column / tiles.block_n) == TileKind::partial) {
        colour = kind_at(*elements, row, column) == TileKind::full ? partial_colour : partial_masked_colour;
      }
      image.fill(column * square, row * square, square, square, colour);
    }
  }
}

void draw_grid(Image& image, std::int64_t width, std::int64_t height, std::int64_t tile_width,
               std::int64_t tile_height) {
  if (std::min(tile_width, tile_height) < smallest_grid_tile) return;
  for (std::int64_t x = tile_width; x < width; x += tile_width) image.fill(x, 0, 1, height, grid_colour);
  for (std::int64_t y = tile_height; y < height; y += tile_height) image.fill(0, y, width, 1, grid_colour);
}

}  // namespace

Image::Image(std::int64_t width, std::int64_t height, Colour colour)
    : width(width), height(height), pixels(static_cast<std::size_t>(width * height * 3)) {
  fill(0, 0, width, height, colour);
}

void Image::fill(std::int64_t x, std::int64_t y, std::int64_t columns, std::int64_t rows, Colour colour) {
  for (std::int64_t row = y; row < std::min(y + rows, height); ++row) {
    for (std::int64_t column = x; column < std::min(x + columns, width); ++column) {
      std::copy(colour.begin(), colour.end(), pixels.begin() + (row * width + column) * 3);
    }
  }
}

Image draw_tiles(const TileMap& tiles, const TileMap* elements) {
  const TileMap& drawn = elements != nullptr ? *elements : tiles;
  const std::int64_t longest = std::max<std::int64_t>({1, drawn.rows, drawn.columns});
  const std::int64_t square = std::clamp<std::int64_t>(preferred_side / longest, 1, largest_square);
  const std::int64_t width = drawn.columns * square, height = drawn.rows * square;
  const std::array<LegendEntry, 3> legend{{{empty_colour, "EMPTY " + std::to_string(tiles.empty)},
                                           {full_colour, "FULL " + std::to_string(tiles.full)},
                                           {partial_colour, "PARTIAL " + std::to_string(tiles.partial)}}};
  std::int64_t legend_width = legend_margin;
  for (const LegendEntry& entry : legend) legend_width += entry_width(entry);

  Image image(std::max(width, legend_width), height + legend_height, paper_colour);
  draw_squares(image, tiles, elements, square);
  const std::int64_t elements_per_square_m = elements != nullptr ? tiles.block_m : 1;
  const std::int64_t elements_per_square_n = elements != nullptr ? tiles.block_n : 1;
  draw_grid(image, width, height, square * elements_per_square_n, square * elements_per_square_m);
  std::int64_t x = legend_margin;
  constexpr std::int64_t swatch = glyph_rows * font_scale;
  for (const LegendEntry& entry : legend) {
    image.fill(x, height + legend_margin, swatch, swatch, ink_colour);
    image.fill(x + 1, height + legend_margin + 1, swatch - 2, swatch - 2, entry.colour);
    draw_text(image, x + swatch + legend_margin, height + legend_margin, entry.text);
    x += entry_width(entry);
  }
  return image;
}

Result<void> write_png(const std::string& path, const std::string& argument, const Image& image) {
  png_image description{};
  description.version = PNG_IMAGE_VERSION;
  description.width = static_cast<png_uint_32>(image.width);
  description.height = static_cast<png_uint_32>(image.height);
  description.format = PNG_FORMAT_RGB;
  std::vector<std::uint8_t> encoded(PNG_IMAGE_PNG_SIZE_MAX(description));
  png_alloc_size_t size = encoded.size();
  if (png_image_write_to_memory(&description, encoded.data(), &size, 0, image.pixels.data(), 0, nullptr) == 0) {
    return Error{ErrorCode::io_error, argument, path + " (" + description.message + ")", "an image libpng can write",
                 ""};
  }
  return write_file_atomically(path, argument, [&](const ByteSink& sink) { sink(encoded.data(), size); });
}

std::string text_blocks(const TileMap& tiles, std::int64_t columns, TextStyle style) {
  // A character is about twice as high as wide: half blocks hold two tiles above each other, the other styles write
  // every tile twice.
  const bool half_blocks = style == TextStyle::colour_blocks;
  const std::int64_t tiles_per_line = std::max<std::int64_t>(1, half_blocks ? columns : columns / 2);
  const std::int64_t step = std::max<std::int64_t>(1, (tiles.columns + tiles_per_line - 1) / tiles_per_line);
  const auto escape = [](int layer, Colour colour) {
    return "\033[" + std::to_string(layer) + ";2;" + std::to_string(colour[0]) + ";" + std::to_string(colour[1]) + ";" +
           std::to_string(colour[2]) + "m";
  };
  const auto character = [&](TileKind kind) -> std::string {
    switch (kind) {
      case TileKind::empty:
        return style == TextStyle::ascii ? "." : "·";
      case TileKind::full:
        return style == TextStyle::ascii ? "#" : "█";
      case TileKind::partial:
        return style == TextStyle::ascii ? "+" : "▒";
    }
    return "?";
  };
  std::string text;
  for (std::int64_t row = 0; row < tiles.rows; row += half_blocks ? 2 * step : step) {
    for (std::int64_t column = 0; column < tiles.columns; column += step) {
      const TileKind upper = merged_kind(tiles, row, column, step);
      if (!half_blocks) {
        text += character(upper) + character(upper);
        continue;
      }
      const bool has_lower = row + step < tiles.rows;
      text += escape(38, colour_of(upper));
      text += has_lower ? escape(48, colour_of(merged_kind(tiles, row + step, column, step))) : "\033[49m";
      text += "▀";
    }
    text += half_blocks ? "\033[0m\n" : "\n";
  }
  return text;
}

}  // namespace flashspan::tool
