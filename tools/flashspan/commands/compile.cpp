// compile.cpp -- `flashspan compile`: kernels for any architecture into the cache; needs NVRTC but no GPU.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "flashspan/emit.hpp"
#include "flashspan/inspect.hpp"
#include "tools/flashspan/commands/commands.hpp"
#include "tools/flashspan/commands/options.hpp"
#include "tools/flashspan/files.hpp"
#include "tools/flashspan/mask_source.hpp"

namespace flashspan::tool {
namespace {

struct CompileOptions {
  MaskOptions mask;
  ShapeOptions shape;
  std::string spec, arch, dtype = "bf16", direction = "both", source_dir, ptx_dir, c_dir, name = "attention", tile;
  std::optional<std::string> cache_dir;
  bool unaligned = false, few_rows = false, deterministic = false, for_triton = false, json = false;
  std::vector<std::string> score_gradients;
  int threads = 0;
};

std::vector<Direction> directions_of(const std::string& text) {
  if (text == "forward") return {Direction::forward};
  if (text == "backward") return {Direction::backward};
  return {Direction::forward, Direction::backward};
}

std::string label_of(const CompiledKernel& kernel) {
  return to_string(kernel.arch) + " " + to_string(kernel.direction);
}

Json report_of(const std::vector<CompiledKernel>& kernels) {
  Json report{{"kernels", Json::array()}};
  for (const CompiledKernel& kernel : kernels) {
    Json row{{"arch", to_string(kernel.arch)}, {"direction", to_string(kernel.direction)}};
    row.update(to_json(kernel.record));
    if (kernel.error) row["error"] = to_json(*kernel.error);
    report["kernels"].push_back(std::move(row));
  }
  return report;
}

void print_report(const std::vector<CompiledKernel>& kernels) {
  Table table({"kernel", "key", "outcome", "ms", "registers", "shared memory", "spills"});
  for (const CompiledKernel& kernel : kernels) {
    const KernelRecord& record = kernel.record;
    if (kernel.error) {
      table.add({label_of(kernel), record.key.empty() ? "-" : record.key, to_string(kernel.error->code)});
      continue;
    }
    table.add({label_of(kernel), record.key, record.outcome, fixed(record.compile_ms, 1),
               std::to_string(record.registers), bytes_text(record.shared_bytes), bytes_text(record.spill_bytes)});
  }
  table.print();
}

Result<void> write_sources(const std::vector<CompiledKernel>& kernels, const std::string& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  for (const CompiledKernel& kernel : kernels) {
    const std::string name = to_string(kernel.direction) + ("_" + to_string(kernel.arch)) + ".cu";
    const std::string path = (std::filesystem::path(folder) / name).string();
    auto written = write_file_atomically(
        path, "--source-dir", [&](const ByteSink& sink) { sink(kernel.source.data(), kernel.source.size()); });
    if (!written) return written;
  }
  return {};
}

Result<void> write_text(const std::string& folder, const std::string& name, const char* option,
                        const std::string& text) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  const std::string path = (std::filesystem::path(folder) / name).string();
  return write_file_atomically(path, option, [&](const ByteSink& sink) { sink(text.data(), text.size()); });
}

/// PTX and C of every direction, as far as they are asked for.
Result<void> write_programs(const CompileOptions& options, const CompileRequest& request, const AttentionShape& shape) {
  EmitRequest emit;
  emit.mask = request.mask;
  emit.score = request.score;
  emit.shape = shape;
  emit.dtype = request.dtype;
  emit.deterministic = request.deterministic;
  emit.tile = request.tile;
  emit.archs = request.archs;
  emit.cache_dir = request.cache_dir;
  emit.for_triton = options.for_triton;
  for (const Direction direction : request.directions) {
    emit.direction = direction;
    emit.name = options.name + "_" + to_string(direction);
    if (!options.ptx_dir.empty()) {
      const auto texts = emit_ptx(emit);
      if (!texts) return texts.error();
      for (std::size_t i = 0; i < texts->size(); ++i) {
        const std::string name = emit.name + "_" + to_string(emit.archs[i]) + ".ptx";
        if (auto written = write_text(options.ptx_dir, name, "--emit-ptx", (*texts)[i]); !written) return written;
      }
    }
    if (options.c_dir.empty()) continue;
    const auto program = emit_c(emit);
    if (!program) return program.error();
    for (const auto& [extension, text] : {std::pair{".h", &program->header}, std::pair{".c", &program->source}}) {
      if (auto written = write_text(options.c_dir, emit.name + extension, "--emit-c", *text); !written) return written;
    }
  }
  return {};
}

Result<std::vector<CompiledKernel>> compile_file(const CompileOptions& options) {
  const auto bytes = read_file(options.spec, "--spec");
  if (!bytes) return bytes.error();
  const std::string text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  auto compiled = compile_spec(text, options.cache_dir, std::nullopt);
  if (!compiled) return compiled.error();
  return std::vector<CompiledKernel>{*std::move(compiled)};
}

Result<std::vector<CompiledKernel>> compile_mask(const CompileOptions& options) {
  auto archs = arch_list(options.arch);
  if (!archs) return archs.error();
  const auto dtype = float_dtype(options.dtype);
  if (!dtype) return dtype.error();
  const auto source = MaskSource::read(options.mask);
  if (!source) return source.error();
  const AttentionShape shape = source->shape(options.shape);
  const auto mask = source->mask(shape);
  if (!mask) return mask.error();
  const auto score = source->score();
  if (!score) return score.error();
  CompileRequest request;
  request.mask = &*mask;
  request.score = *score ? &**score : nullptr;
  request.archs = std::move(*archs);
  request.directions = directions_of(options.direction);
  request.dtype = *dtype;
  request.head_dim_qk = static_cast<int>(shape.head_dim_qk);
  request.head_dim_v = static_cast<int>(shape.head_dim_v);
  request.score_gradients = options.score_gradients;
  request.aligned = !options.unaligned;
  request.few_rows = options.few_rows;
  request.deterministic = options.deterministic;
  request.cache_dir = options.cache_dir;
  if (!options.tile.empty()) {
    const auto tile = tile_config(options.tile);
    if (!tile) return tile.error();
    request.tile = *tile;
  }
  Progress progress(static_cast<int>(request.archs.size() * request.directions.size()), options.json);
  auto kernels = compile_ahead(request, options.threads, [&](const CompiledKernel& kernel) {
    progress.step(label_of(kernel) + ": " + (kernel.error ? to_string(kernel.error->code) : kernel.record.outcome));
  });
  if (!kernels) return kernels;
  if (auto written = write_programs(options, request, shape); !written) return written.error();
  return kernels;
}

Result<std::vector<CompiledKernel>> compile(const CompileOptions& options) {
  auto kernels = options.spec.empty() ? compile_mask(options) : compile_file(options);
  if (!kernels || options.source_dir.empty()) return kernels;
  if (auto written = write_sources(*kernels, options.source_dir); !written) return written.error();
  return kernels;
}

ExitCode run_compile(const CompileOptions& options) {
  const auto kernels = compile(options);
  if (!kernels) return report_error(kernels.error(), options.json);
  if (options.json) {
    print_json(report_of(*kernels));
  } else {
    print_report(*kernels);
  }
  ExitCode code = ExitCode::ok;
  for (const CompiledKernel& kernel : *kernels) {
    if (!kernel.error) continue;
    std::fprintf(stderr, "flashspan: %s: %s\n", label_of(kernel).c_str(), kernel.error->message().c_str());
    code = std::max(code, exit_code_of(kernel.error->code));
  }
  return code;
}

}  // namespace

void add_compile(CLI::App& application, ChosenCommand& chosen) {
  CLI::App* command = application.add_subcommand("compile", "Compile a mask's kernels into the cache; no GPU needed");
  auto options = std::make_shared<CompileOptions>();
  options->mask.mask = "causal";
  add_mask_options(*command, options->mask, false);
  add_lowering_option(*command, options->mask);
  add_score_gradient_option(*command, options->score_gradients);
  add_shape_options(*command, options->shape);
  command->add_option("--arch", options->arch, "Architectures, e.g. sm_80,sm_90a")->type_name("LIST");
  command->add_option("--dtype", options->dtype, "f16 or bf16")->capture_default_str();
  command->add_option("--direction", options->direction, "forward, backward or both")
      ->check(CLI::IsMember({"forward", "backward", "both"}))
      ->capture_default_str();
  command->add_flag("--deterministic", options->deterministic, "Backward kernels that give the same bits every time");
  command->add_flag("--few-rows", options->few_rows,
                    "For calls with few queries and heads, whose keys several blocks share");
  command->add_flag("--unaligned", options->unaligned, "For tensors whose rows are not 16-byte aligned");
  command->add_option("--tile", options->tile, "Instead of the default: BLOCK_MxBLOCK_N,WARPS,STAGES")
      ->type_name("TILE");
  CLI::Option* const ptx =
      command->add_option("--emit-ptx", options->ptx_dir, "Also write the PTX there")->type_name("DIR");
  command->add_flag("--for-triton", options->for_triton, "Write it as Triton's ir_override takes it")->needs(ptx);
  command
      ->add_option("--emit-c", options->c_dir,
                   "Also write NAME_forward.c, NAME_backward.c and their headers there: programs for the sizes given, "
                   "with the machine code in them")
      ->type_name("DIR");
  command->add_option("--name", options->name, "Of the functions that --emit-c writes")->capture_default_str();
  CLI::Option* const spec = command
                                ->add_option("--spec", options->spec,
                                             "Instead of all of these: a kernel's spec, as a failed compile names it")
                                ->type_name("FILE");
  for (CLI::Option* const option : command->get_options()) {
    if (option != spec && option != command->get_help_ptr()) spec->excludes(option);
  }
  command->add_option("--threads", options->threads, "Kernels compiled at a time (default: one a core)")
      ->check(CLI::Range(1, 1024));
  command->add_option("--source-dir", options->source_dir, "Also write the complete sources there")->type_name("DIR");
  add_cache_dir_option(*command, options->cache_dir);
  add_json_option(*command, options->json);
  command->callback([options, &chosen] { chosen = [options] { return run_compile(*options); }; });
}

}  // namespace flashspan::tool
