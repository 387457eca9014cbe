// options.cpp -- options that several commands share, and the texts they take.
#include "tools/flashspan/commands/options.hpp"

#include <charconv>
#include <limits>
#include <sstream>
#include <string_view>
#include <utility>

namespace flashspan::tool {

void add_mask_options(CLI::App& command, MaskOptions& options, bool required) {
  command
      .add_option("--mask", options.mask,
                  "A named mask (see --list-masks), an expression over b, h, q, k, or a .json file")
      ->required(required)
      ->type_name("MASK");
  command.add_option("--score", options.score, "Expression for the modified score, e.g. 'score - 0.5 * abs(q - k)'")
      ->type_name("EXPR");
  command.add_option("--tensor", options.tensors, "Array that the expressions look up; may be repeated")
      ->type_name("NAME=FILE")
      ->allow_extra_args(false);
  command.add_option("--scalar", options.scalars, "Number that the expressions use; may be repeated")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
}

void add_lowering_option(CLI::App& command, MaskOptions& options) {
  command
      .add_option("--lowering", options.lowering,
                  "How the forward applies the mask, in place of the way that would be chosen: none, row_ranges, "
                  "column_bounds, bit_tiles, expression or interpreted")
      ->type_name("KIND");
}

void add_score_gradient_option(CLI::App& command, std::vector<std::string>& names) {
  command
      .add_option("--score-gradient", names,
                  "Array of --tensor that --score looks up, for its gradient too; may be repeated")
      ->type_name("NAME")
      ->allow_extra_args(false);
}

void add_shape_options(CLI::App& command, ShapeOptions& options) {
  const auto size = CLI::Range(std::int64_t{0}, max_sequence_length);
  command.add_option("--batch", options.batch, "Batch size (default: that of the mask's arrays, else 1)")->check(size);
  command.add_option("--heads", options.query_heads, "Query heads (default: those of the mask's arrays, else 1)")
      ->check(size);
  command.add_option("--kv-heads", options.kv_heads, "Key and value heads (default: as --heads)")->check(size);
  command.add_option("--q-len", options.q_len, "Queries (default: those of the mask's arrays, else 8192)")->check(size);
  command.add_option("--kv-len", options.kv_len, "Keys (default: those of the mask's arrays, else as --q-len)")
      ->check(size);
  command.add_option("--head-dim", options.head_dim_qk, "Head dimension of queries and keys")
      ->check(size)
      ->capture_default_str();
  command.add_option("--head-dim-v", options.head_dim_v, "Head dimension of values (default: as --head-dim)")
      ->check(size);
}

void add_json_option(CLI::App& command, bool& json) { command.add_flag("--json", json, "Report as JSON"); }

void add_cache_dir_option(CLI::App& command, std::optional<std::string>& cache_dir) {
  command
      .add_option("--cache-dir", cache_dir,
                  "Folder of compiled kernels (default: FLASHSPAN_CACHE_DIR, else the user's cache folder)")
      ->type_name("DIR");
}

Result<DType> float_dtype(const std::string& text) {
  const auto dtype = dtype_from_string(text);
  if (!dtype || *dtype == DType::i32) return Error{ErrorCode::bad_argument, "--dtype", text, "f32, f16 or bf16", ""};
  return *dtype;
}

Result<std::vector<Arch>> arch_list(const std::string& text) {
  std::vector<Arch> archs;
  std::istringstream parts(text);
  std::string part;
  while (std::getline(parts, part, ',')) {
    const auto arch = arch_from_string(part);
    if (!arch) {
      return Error{ErrorCode::bad_argument, "--arch", part, "sm_80, sm_86, sm_89, sm_90a, sm_100a, sm_120a, ...", ""};
    }
    archs.push_back(*arch);
  }
  if (archs.empty()) return Error{ErrorCode::bad_argument, "--arch", "nothing", "sm_80, sm_90a, ...", ""};
  return archs;
}

Result<TileConfig> tile_config(const std::string& text) {
  std::vector<int> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    int number = 0;
    const auto [stop, status] = std::from_chars(at, end, number);
    if (status != std::errc()) break;
    numbers.push_back(number);
    at = stop;
    const char separator = numbers.size() == 1 ? 'x' : ',';
    if (at == end || *at != separator) break;
    ++at;
  }
  if (at != end || numbers.size() < 2 || numbers.size() > 4) {
    return Error{ErrorCode::bad_argument, "--tile", text, "BLOCK_MxBLOCK_N,WARPS,STAGES such as 128x64,8,2", ""};
  }
  numbers.resize(4, 1);
  return TileConfig{numbers[0], numbers[1], numbers[2], numbers[3]};
}

namespace {

/// A count with one of the suffixes.
Result<std::int64_t> scaled_count(const std::string& option, const std::string& text, const std::string& takes,
                                  std::initializer_list<std::pair<char, std::int64_t>> suffixes) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  std::int64_t scale = 0;
  if (stop == end) scale = 1;
  for (const auto& [suffix, factor] : suffixes) {
    if (stop + 1 == end && *stop == suffix) scale = factor;
  }
  if (status != std::errc() || value < 0 || scale == 0 || value > std::numeric_limits<std::int64_t>::max() / scale) {
    return Error{ErrorCode::bad_argument, option, text, takes, ""};
  }
  return value * scale;
}

}  // namespace

Result<std::int64_t> byte_count(const std::string& option, const std::string& text) {
  constexpr std::int64_t kibi = 1024;
  return scaled_count(option, text, "bytes, or a number with K, M or G",
                      {{'K', kibi}, {'M', kibi * kibi}, {'G', kibi * kibi * kibi}});
}

Result<std::int64_t> second_count(const std::string& option, const std::string& text) {
  constexpr std::int64_t minute = 60, hour = 60 * minute, day = 24 * hour;
  return scaled_count(option, text, "seconds, or a number with m, h or d", {{'m', minute}, {'h', hour}, {'d', day}});
}

}  // namespace flashspan::tool
