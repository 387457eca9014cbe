// picture.cpp -- `flashspan picture`: one head's mask as a PNG and as text blocks for a terminal.
#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "flashspan/inspect.hpp"
#include "tools/flashspan/commands/commands.hpp"
#include "tools/flashspan/commands/options.hpp"
#include "tools/flashspan/mask_picture.hpp"
#include "tools/flashspan/mask_source.hpp"

namespace flashspan::tool {
namespace {

constexpr std::int64_t default_columns = 80;
constexpr std::int64_t largest_element_picture = std::int64_t{512} * 512;  // pairs that are drawn one by one
constexpr std::int64_t largest_side = 16384;                               // tiles

struct PictureOptions {
  MaskOptions mask;
  ShapeOptions shape;
  std::int64_t batch_index = 0, head_index = 0, columns = 0;
  std::string tile = "128", out;
  bool ascii = false, json = false;
};

/// "128" or "128x64".
Result<std::pair<std::int64_t, std::int64_t>> tile_size(const std::string& text) {
  std::int64_t rows = 0, columns = 0;
  const char* end = text.data() + text.size();
  auto [stop, status] = std::from_chars(text.data(), end, rows);
  bool good = status == std::errc();
  columns = rows;
  if (good && stop != end) {
    good = *stop == 'x';
    if (good) {
      const auto second = std::from_chars(stop + 1, end, columns);
      good = second.ec == std::errc() && second.ptr == end;
    }
  }
  if (!good || rows < 1 || columns < 1) {
    return Error{ErrorCode::bad_argument, "--tile", text, "a size such as 128 or 128x64", ""};
  }
  return std::pair{rows, columns};
}

std::int64_t terminal_columns() {
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : default_columns;
}

TextStyle text_style(bool ascii) {
  if (ascii) return TextStyle::ascii;
  return ::isatty(STDOUT_FILENO) == 1 ? TextStyle::colour_blocks : TextStyle::shade_blocks;
}

Result<void> check_indices(const PictureOptions& options, const AttentionShape& shape) {
  if (options.batch_index >= shape.batch) {
    return Error{ErrorCode::bad_argument, "--batch-index", std::to_string(options.batch_index),
                 "0 to " + std::to_string(shape.batch - 1), ""};
  }
  if (options.head_index >= shape.query_heads) {
    return Error{ErrorCode::bad_argument, "--head-index", std::to_string(options.head_index),
                 "0 to " + std::to_string(shape.query_heads - 1), ""};
  }
  return {};
}

Result<TileMap> picture(const PictureOptions& options) {
  const auto tile = tile_size(options.tile);
  if (!tile) return tile.error();
  const auto source = MaskSource::read(options.mask);
  if (!source) return source.error();
  const AttentionShape shape = source->shape(options.shape);
  if (auto checked = check_indices(options, shape); !checked) return checked.error();
  if (std::max(shape.q_len / tile->first, shape.kv_len / tile->second) > largest_side) {
    return Error{ErrorCode::bad_argument, "--tile", options.tile,
                 "at most " + std::to_string(largest_side) + " tiles in a row or column", ""};
  }
  const auto mask = source->mask(shape);
  if (!mask) return mask.error();
  auto tiles = tile_map(*mask, shape, options.batch_index, options.head_index, tile->first, tile->second);
  if (!tiles || options.out.empty()) return tiles;
  std::optional<TileMap> elements;
  if (shape.q_len * shape.kv_len <= largest_element_picture) {
    auto pairs = tile_map(*mask, shape, options.batch_index, options.head_index, 1, 1);
    if (!pairs) return pairs;
    elements = std::move(*pairs);
  }
  const Image image = draw_tiles(*tiles, elements ? &*elements : nullptr);
  if (auto written = write_png(options.out, "--out", image); !written) return written.error();
  return tiles;
}

ExitCode run_picture(const PictureOptions& options) {
  const auto tiles = picture(options);
  if (!tiles) return report_error(tiles.error(), options.json);
  if (options.json) {
    Json report = to_json(*tiles);
    if (!options.out.empty()) report["out"] = options.out;
    print_json(report);
    return ExitCode::ok;
  }
  const std::int64_t columns = options.columns > 0 ? options.columns : terminal_columns();
  std::printf("%s", text_blocks(*tiles, columns, text_style(options.ascii)).c_str());
  std::printf("%lld empty, %lld full, %lld partial tiles of %lld x %lld; %lld visible pairs\n",
              static_cast<long long>(tiles->empty), static_cast<long long>(tiles->full),
              static_cast<long long>(tiles->partial), static_cast<long long>(tiles->block_m),
              static_cast<long long>(tiles->block_n), static_cast<long long>(tiles->visible_pairs));
  if (!options.out.empty()) std::printf("wrote %s\n", options.out.c_str());
  return ExitCode::ok;
}

}  // namespace

void add_picture(CLI::App& application, ChosenCommand& chosen) {
  CLI::App* command = application.add_subcommand("picture", "One head's mask as text blocks and, with --out, as a PNG");
  auto options = std::make_shared<PictureOptions>();
  add_mask_options(*command, options->mask, true);
  add_shape_options(*command, options->shape);
  const auto index = CLI::Range(std::int64_t{0}, max_sequence_length);
  command->add_option("--batch-index", options->batch_index, "Batch element to draw")
      ->check(index)
      ->capture_default_str();
  command->add_option("--head-index", options->head_index, "Query head to draw")->check(index)->capture_default_str();
  command->add_option("--tile", options->tile, "Tile size: 128, or queries x keys as in 128x64")->capture_default_str();
  command->add_option("--out", options->out, "PNG; masks of at most 512 x 512 pairs are drawn pair by pair")
      ->type_name("FILE.png");
  command->add_option("--columns", options->columns, "Characters a line (default: the terminal's)")->check(index);
  command->add_flag("--ascii", options->ascii, "Text of '.', '#' and '+' only");
  add_json_option(*command, options->json);
  command->callback([options, &chosen] { chosen = [options] { return run_picture(*options); }; });
}

}  // namespace flashspan::tool
