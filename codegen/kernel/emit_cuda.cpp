// emit_cuda.cpp -- a KernelSpec as CUDA source: two generated headers, and the templates that they complete.
#include "codegen/kernel/emit_cuda.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "codegen/kernel/emit_cuda_program.hpp"
#include "codegen/kernel/emit_warpgroup_products.hpp"
#include "codegen/kernel/include_lines.hpp"
#include "codegen/kernel/score_lookups.hpp"
#include "codegen/kernel/template_library.hpp"
#include "codegen/kernel/tile_config.hpp"
#include "codegen/mask/score_derivative.hpp"

namespace flashspan::kernel {
namespace {

constexpr const char* spec_header = "generated/kernel_spec.cuh";
constexpr const char* program_header = "generated/mask_program.cuh";
constexpr const char* lookups_header = "generated/score_lookups.cuh";
constexpr const char* forward_products_header = "generated/warpgroup_products.cuh";
constexpr const char* backward_products_header = "generated/backward_products.cuh";

std::string boolean(bool value) { return value ? "true" : "false"; }

std::string emit_kernel_spec(const KernelSpec& spec) {
  std::string text =
      "// kernel_spec.cuh -- generated from: " + spec.summary() + "\n#pragma once\n\nnamespace flashspan_device {\n\n";
  const auto constant = [&text](const char* type, const char* name, const std::string& value) {
    text += std::string("constexpr ") + type + " " + name + " = " + value + ";\n";
  };
  const TileConfig& tile = spec.tile;
  constant("bool", "is_bf16", boolean(spec.dtype == DType::bf16));
  constant("int", "head_dim_qk", std::to_string(spec.head_dim_qk));
  constant("int", "head_dim_v", std::to_string(spec.head_dim_v));
  text += "enum class Lowering { none, row_ranges, column_bounds, bit_tiles, expression, interpreted };\n";
  constant("Lowering", "lowering", std::string("Lowering::") + to_string(spec.lowering));
  constant("bool", "has_plan", boolean(spec.lowering != mask::LoweringKind::none));
  constant("bool", "bits_by_query", boolean(spec.direction == Direction::forward || spec.two_passes));
  constant("bool", "bits_by_key", boolean(spec.direction == Direction::backward));
  constant("bool", "has_score", boolean(!spec.score.empty()));
  constant("bool", "aligned", boolean(spec.aligned));
  constant("bool", "split_rows", boolean(spec.split_rows));
  constant("bool", "two_passes", boolean(spec.two_passes));
  constant("int", "block_m", std::to_string(tile.block_m));
  constant("int", "block_n", std::to_string(tile.block_n));
  constant("int", "num_warps", std::to_string(tile.num_warps));
  constant("int", "num_stages", std::to_string(tile.num_stages));
  constant("int", "query_stages", std::to_string(query_stages(spec)));
  constant("int", "query_step", std::to_string(step_sizes(spec).queries));
  constant("int", "key_step", std::to_string(step_sizes(spec).keys));
  constant("int", "key_stages", std::to_string(query_pass_stages(spec).keys));
  constant("int", "value_stages", std::to_string(query_pass_stages(spec).values));
  constant("int", "column_groups", std::to_string(tile.num_warps * rows_per_warp / tile.block_m));
  constant("int", "query_gradient_columns", std::to_string(query_gradient_share(spec).columns));
  constant("int", "shared_bytes", std::to_string(shared_memory_bytes(spec)));
  return text + "\n}  // namespace flashspan_device\n";
}

/// Every file that `text` reaches through #include lines; generated ones are in `files` already.
void collect_files(std::string_view text, std::map<std::string, std::string, std::less<>>& files) {
  for_each_line(text, [&files](std::string_view line) {
    const auto name = included_file(line);
    if (!name || files.contains(*name)) return;
    const auto library = template_library();
    const auto found =
        std::find_if(library.begin(), library.end(), [&](const TemplateFile& file) { return file.name == *name; });
    if (found == library.end()) return;  // the device compiler will name it
    files.emplace(std::string(*name), std::string(found->text));
    collect_files(found->text, files);
  });
}

ProgramText attention_program(const KernelSpec& spec) {
  ProgramText program;
  const auto include = [&program](const std::string& name) {
    program.main += "#include \"attention/" + name + ".cuh\"\n";
  };
  std::vector<std::string>& entries = program.entry_points;
  switch (spec.direction) {
    case Direction::forward:
      include(std::string("forward_") + to_string(spec.family));
      entries.emplace_back(entry_forward);
      return program;
    case Direction::backward:
      entries.insert(entries.end(), {entry_backward_delta, entry_backward_sink});
      switch (spec.family) {
        case KernelFamily::mma:
          include("backward_mma");
          entries.insert(entries.end(), {entry_backward_dq, entry_backward_dkdv});
          break;
        case KernelFamily::hopper:
          include(spec.two_passes ? "backward_query_pass" : "backward_query_sums");
          entries.insert(entries.end(), {entry_backward_tiles, entry_backward_query_gradient});
          break;
      }
      if (spec.score_gradients.empty()) return program;
      include("backward_score");
      entries.insert(entries.end(), {entry_backward_score_clear, entry_backward_score_sum, entry_backward_score_round});
      return program;
  }
  return program;
}

/// Of a spec with a mask.
ProgramText planner_program(const KernelSpec& spec) {
  ProgramText program{"planner", "#include \"plan/plan_tiles.cuh\"\n", {entry_plan_tiles}};
  if (spec.lowering == mask::LoweringKind::interpreted) {
    program.main += "#include \"plan/program.cuh\"\n";
    program.entry_points.emplace_back(entry_plan_program);
  }
  return program;
}

/// One lookup whose tensor takes a gradient, as a specialisation of ScoreLookup. `distance_sums`: the number of its
/// sums along distances; -1: it has none.
std::string emit_score_lookup(int number, const ScoreLookup& lookup, int distance_sums) {
  const std::string rank = std::to_string(lookup.at.node(lookup.at.root()).operands.size());
  const std::string coordinates =
      "(const ProgramArguments& arguments, int b, int h, int q, int k, int q_len, int kv_len";
  const auto function = [](const std::string& signature, const std::string& label, const std::string& body) {
    return "\n  static __device__ __forceinline__ " + signature + " {\n#line 1 \"" + escaped(label) + "\"\n" + body +
           "  }\n";
  };
  const auto constant = [](const char* type, const char* name, const std::string& value) {
    return std::string("  static constexpr ") + type + " " + name + " = " + value + ";\n";
  };
  const std::string label = lookup.at.to_text();
  return "\ntemplate <>\nstruct ScoreLookup<" + std::to_string(number) + "> {\n" +
         constant("int", "gradient", std::to_string(lookup.gradient)) + constant("int", "rank", rank) +
         constant("bool", "by_query", boolean(lookup.by_query())) +
         constant("bool", "by_key", boolean(lookup.by_key())) +
         constant("int", "distance_sums", std::to_string(distance_sums)) +
         function("Indices<" + rank + "> indices" + coordinates + ")", "indices of " + label,
                  emit_lookup_indices(lookup.at)) +
         function("float slope" + coordinates + ", float score)", "derivative of score by " + label,
                  emit_values(lookup.slope, {})) +
         "};\n";
}

std::string emit_score_lookups(const KernelSpec& spec, const mask::Program& score) {
  const std::vector<ScoreLookup> lookups = score_lookups(score, spec.score_gradients);
  const ScoreGradientMemory memory = score_gradient_memory(spec, lookups);
  std::string specialisations;
  int distances = 0;
  for (std::size_t i = 0; i < lookups.size(); ++i) {
    const bool summed = memory.sums_distances && lookups[i].by_distance();
    specialisations += emit_score_lookup(static_cast<int>(i), lookups[i], summed ? distances++ : -1);
  }
  const auto constant = [](const char* name, std::int64_t value) {
    return std::string("constexpr int ") + name + " = " + std::to_string(value) + ";\n";
  };
  return "// score_lookups.cuh -- generated: the lookups of the score whose tensors take a gradient.\n#pragma once\n\n"
         "#include \"mask/arithmetic.cuh\"\n\nnamespace flashspan_device {\n\n" +
         constant("score_lookups", static_cast<std::int64_t>(lookups.size())) +
         constant("score_lookups_by_distance", distances) + constant("score_gradient_shared_bytes", memory.bytes) +
         "\ntemplate <int number>\nstruct ScoreLookup;\n" + specialisations + "\n}  // namespace flashspan_device\n";
}

/// The number of ranges along one axis and the function that computes them for one index of the other, `fixed`. Kernels
/// without ranges name both in branches that the number takes out.
std::string emit_range_function(const std::string& count_name, const std::string& function_name, const char* fixed,
                                const mask::VisibleRanges* visible) {
  const std::string count = std::to_string(visible == nullptr ? 0 : visible->ranges.size());
  const std::string size = visible == nullptr ? "1" : count;
  const char* const length = fixed[0] == 'q' ? "kv_len" : "q_len";
  return "\n  static constexpr int " + count_name + " = " + count + ";\n\n  static __device__ __forceinline__ void " +
         function_name + "(const ProgramArguments& arguments, int b, int h, int " + fixed +
         ", int q_len, int kv_len, int (&begin)[" + size + "], int (&end)[" + size + "]) {\n#line 1 \"" +
         (visible == nullptr ? "no ranges" : escaped("ranges: " + visible->program.to_text())) + "\"\n" +
         (visible == nullptr ? "    begin[0] = end[0] = 0;\n" : emit_ranges(*visible, length)) + "  }\n";
}

/// The ranges that the lowering's kernel computes; nothing for the other lowerings.
Result<std::optional<mask::VisibleRanges>> ranges_for(const mask::Program& mask, mask::LoweringKind lowering) {
  using Ranges = std::optional<mask::VisibleRanges>;
  if (lowering != mask::LoweringKind::row_ranges && lowering != mask::LoweringKind::column_bounds) return Ranges();
  const bool rows = lowering == mask::LoweringKind::row_ranges;
  auto derivation = mask::derive_visible_ranges(mask, rows ? mask::Variable::k : mask::Variable::q);
  if (!derivation.found) {
    return Error{ErrorCode::bad_argument, "kernel spec field 'lowering'", to_string(lowering),
                 "a lowering that the mask has", derivation.obstacle};
  }
  return Ranges(std::move(derivation.visible));
}

}  // namespace

std::string emit_mask_program(const mask::Program& mask, const mask::Program* score, const EmittedRanges& ranges) {
  constexpr const char* coordinates =
      "const ProgramArguments& arguments, int b, int h, int q, int k, int q_len, int kv_len";
  const SideLookups lookups = side_lookups(mask);
  std::string text =
      "// mask_program.cuh -- generated: the mask and the score modification of one kernel.\n#pragma once\n\n"
      "#include \"mask/index_range.cuh\"\n#include \"mask/interval.cuh\"\n\nnamespace flashspan_device {\n\nstruct MaskProgram {\n";
  const auto constant = [&text](const char* type, const char* name, const std::string& value) {
    text += std::string("  static constexpr ") + type + " " + name + " = " + value + ";\n";
  };
  constant("int", "row_lookups", std::to_string(lookups.rows.size()));
  constant("int", "column_lookups", std::to_string(lookups.columns.size()));
  constant("bool", "lookups_by_tile", boolean(looks_up_by_tile(mask, lookups)));
  const auto function = [&text](const std::string& signature, const std::string& label, const std::string& body) {
    text += "\n  static __device__ " + signature + " {\n#line 1 \"" + escaped(label) + "\"\n" + body + "  }\n";
  };
  const std::string label = "mask: " + mask.to_text();
  const auto mask_function = [&](const std::string& result, const std::string& parameters, const std::string& body) {
    function(result + "(const ProgramArguments& arguments, " + parameters + ", int q_len, int kv_len)", label, body);
  };
  function(std::string("__forceinline__ bool visible(") + coordinates + ")", label, emit_values(mask, {}));
  mask_function("__forceinline__ bool visible", "const int* row, const int* column, int b, int h, int q, int k",
                emit_values(mask, lookups));
  const auto side = [&](const char* look_up, const char* analyse, const char* axis,
                        const std::vector<mask::NodeId>& of) {
    const std::string position = std::string(" ") + axis;
    mask_function(std::string("__forceinline__ void ") + look_up, "int* values, int b, int h, int" + position,
                  emit_lookup_values(mask, of));
    mask_function(std::string("__forceinline__ void ") + analyse,
                  "Interval* ranges, Interval b, Interval h, Interval" + position, emit_lookup_ranges(mask, of));
  };
  side("look_up_row", "analyse_row", "q", lookups.rows);
  side("look_up_column", "analyse_column", "k", lookups.columns);
  mask_function("__forceinline__ TileClass classify",
                "const Interval* row, const Interval* column, Interval b, Interval h, Interval q, Interval k",
                emit_intervals(mask, lookups));
  const std::string parameters = std::string(coordinates) + ", float score";
  const std::string score_signature = "__forceinline__ float score(" + parameters + ")";
  const std::string gradient_signature = "__forceinline__ float score_gradient(" + parameters + ")";
  if (score == nullptr) {
    // The kernels name both in branches that has_score takes out.
    function(score_signature, "no score", "    return score;\n");
    function(gradient_signature, "no score", "    return 1.f;\n");
  } else {
    const std::string score_label = "score: " + score->to_text();
    function(score_signature, score_label, emit_values(*score, {}));
    function(gradient_signature, "derivative of " + score_label, emit_values(mask::derivative_by_score(*score), {}));
  }
  text += emit_range_function("row_ranges", "ranges_of_row", "q", ranges.rows);
  text += emit_range_function("column_ranges", "ranges_of_column", "k", ranges.columns);
  return text + "};\n\n}  // namespace flashspan_device\n";
}

namespace {

constexpr const char* interpreter_header = "#pragma once\n#include \"mask/interpreter.cuh\"\n";

/// The text of program_header. Error: what a signature or a lowering that does not fit it gives.
Result<std::string> program_text(const KernelSpec& spec) {
  if (spec.lowering == mask::LoweringKind::interpreted) return std::string(interpreter_header);
  const auto mask_program = mask::Program::from_signature(spec.mask);
  if (!mask_program) return mask_program.error();
  std::optional<mask::Program> score_program;
  if (!spec.score.empty()) {
    auto score = mask::Program::from_signature(spec.score);
    if (!score) return score.error();
    score_program = *std::move(score);
  }
  const auto visible = ranges_for(*mask_program, spec.lowering);
  if (!visible) return visible.error();
  EmittedRanges ranges;
  const mask::VisibleRanges* const derived = visible->has_value() ? &**visible : nullptr;
  (spec.lowering == mask::LoweringKind::row_ranges ? ranges.rows : ranges.columns) = derived;
  return emit_mask_program(*mask_program, score_program ? &*score_program : nullptr, ranges);
}

/// The text of lookups_header, of a spec with gradients of looked-up tensors.
Result<std::string> lookups_text(const KernelSpec& spec) {
  if (spec.score.empty()) {
    return Error{ErrorCode::bad_argument, "kernel spec field 'score_gradients'", spec.score_gradients,
                 "nothing without a score", ""};
  }
  const auto score = mask::Program::from_signature(spec.score);
  if (!score) return score.error();
  return emit_score_lookups(spec, *score);
}

}  // namespace

Result<SourceText> emit_cuda(const KernelSpec& spec) {
  auto program = program_text(spec);
  if (!program) return program.error();
  std::map<std::string, std::string, std::less<>> files;
  files.emplace(spec_header, emit_kernel_spec(spec));
  files.emplace(program_header, *std::move(program));
  if (!spec.score_gradients.empty()) {
    const auto lookups = lookups_text(spec);
    if (!lookups) return lookups.error();
    files.emplace(lookups_header, *lookups);
  }
  if (spec.family == KernelFamily::hopper) {
    files.emplace(spec.direction == Direction::forward ? forward_products_header : backward_products_header,
                  emit_warpgroup_products(spec));
  }

  SourceText source;
  source.language = Language::cuda;
  source.programs.push_back(attention_program(spec));
  if (spec.lowering != mask::LoweringKind::none) source.programs.push_back(planner_program(spec));
  source.uses_local_memory = spec.lowering == mask::LoweringKind::interpreted;
  const auto generated = files;
  for (const ProgramText& program : source.programs) collect_files(program.main, files);
  for (const auto& [name, text] : generated) collect_files(text, files);
  for (auto& [name, text] : files) source.files.push_back(SourceFile{name, std::move(text)});
  return source;
}

}  // namespace flashspan::kernel
