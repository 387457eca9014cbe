// options.hpp -- options that several commands share.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "flashspan/core/error.hpp"
#include "flashspan/core/tile_config.hpp"
#include "flashspan/core/types.hpp"
#include "tools/flashspan/mask_source.hpp"

namespace flashspan::tool {

/// --score-gradient.
void add_score_gradient_option(CLI::App& command, std::vector<std::string>& names);
/// --mask (required if `required`), --score, --tensor, --scalar.
void add_mask_options(CLI::App& command, MaskOptions& options, bool required);
/// --lowering.
void add_lowering_option(CLI::App& command, MaskOptions& options);
/// --batch, --heads, --kv-heads, --q-len, --kv-len, --head-dim, --head-dim-v.
void add_shape_options(CLI::App& command, ShapeOptions& options);
void add_json_option(CLI::App& command, bool& json);
void add_cache_dir_option(CLI::App& command, std::optional<std::string>& cache_dir);

/// f32, f16 or bf16. Error: bad_argument.
[[nodiscard]] Result<DType> float_dtype(const std::string& text);
/// "sm_80,sm_90a" taken apart. Error: bad_argument.
[[nodiscard]] Result<std::vector<Arch>> arch_list(const std::string& text);
/// "128x64,8,2": BLOCK_M x BLOCK_N, warps, stages; the latter two are 1 if they are left out. Error: bad_argument.
[[nodiscard]] Result<TileConfig> tile_config(const std::string& text);
/// "512M", "3G", "100": bytes; "30d", "12h", "90": seconds. Error: bad_argument.
[[nodiscard]] Result<std::int64_t> byte_count(const std::string& option, const std::string& text);
[[nodiscard]] Result<std::int64_t> second_count(const std::string& option, const std::string& text);

}  // namespace flashspan::tool
