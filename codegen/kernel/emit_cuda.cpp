// emit_cuda.cpp -- a KernelSpec as CUDA source: two generated headers, and the templates that they complete.
#include "codegen/kernel/emit_cuda.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "codegen/kernel/emit_cuda_program.hpp"
#include "codegen/kernel/include_lines.hpp"
#include "codegen/kernel/template_library.hpp"
#include "codegen/kernel/tile_config.hpp"
#include "codegen/mask/score_derivative.hpp"

namespace flashspan::kernel {
namespace {

constexpr const char* spec_header = "generated/kernel_spec.cuh";
constexpr const char* program_header = "generated/mask_program.cuh";
constexpr int rows_per_warp = 16;

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
  constant("bool", "has_plan", boolean(spec.lowering != mask::LoweringKind::none));
  constant("bool", "has_score", boolean(!spec.score.empty()));
  constant("bool", "aligned", boolean(spec.aligned));
  constant("int", "block_m", std::to_string(tile.block_m));
  constant("int", "block_n", std::to_string(tile.block_n));
  constant("int", "num_warps", std::to_string(tile.num_warps));
  constant("int", "num_stages", std::to_string(tile.num_stages));
  constant("int", "column_groups", std::to_string(tile.num_warps * rows_per_warp / tile.block_m));
  constant("int", "shared_bytes",
           std::to_string(shared_memory_bytes(spec.direction, spec.dtype, spec.head_dim_qk, spec.head_dim_v, tile)));
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

std::string main_text(const KernelSpec& spec) {
  std::string text;
  if (spec.lowering != mask::LoweringKind::none) text += "#include \"plan/plan_tiles.cuh\"\n";
  switch (spec.direction) {
    case Direction::forward:
      return text + "#include \"attention/forward_mma.cuh\"\n";
    case Direction::backward:
      return text + "#include \"attention/backward_mma.cuh\"\n";
  }
  return text;
}

std::vector<std::string> entry_points(const KernelSpec& spec) {
  std::vector<std::string> entries;
  if (spec.lowering != mask::LoweringKind::none) entries.emplace_back(entry_plan_tiles);
  switch (spec.direction) {
    case Direction::forward:
      entries.emplace_back(entry_forward);
      break;
    case Direction::backward:
      entries.insert(entries.end(), {entry_backward_delta, entry_backward_dq, entry_backward_dkdv});
      break;
  }
  return entries;
}

}  // namespace

std::string emit_mask_program(const mask::Program& mask, const mask::Program* score) {
  constexpr const char* coordinates =
      "const ProgramArguments& arguments, int b, int h, int q, int k, int q_len, int kv_len";
  std::string text =
      "// mask_program.cuh -- generated: the mask and the score modification of one kernel.\n#pragma once\n\n"
      "#include \"mask/interval.cuh\"\n\nnamespace flashspan_device {\n\nstruct MaskProgram {\n";
  const auto function = [&text](const std::string& signature, const std::string& label, const std::string& body) {
    text += "  static __device__ " + signature + " {\n#line 1 \"" + escaped(label) + "\"\n" + body + "  }\n\n";
  };
  const std::string mask_label = "mask: " + mask.to_text();
  function(std::string("__forceinline__ bool visible(") + coordinates + ")", mask_label, emit_values(mask));
  function(
      "TileClass classify(const ProgramArguments& arguments, Interval b, Interval h, Interval q, Interval k, int q_len, int kv_len)",
      mask_label, emit_intervals(mask));
  const std::string parameters = std::string(coordinates) + ", float score";
  const std::string score_signature = "__forceinline__ float score(" + parameters + ")";
  const std::string gradient_signature = "__forceinline__ float score_gradient(" + parameters + ")";
  if (score == nullptr) {
    // The kernels name both in branches that has_score takes out.
    function(score_signature, "no score", "    return score;\n");
    function(gradient_signature, "no score", "    return 1.f;\n");
  } else {
    const std::string label = "score: " + score->to_text();
    function(score_signature, label, emit_values(*score));
    function(gradient_signature, "derivative of " + label, emit_values(mask::derivative_by_score(*score)));
  }
  return text + "};\n\n}  // namespace flashspan_device\n";
}

Result<SourceText> emit_cuda(const KernelSpec& spec) {
  const auto mask_program = mask::Program::from_signature(spec.mask);
  if (!mask_program) return mask_program.error();
  std::optional<mask::Program> score_program;
  if (!spec.score.empty()) {
    auto score = mask::Program::from_signature(spec.score);
    if (!score) return score.error();
    score_program = *std::move(score);
  }
  std::map<std::string, std::string, std::less<>> files;
  files.emplace(spec_header, emit_kernel_spec(spec));
  files.emplace(program_header, emit_mask_program(*mask_program, score_program ? &*score_program : nullptr));

  SourceText source;
  source.language = Language::cuda;
  source.main = main_text(spec);
  source.entry_points = entry_points(spec);
  const std::string program_text = files.find(program_header)->second;
  collect_files(source.main, files);
  collect_files(program_text, files);
  for (auto& [name, text] : files) source.files.push_back(SourceFile{name, std::move(text)});
  return source;
}

}  // namespace flashspan::kernel
