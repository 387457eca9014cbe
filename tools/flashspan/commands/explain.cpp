// explain.cpp -- `flashspan explain`: the path from a mask to its kernels, with values; launches nothing.
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "flashspan/inspect.hpp"
#include "tools/flashspan/commands/commands.hpp"
#include "tools/flashspan/commands/options.hpp"
#include "tools/flashspan/mask_source.hpp"

namespace flashspan::tool {
namespace {

struct ExplainOptions {
  MaskOptions mask;
  ShapeOptions shape;
  std::string dtype = "bf16", arch = "sm_90a";
  bool json = false;
};

Json report_of(const Explanation& explanation, const AttentionShape& shape, const ExplainOptions& options) {
  Json report{{"program", explanation.program},
              {"score", explanation.score},
              {"score_derivative", explanation.score_derivative},
              {"depends_on", explanation.depends_on},
              {"arch", options.arch},
              {"dtype", options.dtype},
              {"shape", to_json(shape)},
              {"density", explanation.density},
              {"tiles", to_json(explanation.tiles)},
              {"directions", Json::array()}};
  for (const DirectionPlan& plan : explanation.directions) report["directions"].push_back(to_json(plan));
  return report;
}

void print_indented(const std::string& text) {
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::printf("    %s\n", text.substr(begin, end - begin).c_str());
    begin = end + 1;
  }
}

void print_report(const Explanation& explanation, const AttentionShape& shape, const ExplainOptions& options) {
  const TileMap& tiles = explanation.tiles;
  std::printf("program     %s\n", explanation.program.c_str());
  std::printf("depends on  %s\n", explanation.depends_on.empty() ? "nothing" : explanation.depends_on.c_str());
  if (!explanation.score.empty()) {
    std::printf("score       %s\n", explanation.score.c_str());
    std::printf("derivative  %s\n", explanation.score_derivative.c_str());
  }
  std::printf("shape       batch %lld, heads %lld / %lld, lengths %lld x %lld, head dims %lld / %lld\n",
              static_cast<long long>(shape.batch), static_cast<long long>(shape.query_heads),
              static_cast<long long>(shape.kv_heads), static_cast<long long>(shape.q_len),
              static_cast<long long>(shape.kv_len), static_cast<long long>(shape.head_dim_qk),
              static_cast<long long>(shape.head_dim_v));
  std::printf("density     %.6f of all pairs are visible\n", explanation.density);
  std::printf("tiles       %lld x %lld of %lld x %lld: %lld empty, %lld full, %lld partial (batch 0, head 0)\n",
              static_cast<long long>(tiles.rows), static_cast<long long>(tiles.columns),
              static_cast<long long>(tiles.block_m), static_cast<long long>(tiles.block_n),
              static_cast<long long>(tiles.empty), static_cast<long long>(tiles.full),
              static_cast<long long>(tiles.partial));
  for (const DirectionPlan& plan : explanation.directions) {
    std::printf("%s on %s, %s\n", to_string(plan.direction), options.arch.c_str(), options.dtype.c_str());
    std::printf("  lowering  %s: %s\n", plan.lowering.c_str(), plan.lowering_reason.c_str());
    if (!plan.kernel_family.empty()) {
      std::printf("  family    %s: %s\n", plan.kernel_family.c_str(), plan.kernel_family_reason.c_str());
    }
    std::printf("  tile      %s: %s\n", plan.tile.c_str(), plan.tile_reason.c_str());
    std::printf("  FLOPs     %.4g\n", plan.flops);
    std::printf("  kernel\n");
    print_indented(plan.spec);
  }
}

ExitCode run_explain(const ExplainOptions& options) {
  const auto dtype = float_dtype(options.dtype);
  if (!dtype) return report_error(dtype.error(), options.json);
  std::optional<Arch> arch;
  if (options.arch != "cpu") {
    const auto archs = arch_list(options.arch);
    if (!archs) return report_error(archs.error(), options.json);
    if (archs->size() != 1) {
      return report_error({ErrorCode::bad_argument, "--arch", options.arch, "cpu or one of sm_80, sm_90a, ...", ""},
                          options.json);
    }
    arch = archs->front();
  }
  const auto source = MaskSource::read(options.mask);
  if (!source) return report_error(source.error(), options.json);
  const AttentionShape shape = source->shape(options.shape);
  const auto mask = source->mask(shape);
  if (!mask) return report_error(mask.error(), options.json);
  const auto score = source->score();
  if (!score) return report_error(score.error(), options.json);
  const auto explanation = explain(*mask, *score ? &**score : nullptr, shape, *dtype, arch);
  if (!explanation) return report_error(explanation.error(), options.json);
  if (options.json) {
    print_json(report_of(*explanation, shape, options));
  } else {
    print_report(*explanation, shape, options);
  }
  return ExitCode::ok;
}

}  // namespace

void add_explain(CLI::App& application, ChosenCommand& chosen) {
  CLI::App* command =
      application.add_subcommand("explain", "What would be run for a mask: program, lowering, kernel, tiles");
  auto options = std::make_shared<ExplainOptions>();
  add_mask_options(*command, options->mask, true);
  add_lowering_option(*command, options->mask);
  add_shape_options(*command, options->shape);
  command->add_option("--dtype", options->dtype, "f32, f16 or bf16")->capture_default_str();
  command->add_option("--arch", options->arch, "cpu, sm_80, sm_90a, ...")->capture_default_str();
  add_json_option(*command, options->json);
  command->callback([options, &chosen] { chosen = [options] { return run_explain(*options); }; });
}

}  // namespace flashspan::tool
